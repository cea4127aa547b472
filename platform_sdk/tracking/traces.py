"""Rollouts as MLflow traces: spans of trajectories with child spans for turns, retrievals and calls.

Rollouts have no timestamps, so the time axis of a trace is schematic, as its tag ``time_axis`` states: one millisecond
for each token of a dialogue; trajectories called by the same turn start together.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.record_files import read_jsonl
from platform_sdk.records import SEARCH, Rollout, Trajectory
from platform_sdk.tracking.assessments import RewardSources, assessments_of
from platform_sdk.tracking.journal import Event, relocated
from platform_sdk.tracking.params import mlflow_name
from platform_sdk.tracking.store import DeliveryState

if TYPE_CHECKING:
    from mlflow import MlflowClient

MS = 1_000_000
PREVIEW = 1000
REQUEST_ID = 50
LINKS = 100

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Piece:
    """One span: its path in the tree, its time in ms from the trace's start, and its content."""

    path: str
    parent: str | None
    name: str
    kind: str
    start: int
    end: int
    inputs: Any
    outputs: Any
    attributes: dict[str, Any]
    error: str | None = None


@dataclass(frozen=True)
class CallTree:
    """Tree of turns and their called trajectories. Each trajectory belongs to the first turn that called it.

    ``called`` is keyed by the calling trajectory's id and the turn's index; ``apart`` are trajectories that no turn
    called, and trajectories for scoring only.
    """

    called: dict[tuple[str, int], list[Trajectory]]
    apart: list[Trajectory]


def call_tree(rollout: Rollout) -> CallTree:
    waiting = {other.id: other for other in rollout.others if other.use == "training"}
    called: dict[tuple[str, int], list[Trajectory]] = {}
    open_ends = [rollout.main]
    while open_ends:
        trajectory = open_ends.pop()
        for place, turn in enumerate(trajectory.turns):
            found = [waiting.pop(id) for id in dict.fromkeys(turn.calls) if id in waiting]
            if found:
                called[trajectory.id, place] = found
                open_ends += found
    apart = [other for other in rollout.others if other.use == "scoring" or other.id in waiting]
    return CallTree(called, apart)


def pieces(rollout: Rollout) -> list[Piece]:
    """Return the spans of a rollout: trajectories with their turns, retrievals and called trajectories."""
    tree = call_tree(rollout)
    below, end = _turns(rollout.main, "rollout", 0, tree)
    for other in tree.apart:
        below += _trajectory(other, "rollout", 0, tree)
    end_of_program = {} if rollout.program is None else {"program": rollout.program.model_dump(mode="json")}
    root = Piece(
        "rollout", None, "rollout", "AGENT", 0, max(end, 1), rollout.question.text, rollout.main.answer,
        end_of_program | {"outcome": rollout.outcome, "rewards": rollout.rewards, "gold": rollout.question.answers,
         "weights": rollout.weights, "corpus": rollout.corpus, "seed": rollout.seed},
    )  # fmt: skip
    return [root, *below]


def _trajectory(trajectory: Trajectory, parent: str, start: int, tree: CallTree) -> list[Piece]:
    """Return the spans of a trajectory other than the main one, its own span first."""
    path = f"trajectory {trajectory.id}"
    below, end = _turns(trajectory, path, start, tree)
    prompt = next((turn.text for turn in trajectory.turns if turn.speaker == "environment"), None)
    error = next((turn.malformed for turn in trajectory.turns if turn.malformed), None)
    chosen = [trajectory.evidence[index].id for index in trajectory.selected if 0 <= index < len(trajectory.evidence)]
    kind = "" if trajectory.use == "training" else f" (for {trajectory.use} only)"
    shown = {"role": trajectory.role, "selected": chosen, "use": trajectory.use}
    name = f"{trajectory.role} {trajectory.id}{kind}"
    own = Piece(path, parent, name, "AGENT", start, max(end, start + 1), prompt, trajectory.answer, shown, error)
    return [own, *below]


def _turns(trajectory: Trajectory, parent: str, start: int, tree: CallTree) -> tuple[list[Piece], int]:
    """Return the spans of a trajectory's turns, retrievals and calls, and the end of the last span."""
    found: list[Piece] = []
    clock, number = start, 0
    queries: tuple[str, ...] = ()
    searched = False
    for place, turn in enumerate(trajectory.turns):
        length = max(turn.end - turn.start, 1)
        if turn.speaker == "agent":
            number += 1
            queries, searched = turn.queries, bool(turn.queries) and not turn.calls
            tokens = length if trajectory.use == "training" else None
            shown = {"tokens": tokens, "queries": queries, "calls": turn.calls, "rewards": turn.rewards}
            found.append(Piece(f"{parent}/turn {place}", parent, f"{trajectory.role} turn {number}", "LLM", clock,
                               clock + length, None, turn.text, {name: v for name, v in shown.items() if v},
                               turn.malformed))  # fmt: skip
            found += [
                Piece(f"{parent}/tool {place}.{call}", parent, used.tool, "TOOL", clock + length, clock + length + 1,
                      used.arguments, used.text, dict(used.figures), used.text if used.error else None)
                for call, used in enumerate(turn.tool_calls) if used.tool != SEARCH
            ]  # fmt: skip
        elif turn.evidence or turn.queries or searched:  # a search may find nothing
            asked = (*turn.queries, *queries)  # a program may search before its first call
            documents = [
                {"id": item.id, "page_content": item.text, "metadata": {"title": item.title, "score": item.score}
                 | item.model_dump(include={"parts", "entities", "source", "query_entities"})}
                for item in turn.evidence
            ]  # fmt: skip
            found.append(Piece(f"{parent}/evidence {place}", parent, "retrieval", "RETRIEVER", clock, clock + length,
                               asked or None, documents, {"k": len(documents)}))  # fmt: skip
        clock += length
        spans = [_trajectory(other, parent, clock, tree) for other in tree.called.get((trajectory.id, place), ())]
        found += [piece for span in spans for piece in span]
        clock = max([clock, *(span[0].end for span in spans)])
    return found, clock


