"""The pods of a run on a cluster, without the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.recipe import Recipe
from platform_sdk.kubeflow.compile import compile_recipe
from platform_sdk.kubeflow.lifecycle import run_folder
from platform_sdk.kubeflow.packing import begun_with, packed
from platform_sdk.kubeflow.pod import begin, end, run_step


class Artifact:
    """An artifact as KFP hands it to a component."""

    def __init__(self, path: Path) -> None:
        self.path, self.metadata, self.metrics = str(path), {}, {}  # type: ignore[var-annotated]

    def log_metric(self, name: str, value: float) -> None:
        self.metrics[name] = value


class Pods:
    """The pods of a run, called one by one as Kubeflow calls them."""

    def __init__(self, folder: Path, recipe: Recipe, cluster: ClusterSpec | None = None) -> None:
        self.folder, self.recipe, self.cluster = folder, recipe, cluster
        self.place = {"run_id": "1234", "run_name": recipe.name, "workspace": str(folder)}
        self.run_dir = run_folder(str(folder), recipe.name, "1234")
        self.settings = ""

    def shown(self) -> dict[str, Artifact]:
        return {kind: Artifact(self.folder / kind) for kind in ("card", "metrics")}

    def begin(self, **filled: Any) -> None:
        given = {"recipe": packed(begun_with(self.recipe, self.cluster)), **filled}
        [self.settings] = begin(**self.place, given=given, shown=self.shown(), outputs=["settings"])

    def step(self, task: str, *outputs: str, **given: Any) -> Any:
        return run_step(task, str(self.run_dir), self.settings, given, self.shown(), outputs)

    def all(self, cluster: ClusterSpec) -> None:
        """Run every step as the compiled pipeline has it, with what earlier steps handed on through KFP."""
        components = compile_recipe(self.recipe, cluster).specification["components"]
        [inner] = [component for name, component in components.items() if name.startswith("comp-exit-handler")]
        waiting = {name: task for name, task in inner["dag"]["tasks"].items() if name != "begin"}
        known: dict[tuple[str, str], Any] = {}
        while waiting:
            name = next(name for name, task in waiting.items() if not waiting.keys() & set(task["dependentTasks"]))
            task = waiting.pop(name)
            ports = task["inputs"]["parameters"].items()
            sources = {given: port["taskOutputParameter"] for given, port in ports}
            given = {
                to: known[source["producerTask"], source["outputParameterKey"]]
                for to, source in sources.items()
                if source["producerTask"] != "begin"
            }
            wanted = list(components[task["componentRef"]["name"]]["outputDefinitions"].get("parameters", {}))
            found = self.step(name, *wanted, **given)
            known |= {(name, output): value for output, value in zip(wanted, found or (), strict=True)}

    def end(self, state: str) -> None:
        end(**self.place, state=state, given={}, shown=self.shown())
