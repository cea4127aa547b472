"""Figures of a run on a cluster, from MLflow, to which its steps deliver their journals.

A run's directory is on a volume that only its pods can read; MLflow has the figures of each training and selection.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.diagnosis.facts import Selection, TrainingPoint
from platform_sdk.tracking.adoption import PARENT
from platform_sdk.tracking.listing import RUN_DIR, tracking_server
from platform_sdk.tracking.server import Server

STEP = "hopforge.step"
SCORE = "score-"
EQUAL, REWARD = "zero_variance", "mean_reward"
STATISTICS = "statistics/"
LARGEST = 1.7976931348623157e308
"""MLflow's databases hold no infinity; the server stores the largest number instead."""

Curves = tuple[tuple[TrainingPoint, ...], tuple[Selection, ...]]


def read_curves(run_id: str) -> Curves:
    """Return the points of a run's trainings, and its selections, from the server in ``MLFLOW_TRACKING_URI``.

    All points are read only if the last one has groups without variance only, or a figure that is not finite; otherwise
    the last point is enough for the rules.

    Args:
        run_id: the id of the run in Kubeflow Pipelines, with which its directory's name ends.

    Raises:
        UserError: the variable names no server, or the server does not answer, refuses, or has no such run.
    """
    server = tracking_server()
    if server is None:
        raise UserError(
            "the run's figures: MLFLOW_TRACKING_URI names no MLflow server; set it (and MLFLOW_WORKSPACE to the team) "
            "to learn of losses, rewards and selections"
        )
    found = server.search_runs(f"tags.`{RUN_DIR}` LIKE '%-{run_id}'")
    if not found:
        raise UserError(f"the run's figures: MLflow server {server.name} has no run {run_id}; check MLFLOW_WORKSPACE")
    outer = found[0]["info"]["run_id"]
    steps = sorted(server.all_runs(f"tags.`{PARENT}` = '{outer}'"), key=lambda run: int(run["info"]["start_time"]))
    points = (point for step in steps for point in _points(server, step))
    return tuple(points), tuple(selection for step in steps for selection in _selections(step))


def _points(server: Server, step: dict[str, Any]) -> Iterator[TrainingPoint]:
    """Yield the points of the trainings of a step; the metrics of a training are ``PHASE/loss`` and others."""
    last = _metrics(step)
    for phase in sorted(name.removesuffix("/loss") for name in last if name.endswith("/loss")):
        names = [name for name in last if name.startswith(f"{phase}/")]
        odd = [name for name in names if not _is_finite(last[name][1])]
        equal = last.get(f"{phase}/{EQUAL}", (0, 0.0))[1]
        wanted = {*odd, *((f"{phase}/{EQUAL}", f"{phase}/{REWARD}") if equal == 1.0 else ())} & last.keys()
        histories = {name: server.metric_history(step["info"]["run_id"], name) for name in sorted(wanted)}
        curves = {name: {int(each["step"]): float(each["value"]) for each in history}
                  for name, history in histories.items()}  # fmt: skip
        if not curves:
            number = last[f"{phase}/loss"][0]
            curves = {name: dict([last[name]]) for name in (f"{phase}/{EQUAL}", f"{phase}/{REWARD}") if name in last}
            yield _point(phase, number, curves)
        else:
            for number in sorted({number for curve in curves.values() for number in curve}):
                yield _point(phase, number, curves)


def _point(phase: str, number: int, curves: dict[str, dict[int, float]]) -> TrainingPoint:
    """Return the point of a phase at a step of its curves, by full names of the metrics."""
    values = {name.removeprefix(f"{phase}/"): curve[number] for name, curve in curves.items() if number in curve}
    return TrainingPoint(
        phase=phase,
        number=number,
        not_finite=tuple(sorted(n.removeprefix(STATISTICS) for n, value in values.items() if not _is_finite(value))),
        equal_groups=_finite(values.get(EQUAL)),
        mean_reward=_finite(values.get(REWARD)),
    )


def _selections(step: dict[str, Any]) -> Iterator[Selection]:
    """Yield the selection of a step that scores a phase: ``rollouts``, ``selected`` and others."""
    last = {name: value for name, (_, value) in _metrics(step).items()}
    tags = {tag["key"]: tag["value"] for tag in step["data"].get("tags", ())}
    if {"rollouts", "selected"} <= last.keys():
        yield Selection(
            phase=tags.get(STEP, "").removeprefix(SCORE),
            rollouts=int(last["rollouts"]),
            accepted=int(last["selected"]),
            well_formed=_finite(last.get("well_formed")),
            threshold=_finite(last.get("threshold")),
        )


def _metrics(step: dict[str, Any]) -> dict[str, tuple[int, float]]:
    """Return the last position and value of each metric of an MLflow run."""
    return {each["key"]: (int(each.get("step", 0)), float(each["value"])) for each in step["data"].get("metrics", ())}


def _is_finite(value: float) -> bool:
    return math.isfinite(value) and abs(value) < LARGEST


def _finite(value: float | None) -> float | None:
    return value if value is not None and _is_finite(value) else None