def traces_of(path: Path, state: DeliveryState, token: str, run_id: str, event: Event) -> Iterator[tuple[Any, Any]]:
    """Yield the traces of a file's first rollouts, each with its spans.

    A trace's id follows from the run, the phase and the rollout, so a repeated delivery adds no duplicate.
    """
    for rollout in islice(read_jsonl(path, Rollout), event["limit"]):
        trace_id = _hex(f"{token}/{event['phase']}/{rollout.id}", 32)
        yield _trace(rollout, trace_id, event, state.experiment_id, run_id)


def deliver_rollouts(
    client: MlflowClient, state: DeliveryState, token: str, run_id: str, event: Event, run_dir: Path
) -> None:
    """Log the first rollouts of a file as traces of the step's run, and link them to the parent run."""
    from mlflow.tracing.client import TracingClient

    path = relocated(run_dir, event["path"])
    if not path.is_file():
        logger.warning("%s is missing: its rollouts were to be logged as traces", path)
        return
    tracing = TracingClient(client.tracking_uri)
    spans: list[Any] = []
    ids: list[str] = []
    for info, built in traces_of(path, state, token, run_id, event):
        tracing.start_trace(info)
        spans += built
        ids.append(info.trace_id)
    tracing.log_spans(state.experiment_id, spans)
    for first in range(0, len(ids), LINKS):
        client.link_traces_to_run(ids[first : first + LINKS], str(state.run_id))


def _trace(rollout: Rollout, trace_id: str, event: Event, experiment_id: str, run_id: str) -> tuple[Any, list[Any]]:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    laid_out = pieces(rollout)
    name = f"{event['phase']}/{rollout.id}"
    sources = event.get("sources")  # earlier versions sent no assessments
    info = TraceInfo(
        trace_id=f"tr-{trace_id}",
        trace_location=TraceLocation.from_experiment_id(experiment_id),
        request_time=event["time"],
        execution_duration=laid_out[0].end,
        state=TraceState.OK,
        request_preview=rollout.question.text[:PREVIEW],
        response_preview=(rollout.main.answer or f"({rollout.outcome})")[:PREVIEW],
        client_request_id=_request_id(name),
        assessments=[]
        if sources is None
        else assessments_of(rollout, f"tr-{trace_id}", event["time"], RewardSources.model_validate(sources)),
        trace_metadata={"mlflow.sourceRun": run_id, "mlflow.trace.session": event["phase"]},
        tags={
            "mlflow.traceName": name[:250],
            "phase": event["phase"],
            "outcome": rollout.outcome,
            "time_axis": "schematic: one millisecond for each token",
            **{mlflow_name(f"reward.{name}"): f"{value:.6g}" for name, value in rollout.rewards.items()},
        },
    )
    return info, [_span(piece, trace_id, event["time"]) for piece in laid_out]


def _span(piece: Piece, trace_id: str, time_ms: int) -> Any:
    from mlflow.entities import Span

    attributes = {
        "mlflow.traceRequestId": f"tr-{trace_id}",
        "mlflow.spanType": piece.kind,
        "mlflow.spanInputs": piece.inputs,
        "mlflow.spanOutputs": piece.outputs,
        **piece.attributes,
    }
    return Span.from_dict(
        {
            "trace_id": f"tr-{trace_id}",  # bare hexadecimal would be taken for base64
            "span_id": _hex(f"{trace_id}/{piece.path}", 16),
            "parent_span_id": _hex(f"{trace_id}/{piece.parent}", 16) if piece.parent else None,
            "name": piece.name,
            "start_time_unix_nano": (time_ms + piece.start) * MS,
            "end_time_unix_nano": (time_ms + piece.end) * MS,
            "status": {"code": "ERROR" if piece.error else "OK", "message": piece.error or ""},
            "attributes": {key: json.dumps(value) for key, value in attributes.items() if value is not None},
            "events": [],
        }
    )


def _request_id(name: str) -> str:
    """Return a trace's name, shortened to MLflow's column: PostgreSQL refuses a longer value, SQLite does not."""
    return name if len(name) <= REQUEST_ID else f"{name[: REQUEST_ID - 11]}-{_hex(name, 10)}"


def _hex(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
