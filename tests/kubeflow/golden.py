"""Compiled pipelines, small enough to be read in a review: ``make golden`` writes it, a test compares.

Left out are kfp's version, the source of the components, and the recipe that the first step is given.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from platform_sdk.config.cluster import CLUSTER, ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.kubeflow.compile import compile_recipe

HOME = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "golden"
RECIPES = {
    "arena": "arena/world.yaml",
    "arena-baselines": "arena-baselines/sft-reasoning-smollm2.yaml",
    "mygo": "mygo/world.yaml",
    "mygo-grpo": "mygo/world-grpo.yaml",
    "evipath": "evipath/world.yaml",
    "evipath-mygo": "evipath-mygo/world.yaml",
    "prograph": "prograph/world.yaml",
    "react": "react/world.yaml",
    "prompting": "prompting/world.yaml",
    "program": "program/world.yaml",
    "program-mygo": "program-mygo/world.yaml",
}
Item = dict[str, Any]


def text_of(recipe: Path) -> str:
    """The normalised pipeline of a recipe for the cluster that the repository shows."""
    cluster = read_as(ClusterSpec, HOME / "pipelines/cluster.yaml")
    compiled = compile_recipe(load_recipe(recipe, variables=cluster.environment), cluster)
    spec = compiled.specification
    placed = compiled.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    dags = {name: component["dag"]["tasks"] for name, component in spec["components"].items() if "dag" in component}
    content = {
        "pipeline": spec["pipelineInfo"],
        "form": spec["root"]["inputDefinitions"]["parameters"],
        "steps": {
            name: {id_: _task(spec, task) for id_, task in tasks.items()}
            for name, tasks in {"root": spec["root"]["dag"]["tasks"], **dags}.items()
        },
        "containers": _alike(
            {name: _container(executor["container"]) for name, executor in spec["deploymentSpec"]["executors"].items()}
        ),
        "pods": _alike({name: _without_task(pod) for name, pod in placed.items()}),
    }
    stream = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None
    yaml.width = 160
    yaml.dump(content, stream)
    return f"# {recipe.relative_to(HOME)}: written by `make golden`\n{stream.getvalue()}"


def _task(spec: Item, task: Item) -> Item:
    component = spec["components"][task["componentRef"]["name"]]
    inputs = {name: _wire(name, wire) for name, wire in task.get("inputs", {}).get("parameters", {}).items()}
    kept = {"inputs": inputs, "after": sorted(task.get("dependentTasks", ())), "caching": task.get("cachingOptions")}
    outputs = component.get("outputDefinitions", {})
    kept["gives"] = {
        **{name: one["parameterType"] for name, one in outputs.get("parameters", {}).items()},
        **{name: one["artifactType"]["schemaTitle"] for name, one in outputs.get("artifacts", {}).items()},
    }
    if "triggerPolicy" in task:
        kept["when"] = task["triggerPolicy"]["strategy"]
    return {key: value for key, value in kept.items() if value}


def _wire(name: str, wire: Item) -> Any:
    if "runtimeValue" in wire:
        value = wire["runtimeValue"]["constant"]
        return "the recipe and its pipeline as JSON" if name == "recipe" else value
    if "taskOutputParameter" in wire:
        return "${{{producerTask}.{outputParameterKey}}}".format(**wire["taskOutputParameter"])
    if "componentInputParameter" in wire:
        return f"${{{wire['componentInputParameter']}}}"
    return wire


def _container(container: Item) -> Item:
    named = {one["name"]: one["value"] for one in container["env"]}
    variables = {name: value for name, value in named.items() if name not in (CLUSTER, "HOPFORGE_TASK")}
    return {"image": container["image"], "resources": container["resources"], "env": variables}


def _without_task(pod: Item) -> Item:
    labels = {name: value for name, value in pod["podMetadata"]["labels"].items() if name != "hopforge.dev/task"}
    return {**pod, "podMetadata": {"labels": labels}}


def _alike(items: Item) -> list[Item]:
    """Each different thing once, with the names of those that are it."""
    found: list[Item] = []
    for name, item in sorted(items.items()):
        for one in found:
            if one["is"] == item:
                one["of"].append(name.removeprefix("exec-"))
                break
        else:
            found.append({"of": [name.removeprefix("exec-")], "is": item})
    return found


if __name__ == "__main__":
    for name, recipe in RECIPES.items():
        (FOLDER / f"{name}.yaml").write_text(text_of(HOME / "pipelines" / recipe), encoding="utf-8")
        print(FOLDER / f"{name}.yaml")
