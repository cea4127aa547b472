"""Entry points of the components of a compiled pipeline in their pods.

A step's settings are in the run directory; outputs of earlier steps come as arguments. A failed step writes its reason
in one line to the pod's termination message, where ``hopforge watch`` reads it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from platform_sdk.config.components import read_interface
from platform_sdk.config.errors import UserError
from platform_sdk.config.task import Group, Plan, Task
from platform_sdk.evaluation.cards import end_card, form_card, iterations_card
from platform_sdk.execution.local import Listener, walk, warm_worker
from platform_sdk.execution.lock import locked, terminable
from platform_sdk.execution.plan import carried_by, inputs_of, outputs_of, read_plan, record_outputs, settings_of
from platform_sdk.execution.step import Finished, StepOutputs, load_step
from platform_sdk.files import read_object, storage_error, write_text
from platform_sdk.kubeflow.lifecycle import (
    Status,
    begin_run,
    check_settings,
    end_run,
    enter_cluster,
    failures,
    reopen,
    run_folder,
    settings_digest,
)
from platform_sdk.kubeflow.packing import SUBMITTED_BY, unpacked
from platform_sdk.kubeflow.shutdown import was_terminated
from platform_sdk.kubeflow.wires import outer_wires, step_wires
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.tracking.adoption import GIVEN
from platform_sdk.tracking.runs import recorded_settings

TERMINATION_LOG = Path("/dev/termination-log")
LONGEST_MESSAGE = 4000  # bytes, of 4096 that the kubelet reads

log = logging.getLogger(__name__)
Shown = Mapping[str, Any]
"""Artifacts of KFP by their kind: ``card``, ``metrics``, ``page``."""


def begin(
    run_id: str, run_name: str, workspace: str, given: Mapping[str, Any], shown: Shown, outputs: Sequence[str]
) -> tuple[Any, ...]:
    """Start a run with the form's values; return its directory and the digest of its settings."""
    run_dir = run_folder(workspace, run_name, run_id)
    with _reasons():
        filled = {name: value for name, value in given.items() if name not in ("recipe", SUBMITTED_BY)}
        recipe = unpacked(given["recipe"])
        fields, parameters = begin_run(run_dir, recipe, filled, str(given.get(SUBMITTED_BY, "")))
        card = form_card(fields, parameters, recipe["parameters"])
        _show(shown, Finished(StepOutputs(), card, {"run_dir": str(run_dir)}))
    values = {"run_dir": str(run_dir), "settings": settings_digest(run_dir)}
    return tuple(values[name] for name in outputs)


def end(run_id: str, run_name: str, workspace: str, state: str, given: Mapping[str, Any], shown: Shown) -> None:
    """End a run in MLflow with the outcome of its steps.

    For a cancelled run, Kubeflow passes the state RUNNING to the exit task.
    """
    run_dir = run_folder(workspace, run_name, run_id)
    with _reasons():
        enter_cluster(run_dir)
        status: Status = "FINISHED" if state == "SUCCEEDED" else "FAILED"
        if status == "FAILED" and (state != "FAILED" or was_terminated()):
            status = "KILLED"
        end_run(run_dir, status)
        _show(shown, Finished(StepOutputs(), end_card(run_dir.name, status, failures(run_dir))))


def run_step(
    task: str, run_dir: str, settings: str, given: Mapping[str, Any], shown: Shown, outputs: Sequence[str] = ()
) -> tuple[Any, ...] | None:
    """Run a step or a group of steps; return the named outputs as KFP parameters."""
    place = Path(run_dir)
    with _reasons(), terminable():
        check_settings(place, settings)
        enter_cluster(place)
        plan = read_plan(place)
        reopen(place)
        try:
            group = next((group for group in plan.groups if group.id == task), None)
            if group is None:
                finished = _step(task, plan, place, given)
                values = finished.outputs.model_dump(mode="json")
            else:
                # Kubeflow Pipelines has one MLflow run for all steps of a group; each step gets a separate one.
                os.environ.pop(GIVEN, None)
                finished, values = _run_group(group, plan, place, given)
            record_outputs(place, task, values)
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt) and was_terminated() is not False
            _close(place, "KILLED" if stopped else "FAILED")
            raise
        if outputs_of(place).keys() >= {one.group or one.id for one in plan.tasks}:
            _close(place, "FINISHED")
        _show(shown, finished)
    carried = (values[name] for name in outputs)
    return tuple(json.dumps(value) if isinstance(value, dict | list) else value for value in carried) or None


def _step(id: str, plan: Plan, run_dir: Path, given: Mapping[str, Any]) -> Finished[StepOutputs]:
    task = next((task for task in plan.tasks if task.id == id), None)
    if task is None:
        ids = ", ".join(dict.fromkeys(one.group or one.id for one in plan.tasks))
        raise UserError(f"step {id}: the run's pipeline has no step of this id; it has {ids}")
    step = load_step(task.component)
    known: dict[str, dict[str, Any]] = {}
    for name, wire in step_wires(task).items():
        known.setdefault(wire.task, {})[wire.output] = given[name]
    inputs = _inputs(task, run_dir, known)
    with recorded_settings(settings_of(task, inputs)):
        return step.run(step.Inputs.model_validate(inputs))


