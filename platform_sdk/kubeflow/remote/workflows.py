"""Argo's Workflows behind runs.

Kubeflow Pipelines creates a run's Workflow before it stores the run. If storing fails, the Workflow runs without a run,
and neither the UI nor the API shows it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from platform_sdk.kubeflow.remote.connection import NotFound, Server
from platform_sdk.kubeflow.training_job.api import ClusterApi
from platform_sdk.kubeflow.training_job.description import LABEL_TASK

RUN_ID = "pipeline/runid"
"""Label of a run's Workflow and of its pods."""
RUN_NAME = "pipelines.kubeflow.org/run_name"
"""Annotation of a run's Workflow."""
STORED_SECONDS = 300.0
"""Age of a Workflow above which its run must be stored: a request to create a run takes at most a minute."""


@dataclass(frozen=True)
class Workflow:
    """A run's Workflow. ``finished`` if it has ended."""

    name: str
    run_id: str
    run_name: str
    age_seconds: float
    finished: bool


class Workflows:
    """The Workflows of a namespace.

    Args:
        connection: see ``ClusterApi``.

    Raises:
        UserError: there is no cluster, or this account may not see its Workflows. All methods raise it.
        ApiUnavailable: by the methods: see ``ClusterApi``.
    """

    def __init__(self, namespace: str, connection: Any = None) -> None:
        self.namespace = namespace
        self._api = ClusterApi(
            namespace, group="argoproj.io", version="v1alpha1", plural="workflows",
            selector="workflows.argoproj.io/workflow", connection=connection,
        )  # fmt: skip

    def of_run(self, run_name: str) -> Workflow | None:
        """Return the Workflow of the run with this display name."""
        found = (_workflow(one, 0.0) for one in self._api.jobs(RUN_ID))
        return next((one for one in found if one.run_name == run_name), None)

    def orphans(self, server: Server, now: float) -> list[Workflow]:
        """Return hopforge's Workflows that the server has no run for.

        Workflows of other pipelines, and those too young for their run to be stored, are left out.
        """
        ours = (_workflow(one, now) for one in self._api.jobs(RUN_ID) if LABEL_TASK in json.dumps(one.get("spec", {})))
        old = [one for one in ours if one.age_seconds > STORED_SECONDS]
        return [one for one in old if not _stored(server, one.run_id)]

    def delete(self, workflow: Workflow) -> None:
        """Delete a Workflow with its pods and the jobs that they created."""
        self._api.delete(workflow.name)


def _workflow(item: dict[str, Any], now: float) -> Workflow:
    metadata = item["metadata"]
    return Workflow(
        name=metadata["name"],
        run_id=metadata["labels"][RUN_ID],
        run_name=metadata.get("annotations", {}).get(RUN_NAME, ""),
        age_seconds=now - datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
        finished=bool(item.get("status", {}).get("finishedAt")),
    )


def _stored(server: Server, run_id: str) -> bool:
    try:
        server.ask(server.api.runs.run_service_get_run, run_id)
    except NotFound:
        return False
    return True
