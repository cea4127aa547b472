"""Lineage as OpenLineage events, sent to the place that the configuration of ``openlineage-python`` names."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from platform_sdk.errors import UserError
from platform_sdk.files import read_object
from platform_sdk.lineage.extra import audit_packages
from platform_sdk.lineage.graph import Graph, Node
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.opened import RECIPE

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent, RunState

D = TypeVar("D", bound="InputDataset | OutputDataset")
NAMESPACE = "hopforge"
FILES = "file"
"""OpenLineage's namespace of files, whose names are absolute paths."""
PRODUCER = "urn:hopforge:lineage"


def events_of(graph: Graph, folder: Path) -> list[RunEvent]:
    """Return two events, START and COMPLETE, for each step of a graph's edges.

    A dataset is named by the first name of its node, and its version is the node's digest. The ids of runs follow from
    the hash of their first manifest entry, so that repeated events are equal.

    Args:
        graph: The lineage.
        folder: The folder of the run directories.

    Raises:
        UserError: the extra ``audit`` is not installed, or a recipe is damaged.
    """
    with audit_packages():
        from openlineage.client.event_v2 import RunState
    events: list[RunEvent] = []
    for run in dict.fromkeys(edge.run for edge in graph.edges):
        recipe = str(read_object(folder / run / RECIPE)["name"])
        entries = manifest.read(folder / run)
        last = seals.last_entries(entries)
        steps = dict.fromkeys(edge.step for edge in graph.edges if edge.run == run)
        for step in steps:
            entry = last[step]
            ended = datetime.fromisoformat(entry.time)
            started = ended - timedelta(seconds=float(entry.used.get("seconds", 0.0)))
            for state, time in ((RunState.START, started), (RunState.COMPLETE, ended)):
                events.append(_event(graph, run, step, recipe, entries[0].hash, state, time))
    return sorted(events, key=lambda event: event.eventTime)


def send_events(events: Iterable[RunEvent]) -> Iterator[str]:
    """Send events; yield them as JSON instead if the configured transport is the console, which is the default.

    Raises:
        UserError: the configuration is invalid, or an event cannot be sent.
    """
    with audit_packages():
        from openlineage.client import OpenLineageClient
        from openlineage.client.serde import Serde

    where = "check OPENLINEAGE_URL, or the file openlineage.yml"
    try:
        client = OpenLineageClient()
    except Exception as error:  # of any transport's configuration
        raise UserError(f"OpenLineage is not configured: {_line(error)}; {where}") from error
    for event in events:
        if client.transport.kind == "console":
            yield Serde.to_json(event)
            continue
        try:
            client.emit(event)
        except Exception as error:  # of any transport
            raise UserError(f"OpenLineage: event of {event.job.name} was not sent: {_line(error)}; {where}") from error
    if not client.close(timeout=60):
        raise UserError(f"OpenLineage: not all events were sent within a minute; {where}")


def _event(
    graph: Graph, run: str, step: str, recipe: str, start: str, state: RunState, time: datetime
) -> RunEvent:  # fmt: skip
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent
    from openlineage.client.generated import parent_run

    own = [edge for edge in graph.edges if (edge.run, edge.step) == (run, step)]
    parent = parent_run.ParentRunFacet(
        run=parent_run.Run(runId=_id(start)), job=parent_run.Job(namespace=NAMESPACE, name=recipe)
    )
    return RunEvent(
        eventType=state, eventTime=time.isoformat(), producer=PRODUCER,
        run=Run(runId=_id(start, step), facets={"parent": parent}),
        job=Job(namespace=NAMESPACE, name=f"{recipe}.{step}"),
        inputs=[_dataset(InputDataset, graph.nodes[one]) for one in dict.fromkeys(edge.source for edge in own)],
        outputs=[_dataset(OutputDataset, graph.nodes[one]) for one in dict.fromkeys(edge.target for edge in own)],
    )  # fmt: skip


def _dataset(kind: type[D], node: Node) -> D:
    from openlineage.client.generated.dataset_type_dataset import DatasetTypeDatasetFacet
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet

    name = node.names[0] if node.names else f"{node.kind}/{node.digest}"
    facets = {
        "version": DatasetVersionDatasetFacet(datasetVersion=node.digest),
        "datasetType": DatasetTypeDatasetFacet(datasetType=node.kind),
    }
    return kind(namespace=FILES if name.startswith("/") else NAMESPACE, name=name, facets=dict(facets))


def _id(*parts: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, ":".join(("urn:hopforge:run", *parts))))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