def _inputs(task: Task, run_dir: Path, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a task's inputs; a struct that came through KFP is text."""
    ports = read_interface(task.component).inputs
    values = inputs_of(task, {}, run_dir, known)
    return {
        name: json.loads(value) if ports[name].type in ("struct", "list") and isinstance(value, str) else value
        for name, value in values.items()
    }


def _run_group(
    group: Group, plan: Plan, run_dir: Path, given: Mapping[str, Any]
) -> tuple[Finished[StepOutputs], dict[str, Any]]:
    """Run the tasks of a group one after another, each in a separate process."""
    tasks = [task for task in plan.tasks if task.group == group.id]
    known: dict[str, dict[str, Any]] = {}
    for name, wire in outer_wires(plan.tasks, group).items():
        known.setdefault(wire.task, {})[wire.output] = given[name]
    printer = _Printer()
    with locked(run_dir) as lock, warm_worker(run_dir, lock) as worker:
        outputs = walk(tasks, lambda task, found: _inputs(task, run_dir, found), run_dir, worker, printer, known)
    figures = _figures(tasks, run_dir)
    repeated = any(one["iteration"] > 0 for one in figures) or not tasks
    card = iterations_card(figures) if repeated else "\n\n".join(printer.cards)
    return Finished(StepOutputs(), card), carried_by(group, {}, run_dir, outputs)


def _figures(tasks: list[Task], run_dir: Path) -> list[dict[str, Any]]:
    """Return the figures of each iteration: of its selection, its training and its evaluation."""
    found: dict[int, dict[str, Any]] = {}
    for task in tasks:
        phase, iteration = (getattr(task.inputs.get(name), "value", None) for name in ("phase", "iteration"))
        if phase is None or iteration is None:
            continue
        figures = found.setdefault(iteration, {"iteration": iteration})
        for name in (PhaseDir.figures, PhaseDir.train):
            if (path := run_dir / phase / name).is_file():
                figures |= {**read_object(path), "iteration": iteration}
        if (scores := RunDir(run_dir).phase(phase).scores).is_file():
            figures["em"] = read_object(scores)["metrics"].get("em", {}).get("value")
    return list(found.values())


class _Printer(Listener):
    """Print the output of a group's tasks, each line with its task, and the end of each task; keep their cards."""

    def __init__(self) -> None:
        self.cards: list[str] = []

    def showed(self, task: str, card: str) -> None:
        self.cards.append(card)

    def said(self, task: str, line: str) -> None:
        print(f"{task}: {line}", flush=True)

    def started(self, task: str, ago: float = 0.0) -> None:
        print(f"{task}: started", flush=True)

    def finished(self, task: str, seconds: float) -> None:
        print(f"{task}: finished in {seconds:.1f} s", flush=True)

    def failed(self, task: str, seconds: float) -> None:
        print(f"{task}: failed after {seconds:.1f} s", flush=True)


def _close(run_dir: Path, status: Status) -> None:
    """End the run in MLflow; an unreachable server must not hide the step's outcome."""
    try:
        end_run(run_dir, status)
    except UserError as error:
        log.warning("the run's end is not recorded in MLflow yet: %s", error)


def _show(shown: Shown, finished: Finished[Any]) -> None:
    """Fill the step's artifacts."""
    write: dict[str, Callable[[Any], Any]] = {
        "card": lambda artifact: write_text(Path(artifact.path), finished.card, durable=False),
        "page": lambda artifact: write_text(Path(artifact.path), finished.page, durable=False),
        "metrics": lambda artifact: [artifact.log_metric(name, value) for name, value in finished.metrics.items()],
    }
    for kind, artifact in shown.items():
        write[kind](artifact)
    shown["card"].metadata.update(json.loads(json.dumps(finished.facts)))


@contextmanager
def _reasons() -> Iterator[None]:
    """End a failed step with a one-line reason first, and a traceback only for unexpected errors."""
    try:
        yield
    except Exception as error:
        told = error if isinstance(error, UserError) else storage_error(error)
        reason = str(told) if told is not None else f"{type(error).__name__}: {error}"
        print(f"error: {reason}", file=sys.stderr, flush=True)
        if told is None:
            traceback.print_exc()
        try:
            if TERMINATION_LOG.exists():
                TERMINATION_LOG.write_text(reason.encode()[:LONGEST_MESSAGE].decode(errors="ignore"), encoding="utf-8")
        except OSError as unwritable:
            log.warning("the reason is only in this log: %s", unwritable)
        raise SystemExit(1) from error
