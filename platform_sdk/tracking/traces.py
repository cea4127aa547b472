"""Rollouts as MLflow traces: a planner span for each of its turns, worker spans beside each other, retrievals below.

Rollouts carry no clock, so the time axis of a trace is schematic: one millisecond for each token of a dialogue,
workers of one turn starting together. The trace says so in its tag ``hopforge.time_axis``.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout, Trajectory
from platform_sdk.tracking.journal import Event
from platform_sdk.tracking.store import DeliveryState

if TYPE_CHECKING:
    from mlflow import MlflowClient

MS = 1_000_000
PREVIEW = 1000
LINKS = 100

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Piece:
    """One span: its place in the tree (``path``), its time in ms from the trace's start, and what it holds."""

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


def pieces(rollout: Rollout) -> list[Piece]:
    """Lay a rollout out as spans: the root, each agent turn of the planner, each worker and its retrieval."""
    found: list[Piece] = []
    clock = 0
    waiting = workers_by_turn(rollout)
    number = 0
    for turn in rollout.main.turns:
        length = max(turn.end - turn.start, 1)
        if turn.speaker == "environment":
            clock += length
            continue
        path = f"turn {number}"
        found.append(
            Piece(path, "rollout", f"planner turn {number + 1}", "LLM", clock, clock + length, None, turn.text,
                  {"tokens": length}, turn.malformed)
        )  # fmt: skip
        clock += length
        spans = [_worker(worker, clock) for worker in waiting.get(number, [])]
        found += [piece for worker in spans for piece in worker]
        clock = max([clock, *(worker[0].end for worker in spans)])
        number += 1
    root = Piece(
        "rollout", None, "rollout", "AGENT", 0, max(clock, 1), rollout.question.text, rollout.main.answer,
        {"outcome": rollout.outcome, "rewards": rollout.rewards, "gold": rollout.question.answers,
         "weights": rollout.weights, "corpus": rollout.corpus, "seed": rollout.seed},
    )  # fmt: skip
    return [root, *found]


def workers_by_turn(rollout: Rollout) -> dict[int, list[Trajectory]]:
    """Group the trajectories by the main trajectory's agent turn (counted from 0) that called them."""
    by_id = {other.id: other for other in rollout.others}
    agent_turns = [turn for turn in rollout.main.turns if turn.speaker == "agent"]
    return {n: [by_id[id] for id in turn.calls] for n, turn in enumerate(agent_turns) if turn.calls}


def _worker(worker: Trajectory, start: int) -> list[Piece]:
    path = f"worker {worker.id}"
    error = next((turn.malformed for turn in worker.turns if turn.malformed), None)
    prompt = next((turn.text for turn in worker.turns if turn.speaker == "environment"), None)
    said = [turn.text for turn in worker.turns if turn.speaker == "agent"]
    chosen = [worker.evidence[index].id for index in worker.selected if 0 <= index < len(worker.evidence)]
    end = start + max(len(worker.token_ids), 2)
    found = [
        Piece(path, "rollout", path, "AGENT", start, end, prompt, worker.answer,
              {"selected": chosen, "dialogue": said}, error)
    ]  # fmt: skip
    if worker.evidence:
        documents = [
            {"id": item.id, "page_content": item.text, "metadata": {"title": item.title, "score": item.score}}
            for item in worker.evidence
        ]
        found.append(Piece(f"retrieval {worker.id}", path, "retrieval", "RETRIEVER", start, start + 1,
                           None, documents, {"k": len(documents)}))  # fmt: skip
    return found


def deliver_rollouts(client: MlflowClient, state: DeliveryState, token: str, run_id: str, event: Event) -> None:
    """Log the first rollouts of a file as traces of the step's run, and link them to the parent run.

    A trace's id follows from the run, the phase and the rollout, so a repeated delivery writes no second one.
    """
    from mlflow.tracing.client import TracingClient

    path = Path(event["path"])
    if not path.is_file():
        logger.warning("%s is gone: its rollouts were to be logged as traces", path)
        return
    tracing = TracingClient(client.tracking_uri)
    spans: list[Any] = []
    ids: list[str] = []
    for rollout in islice(read_jsonl(path, Rollout), event["limit"]):
        trace_id = _hex(f"{token}/{event['phase']}/{rollout.id}", 32)
        info, built = _trace(rollout, trace_id, event, state.experiment_id, run_id)
        tracing.start_trace(info)
        spans += built
        ids.append(info.trace_id)
    tracing.log_spans(state.experiment_id, spans)
    for first in range(0, len(ids), LINKS):
        client.link_traces_to_run(ids[first : first + LINKS], str(state.run_id))


def _trace(rollout: Rollout, trace_id: str, event: Event, experiment_id: str, run_id: str) -> tuple[Any, list[Any]]:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    laid_out = pieces(rollout)
    info = TraceInfo(
        trace_id=f"tr-{trace_id}",
        trace_location=TraceLocation.from_experiment_id(experiment_id),
        request_time=event["time"],
        execution_duration=laid_out[0].end,
        state=TraceState.OK,
        request_preview=rollout.question.text[:PREVIEW],
        response_preview=(rollout.main.answer or f"({rollout.outcome})")[:PREVIEW],
        client_request_id=f"{event['phase']}/{rollout.id}",
        trace_metadata={"mlflow.sourceRun": run_id, "mlflow.trace.session": event["phase"]},
        tags={
            "mlflow.traceName": f"{event['phase']}/{rollout.id}"[:250],
            "hopforge.phase": event["phase"],
            "hopforge.outcome": rollout.outcome,
            "hopforge.time_axis": "schematic: one millisecond for each token",
            **{f"hopforge.reward.{name}": f"{value:.6g}" for name, value in rollout.rewards.items()},
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


def _hex(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
