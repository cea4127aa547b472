"""Pipelines as hopforge compiles them for a cluster, by hand: a first step, steps in a group, and an exit task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Item = dict[str, Any]
PLACEHOLDER = "{{$.pipeline_job_uuid}}"
STEPS = ("make", "iterations", "last")


def pipeline(
    run_name: str = "small", steps: Sequence[str] = STEPS, workspace: str = "/workspace", *, exit_task: bool = True
) -> Item:
    """The intermediate representation, with a number ``seed`` in its form."""
    constants = {"run_id": PLACEHOLDER, "run_name": run_name, "workspace": workspace}
    inputs = {name: {"runtimeValue": {"constant": text}} for name, text in constants.items()}
    tasks: Item = {"begin": _task("begin", [], {**inputs, "seed": {"componentInputParameter": "seed"}})}
    for before, step in zip(("begin", *steps), steps, strict=False):
        tasks[step] = _task(step, [before], {})
    outer = {"exit-handler-1": _task("exit-handler-1", [], {"seed": {"componentInputParameter": "seed"}})}
    if exit_task:
        outer["end"] = _task("end", ["exit-handler-1"], inputs)
        outer["end"]["triggerPolicy"] = {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    names = ("begin", *steps, "end")
    platform = {name: {"pod_metadata": {"labels": {"hopforge.dev/task": name}}} for name in names}
    return {
        "pipeline_spec": {
            "components": {
                "comp-exit-handler-1": {"dag": {"tasks": tasks}},
                **{f"comp-{name}": {"executorLabel": f"exec-{name}"} for name in names},
            },
            "pipelineInfo": {"name": "toy"},
            "root": {
                "dag": {"tasks": outer},
                "inputDefinitions": {
                    "parameters": {"seed": {"parameterType": "NUMBER_INTEGER", "defaultValue": 1, "isOptional": True}}
                },
            },
        },
        "platform_spec": {"platforms": {"kubernetes": {"deploymentSpec": {"executors": platform}}}},
    }


def _task(name: str, needs: list[str], parameters: Item) -> Item:
    task: Item = {"componentRef": {"name": f"comp-{name}"}, "inputs": {"parameters": parameters}}
    return task | ({"dependentTasks": needs} if needs else {})


def inputs_of(specification: Item, step: str, form: Item, run_id: str) -> Item:
    """The inputs of a step in a run, as the driver fills them in: a placeholder counts only as the whole constant."""
    spec = specification.get("pipeline_spec", specification)
    defaults = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    values = {name: one.get("defaultValue") for name, one in defaults.items()} | form
    dags = [spec["root"], *spec["components"].values()]
    [task] = [dag["dag"]["tasks"][step] for dag in dags if step in dag.get("dag", {}).get("tasks", {})]
    filled = {}
    for name, value in task["inputs"]["parameters"].items():
        if "componentInputParameter" in value:
            filled[name] = values[value["componentInputParameter"]]
        elif "runtimeValue" in value:
            constant = value["runtimeValue"]["constant"]
            filled[name] = run_id if constant == PLACEHOLDER else constant
    return filled
