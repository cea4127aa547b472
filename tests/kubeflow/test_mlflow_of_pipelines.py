"""A recipe's components with the environment of Kubeflow Pipelines' MLflow plugin, on the manifest's MLflow server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import requests

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.tracking.verify import verify_run
from tests.chaos.reduced import REDUCED
from tests.kubeflow.mlflow_server import Server, mlflow_server
from tests.kubeflow.pods import Pods
from tests.kubeflow.rendered import MANIFESTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e(minutes=2),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

TEAM, PASSWORD, EXPERIMENT = "search", "a-password-of-the-team", "pipelines"


class Plugin:
    """The runs that the plugin creates: one for the pipeline run, one below it for each step.

    Names, tags and variables are those of the plugin's source (kubeflow/pipelines 2.17,
    backend/src/v2/common/plugins/mlflow/handler.go).
    """

    def __init__(self, server: Server, environment: pytest.MonkeyPatch) -> None:
        self._url, self._environment = f"{server.url}/api/2.0/mlflow", environment
        self.experiment = self.ask("experiments/create", name=EXPERIMENT)["experiment_id"]
        self.outer = self._create("a run")
        self.tasks: dict[str, str] = {}
        for name, value in {
            "MLFLOW_TRACKING_URI": server.url, "MLFLOW_WORKSPACE": TEAM, "MLFLOW_TRACKING_USERNAME": TEAM,
            "MLFLOW_TRACKING_PASSWORD": PASSWORD, "MLFLOW_EXPERIMENT_ID": self.experiment,
        }.items():  # fmt: skip
            environment.setenv(name, value)

    def give(self, task: str) -> None:
        """Create the run of a step, as the driver does before it starts the step's pod."""
        self.tasks[task] = self._create(task, {"key": "mlflow.parentRunId", "value": self.outer})
        self._environment.setenv("MLFLOW_RUN_ID", self.tasks[task])

    def ask(self, path: str, **body: Any) -> Any:
        answer = requests.post(
            f"{self._url}/{path}", json=body, auth=(TEAM, PASSWORD), headers={"X-MLFLOW-WORKSPACE": TEAM}, timeout=30
        )
        assert answer.ok, answer.text
        return answer.json()

    def _create(self, name: str, *tags: dict[str, str]) -> str:
        body = {"experiment_id": self.experiment, "run_name": name, "tags": tags}
        return str(self.ask("runs/create", **body)["run"]["info"]["run_id"])


class GivenPods(Pods):
    """Pods that are given runs by the plugin."""

    plugin: Plugin

    def begin(self, **filled: Any) -> None:
        self.plugin.give("begin")
        super().begin(**filled)

    def step(self, task: str, *outputs: str, **given: Any) -> Any:
        self.plugin.give(task)
        return super().step(task, *outputs, **given)

    def end(self, state: str) -> None:
        self.plugin.give("end")
        super().end(state)


def test_components_leave_one_tree_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flask_wtf", reason="the extra [cluster] is not installed")
    shorter = REDUCED["mygo"].shorter()  # has steps with a pod of their own, and groups of steps in one pod
    overrides = [f"{path}={json.dumps(value)}" for path, value in shorter.overrides.items()]
    recipe = load_recipe(MANIFESTS.parent / "pipelines" / shorter.recipe, overrides)
    pods = GivenPods(tmp_path, recipe)
    with mlflow_server(tmp_path) as server:
        made = server.create_users(tmp_path / "users", {TEAM: PASSWORD}, {"teams": {TEAM: {}}})
        assert made.returncode == 0, made.stderr
        plugin = pods.plugin = Plugin(server, monkeypatch)
        pods.begin()
        pods.all(read_as(ClusterSpec, MANIFESTS.parent / "pipelines/cluster.yaml"))
        pods.end("SUCCEEDED")

        experiments = plugin.ask("experiments/search", max_results=10)["experiments"]
        assert [one["name"] for one in experiments if one["name"] != "Default"] == [EXPERIMENT]
        found = plugin.ask("runs/search", experiment_ids=[one["experiment_id"] for one in experiments])["runs"]
        runs = {run["info"]["run_id"]: run["data"] for run in found}
        tags = {id: {tag["key"]: tag["value"] for tag in data["tags"]} for id, data in runs.items()}
        below = {id for id, held in tags.items() if held.get("mlflow.parentRunId") == plugin.outer}
        assert runs.keys() == {plugin.outer} | below
        assert below >= set(plugin.tasks.values())
        steps = {task: tags[run].get("hopforge.step") for task, run in plugin.tasks.items()}
        alone = {task.id for task in recipe.plan if not task.group}
        assert {task for task, step in steps.items() if step} == alone
        assert len(below - set(plugin.tasks.values())) == sum(bool(task.group) for task in recipe.plan)
        metrics = {metric["key"] for metric in runs[plugin.outer]["metrics"]}
        assert {"eval-start/em", "eval-final/em"} <= metrics
        verified = verify_run(pods.run_dir)
        assert [finding for finding in verified.findings if finding.kind != "not checkable"] == []
