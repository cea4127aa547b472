"""Runs on a Kubeflow Pipelines server: lookup by name or id, and the steps of the pipeline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kfp.dsl import PIPELINE_JOB_ID_PLACEHOLDER

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.versions import equals, listed
from platform_sdk.kubeflow.training_job.description import label_value

SYSTEM_NAMESPACE = "kubeflow"
RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LEAST_OF_ID = 6  # characters; shorter prefixes are ambiguous
ID_BEGINNING = re.compile(r"[0-9a-f]{6}[0-9a-f-]*")
FIRST_STEP = "begin"
AT_EXIT = "ALL_UPSTREAM_TASKS_COMPLETED"  # trigger of an exit task


@dataclass(frozen=True)
class Step:
    """A step of a pipeline, with its direct dependencies, and True if it runs whatever their outcome is."""

    name: str
    needs: frozenset[str] = frozenset()
    at_exit: bool = False


@dataclass(frozen=True)
class Run:
    """The constant properties of a run; ``steps`` are in topological order."""

    run_id: str
    name: str
    namespace: str
    """Namespace of the run's pods and jobs."""
    steps: tuple[Step, ...]
    label: str
    """Label of the run's jobs; empty if no step creates jobs."""

    @property
    def step_names(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps)


def find_run(server: Server, text: str, namespace: str | None) -> Run:
    """Return the run with this id, name, or prefix of an id.

    Args:
        namespace: the run's namespace; on a single-user server the namespace of its pods (default ``kubeflow``).

    Raises:
        UserError: no run or several runs match, or the server refuses.
    """
    run_id = text if RUN_ID.fullmatch(text) else _sought(server, text, namespace)
    found = server.ask(server.api.runs.run_service_get_run, run_id)
    place = SYSTEM_NAMESPACE if namespace is None else namespace
    if server.multi_user:
        place = server.ask(server.api.experiments.experiment_service_get_experiment, found.experiment_id).namespace
    specification = _specification(server, found)
    return Run(
        run_id=found.run_id,
        name=found.display_name,
        namespace=place,
        steps=tuple(_steps(specification, specification["root"])),
        label=_label(specification, found.run_id),
    )


def _sought(server: Server, text: str, namespace: str | None) -> str:
    """Return the id of the run with this name, else with this prefix of its id; the server cannot search prefixes."""
    whose = server.namespace(namespace) if server.multi_user else None
    where = f"{f' in {whose}' if whose else ''} on {server.host}"
    method = server.api.runs.run_service_list_runs
    options = {"namespace": whose or "", "sort_by": "created_at desc"}
    named = listed(server, method, "runs", filter=equals(text), **options) if text else iter(())
    matching = [one for one in named if one.display_name == text]
    if not matching and ID_BEGINNING.fullmatch(text):
        matching = [one for one in listed(server, method, "runs", **options) if one.run_id.startswith(text)]
    elif not matching:
        raise UserError(
            f"there is no run {text!r}{where}; give its whole name, its id, or at least the first {LEAST_OF_ID} "
            "characters of the id"
        )
    if not matching:
        raise UserError(f"there is no run {text!r}{where}")
    if len(matching) > 1:
        names = "\n".join(f"  {one.run_id}  {one.display_name}  {one.state}" for one in matching[:10])
        raise UserError(f"{len(matching)} runs match {text!r}; give more of the id:\n{names}")
    return str(matching[0].run_id)


def _specification(server: Server, found: Any) -> Mapping[str, Any]:
    specification = found.pipeline_spec
    if not specification:
        reference = found.pipeline_version_reference
        version = server.ask(
            server.api.pipelines.pipeline_service_get_pipeline_version,
            reference.pipeline_id,
            reference.pipeline_version_id,
        )
        specification = version.pipeline_spec
    whole: Mapping[str, Any] = specification.get("pipeline_spec", specification)
    return whole


def _steps(specification: Mapping[str, Any], component: Mapping[str, Any]) -> list[Step]:
    """Return the steps in topological order. A group is replaced by its steps."""
    rest = dict(sorted(component["dag"]["tasks"].items()))
    steps: list[Step] = []
    members: dict[str, frozenset[str]] = {}
    while rest:
        name = next(name for name, task in rest.items() if not set(task.get("dependentTasks", ())) & rest.keys())
        task = rest.pop(name)
        needs = frozenset[str]().union(*(members[needed] for needed in task.get("dependentTasks", ())))
        inner = specification["components"][task["componentRef"]["name"]]
        if "dag" in inner:
            group = [replace(step, needs=step.needs | needs) for step in _steps(specification, inner)]
        else:
            group = [Step(name, needs, task.get("triggerPolicy", {}).get("strategy") == AT_EXIT)]
        members[name] = frozenset(step.name for step in group)
        steps += group
    return steps


def _label(specification: Mapping[str, Any], run_id: str) -> str:
    """Return the label of the run's jobs, from the name and the id in the first step's arguments."""
    for dag in (specification["root"], *specification["components"].values()):
        first = dag.get("dag", {}).get("tasks", {}).get(FIRST_STEP)
        inputs = (first or {}).get("inputs", {}).get("parameters", {})  # a foreign pipeline's may have none
        if "run_name" in inputs and "run_id" in inputs:
            return label_value(f"{_constant(inputs['run_name'], run_id)}-{_constant(inputs['run_id'], run_id)}")
    return ""


def _constant(value: Mapping[str, Any], run_id: str) -> str:
    """Return a parameter's constant; like the driver, replace a placeholder only where it is the whole constant."""
    constant = str(value["runtimeValue"]["constant"])
    return run_id if constant == PIPELINE_JOB_ID_PLACEHOLDER else constant
