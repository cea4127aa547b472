"""A method, a retrieval method, a credit, a pipeline and a recipe that the tests bring along pass for shipped ones.

Everything of the toy is in ``tests/extensions/toy``; nothing elsewhere knows it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from platform_sdk.config.cluster import ClusterSpec, JobSpec, Resources, Workspace
from platform_sdk.config.recipe import load_recipe
from platform_sdk.kubeflow.packing import unpacked
from platform_sdk.kubeflow.training_job import pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.here import describe
from platform_sdk.methods import launch as launching
from platform_sdk.methods.launch import OnlineStep, SampleStep, launch
from platform_sdk.processes.launch import StepProcesses
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.tracking.traces import pieces
from tests.chaos.command import kill_short_run
from tests.commands import succeed
from tests.e2e.runs import ROOT

TOY = ROOT / "tests/extensions/toy"
RECIPE = TOY / "pipelines/toy/world.yaml"


def test_shipped_code_does_not_mention_the_toy_method() -> None:
    names = ("tests.extensions.toy", "SharedWords", "ToyAgent")
    folders = ("platform_sdk", "components", "pipelines", "manifests", "images")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yaml")]
    assert not [path for path in files if any(name in path.read_text() for name in names)]


def test_toy_recipe_is_valid_by_command_and_schema() -> None:
    assert "ok (toy, 12 tasks)" in succeed("validate", RECIPE).stdout
    schema = json.loads(succeed("schema", TOY / "pipelines/toy/pipeline.yaml").stdout)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(yaml.safe_load(RECIPE.read_text()))
    wrong = yaml.safe_load(RECIPE.read_text()) | {"parameters": {"agent": {"turns": 0}}}
    assert not Draft202012Validator(schema).is_valid(wrong)


@pytest.mark.parametrize("cluster", [False, True])
def test_toy_recipe_compiles(cluster: bool, tmp_path: Path) -> None:
    options = ["--cluster", ROOT / "pipelines/cluster.yaml"] if cluster else []
    succeed("compile", RECIPE, "--output", tmp_path / "toy.yaml", *options)
    [pipeline, *_] = yaml.safe_load_all((tmp_path / "toy.yaml").read_text())
    # On a cluster the steps stand inside an exit handler.
    dags = [pipeline["root"], *pipeline["components"].values()]
    tasks = {name: task for dag in dags for name, task in dag.get("dag", {}).get("tasks", {}).items()}
    assert {"rounds", "online", "teacher"} <= tasks.keys()
    begun = unpacked(tasks["begin"]["inputs"]["parameters"]["recipe"]["runtimeValue"]["constant"])
    assert begun["document"]["method"] == "tests.extensions.toy.method"


@pytest.mark.parametrize("render", [pytorchjob.render, trainjob.render])
def test_toy_steps_become_jobs(render: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe(RECIPE)
    (tmp_path / "run").mkdir()
    shared: dict[str, Any] = {
        "method": recipe.pipeline.document.method, "run_dir": tmp_path / "run", "model": recipe.parameters["model"],
        "environment": "world-text", "searched_digest": "c", "seed": 0,
        **{name: recipe.parameters[name] for name in ("agent", "sampling", "retrieval")},
    }  # fmt: skip
    steps = [
        SampleStep(phase="round-01", step="best", iteration=1, settings={}, carry={}, **shared),
        OnlineStep(phase="online", online=recipe.parameters["online"], evaluation={}, **shared),
    ]
    asked: list[StepProcesses] = []

    class LaunchRecorded(Exception):
        pass

    def runner(processes: StepProcesses) -> None:
        asked.append(processes)
        raise LaunchRecorded

    for step in steps:
        with pytest.raises(LaunchRecorded):
            launch(step, runner)
    cluster = ClusterSpec(
        workspace=Workspace(claim="w", path=str(tmp_path)), launcher_image="launcher",
        job=JobSpec(image="trainer", nodes=1, resources=Resources(gpus=1)),
    )  # fmt: skip
    for processes, name in zip(asked, ("sample-round-01", "online-online"), strict=True):
        assert launching.STEPS.validate_json(processes.spec_file.read_text()).method == "tests.extensions.toy.method"
        rendered = json.dumps(render(describe(processes, cluster, tmp_path / "run", "team-a")))
        assert str(processes.spec_file) in rendered
        assert name in rendered


@pytest.mark.e2e(minutes=1)
def test_killed_toy_run_equals_an_undisturbed_one_and_has_a_report(tmp_path: Path) -> None:
    undisturbed, killed = kill_short_run("toy", tmp_path)
    assert (undisturbed["strikes"], len(killed["strikes"])) == ([], 3)
    run = Path(undisturbed["folder"]) / "run"
    learned = [r for file in sorted(run.glob("online/rollouts/*.jsonl")) for r in read_jsonl(file, Rollout)]
    assert len(learned) == 2 * 3 * 3
    for rollout in learned:
        [*_, root] = [piece for piece in pieces(rollout) if piece.parent is None]
        assert root.outputs == rollout.main.answer
    page = (run / "report.html").read_text()
    assert "searcher" in page
    assert "found" in page  # the method's own metric and its turns' reward
    scores = json.loads((run / "eval-final/scores.json").read_text(encoding="utf-8"))
    assert "found" in scores["metrics"]
