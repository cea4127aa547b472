"""Whole runs into a real SQLite store of MLflow."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from mlflow import MlflowClient

from platform_sdk.config.errors import UserError
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Rollout
from platform_sdk.tracking import finish_run, manifest, mlflow_run_id, runs, start_run, step_run
from platform_sdk.tracking.assessments import RewardSources
from platform_sdk.tracking.completion import is_delivered
from platform_sdk.tracking.delivery import Delivery, deliver, follow
from platform_sdk.tracking.journal import Journal, run_file, step_file
from platform_sdk.tracking.listing import find_run_dir, row_of, run_dirs
from platform_sdk.tracking.store import artifact_location, folder_uri
from platform_sdk.tracking.traces import pieces
from platform_sdk.tracking.verify import verify_run
from tests.refusals import refused
from tests.tracking.rollouts import rollout

RECIPE = {"pipeline": "mygo", "name": "world", "parameters": {"dataset": {"format": "world"}, "iterations": 2}}
FULL = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of run directories: its store is set up once for all tests here."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def run_dir(folder: Path, request: pytest.FixtureRequest) -> Path:
    made = folder / request.node.name
    (made / "iteration-01").mkdir(parents=True)
    (made / "recipe.json").write_text(json.dumps(RECIPE))
    return made


def client(folder: Path) -> MlflowClient:
    return MlflowClient(tracking_uri=folder_uri(folder))


def nested(folder: Path, run_id: str) -> dict[str, Any]:
    store = client(folder)
    experiment = store.get_run(run_id).info.experiment_id
    found = store.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{run_id}'")
    assert len({run.info.run_name for run in found}) == len(found), "one nested run for each step"
    return {run.info.run_name: run for run in found}


def write_figures(run_dir: Path) -> Path:
    path = run_dir / "iteration-01" / "figures.json"
    path.write_text(
        json.dumps(
            {"iteration": 1, "phase": "iteration-01", "mean_reward": 0.25, "attempts_histogram": {"1": 6, "3": 4}}
        )
    )
    return path


def test_run_is_delivered_to_mlflow_with_its_steps(folder: Path, run_dir: Path) -> None:
    figures = write_figures(run_dir)
    start_run(run_dir, RECIPE, follow=False, description="Why.")
    scores = run_dir / "eval-final" / "scores.json"
    scores.parent.mkdir()
    scores.write_text(
        json.dumps({"phase": "eval-final", "n": 50, "metrics": {"em": {"value": 0.5, "low": 0.4, "high": 0.6}}})
    )
    with step_run(run_dir, "corpus") as step:
        step.log_dataset("questions.train", digest=FULL, source="/data/q.jsonl", context="training", rows=30)
    with step_run(run_dir, "score-1") as step:
        step.log_figures(figures)
        step.log_params({"threads": 1})
    with step_run(run_dir, "train") as step:
        curve = [{"step": n, "loss": 1 / n, "lengths": {"mean": 8}, "seconds": 0.5} for n in (1, 2, 3)]
        step.log_curve(curve[:2], axis="step", phase="warmup")
        step.log_curve(curve, axis="step", phase="warmup")  # it has grown
        repeated = [curve[0], *(point | {"seconds": 0.75} for point in curve[1:])]
        step.log_curve(repeated, axis="step", phase="warmup")  # a process was killed, and its last steps repeated
    with step_run(run_dir, "evaluate") as step:
        step.log_scores(scores, iteration=2)
    run_id = finish_run(run_dir, "FINISHED")

    store = client(folder)
    parent = store.get_run(run_id)
    assert parent.info.status == "FINISHED"
    assert parent.info.run_name == run_dir.name
    assert parent.data.params == {"pipeline": "mygo", "name": "world", "dataset.format": "world", "iterations": "2"}
    history = store.get_metric_history(run_id, "mean_reward")
    assert [(point.step, point.value) for point in history] == [(1, 0.25)]
    assert parent.data.metrics["attempts_histogram/3"] == 4
    losses = store.get_metric_history(run_id, "warmup/loss")
    assert [(point.step, point.value) for point in losses] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    train = nested(folder, run_id)["train"].info.run_id
    assert len(store.get_metric_history(train, "warmup/lengths/mean")) == 3
    times = store.get_metric_history(train, "warmup/seconds")
    assert sorted((point.step, point.value) for point in times) == [(1, 0.5), (2, 0.5), (2, 0.75), (3, 0.5), (3, 0.75)]
    assert parent.data.metrics["eval-final/em"] == 0.5
    assert (parent.data.metrics["eval-final/em_low"], parent.data.metrics["eval-final/em_high"]) == (0.4, 0.6)
    dataset = parent.inputs.dataset_inputs[0]
    assert dataset.dataset.digest == FULL[:36]
    assert {"hopforge.digest": FULL, "mlflow.data.context": "training"}.items() <= {
        t.key: t.value for t in dataset.tags
    }.items()
    assert parent.data.tags["questions.train"] == FULL
    assert {"mlflow.source.git.commit", "git_dirty", "recipe"} <= parent.data.tags.keys()
    assert {item.path for item in store.list_artifacts(run_id)} >= {"recipe.json", "environment.json"}
    about = json.loads((run_dir / "tracking" / "environment.json").read_text())
    assert about["description"] == "Why."
    assert "CPUs" in about["hardware"]
    steps = nested(folder, run_id)
    assert {name: run.info.status for name, run in steps.items()} == dict.fromkeys(
        ("corpus", "score-1", "train", "evaluate"), "FINISHED"
    )
    assert steps["score-1"].data.params == {"threads": "1"}
    assert steps["score-1"].data.metrics["mean_reward"] == 0.25
    assert [i.path for i in store.list_artifacts(steps["score-1"].info.run_id, "iteration-01")] == [
        "iteration-01/figures.json"
    ]
    # the head that is published in MLflow vouches for the manifest
    entries = manifest.read(run_dir)
    assert parent.data.tags["manifest_head"] == entries[-1].head
    assert [entry.event for entry in entries] == [
        "run started", "step corpus", "step score-1", "step train", "step evaluate", "run ended: FINISHED",
    ]  # fmt: skip
    assert entries[1].digests == {"questions.train": FULL}

    assert run_dir in run_dirs(folder)
    row = row_of(run_dir)
    assert row.run_id == run_id
    assert (row.status, row.iterations, row.em_start, row.em_final, row.recipe) == ("FINISHED", 1, None, 0.5, "world")
    assert find_run_dir(run_id, folder) == run_dir.resolve() == find_run_dir(str(run_dir), folder).resolve()


def test_names_that_mlflow_refuses_are_delivered_with_underscores(folder: Path, run_dir: Path) -> None:
    odd, long = "short (5 words, or fewer)", "é" * 300
    parameters = {"extra": {odd: {"weight": 0.2}, "a//b": 1, long: 2}, "..": 3}
    recipe = RECIPE | {"parameters": parameters}
    (run_dir / "recipe.json").write_text(json.dumps(recipe))
    start_run(run_dir, recipe, follow=False)
    rewarded = rollout(0).model_copy(update={"rewards": {odd: 1.0}})
    write_jsonl(run_dir / "iteration-01" / "rollouts.jsonl", Rollout, [rewarded])
    with step_run(run_dir, "sample-1") as step:
        step.log_metrics({f"rewards/{odd}": 0.5, "/mean": 1.0})
        step.seal(run_dir / "iteration-01" / "rollouts.jsonl")
        step.log_rollouts(run_dir / "iteration-01" / "rollouts.jsonl", sources=RewardSources(method="arena"))
    run = client(folder).get_run(finish_run(run_dir, "FINISHED"))
    same = "short _5 words_ or fewer_"
    assert run.data.params == {
        "pipeline": "mygo", "name": "world", f"extra.{same}.weight": "0.2", "extra.a__b": "1",
        f"extra.{'é' * 244}": "2", "_": "3",
    }  # fmt: skip
    assert run.data.metrics == {f"rewards/{same}": 0.5, "_mean": 1.0}
    assert verify_run(run_dir).findings == ()


@pytest.mark.parametrize("name", ["a?b", "a%20b"])
def test_folder_in_which_mlflow_cannot_open_a_store_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"percent escape such as %20; choose another --workdir"):
        start_run(tmp_path / name / "run", RECIPE, follow=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("experiment", "stored"),
    [("mygo v1.0é", "mygo v1.0é"), ("a/b", "a%2Fb"), ("/tmp/x", "%2Ftmp%2Fx"), ("..", "%2E%2E")],
)
def test_artifacts_of_an_experiment_are_in_one_folder_next_to_the_store(
    tmp_path: Path, experiment: str, stored: str
) -> None:
    location = artifact_location(folder_uri(tmp_path), experiment)
    assert location == (tmp_path / "mlartifacts" / stored).as_uri()


def test_repeated_run_and_delivery_create_no_duplicates(folder: Path, run_dir: Path) -> None:
    figures = write_figures(run_dir)
    ids = []
    for _ in range(2):  # the whole run, and the same command again
        start_run(run_dir, RECIPE, follow=False)
        with step_run(run_dir, "score-1") as step:
            step.log_figures(figures)
        ids.append(finish_run(run_dir, "FINISHED"))
    (run_dir / "tracking" / "mlflow.json").write_text(  # a kill after MLflow was told, before it was noted down
        json.dumps({"run_id": None, "experiment_id": "", "steps": {}, "offsets": {}})
    )
    deliver(run_dir)
    assert ids[0] == ids[1] == mlflow_run_id(run_dir)
    assert list(nested(folder, ids[0])) == ["score-1"]
    assert len(client(folder).get_metric_history(ids[0], "mean_reward")) == 1


def test_altered_delivery_state_is_not_trusted(folder: Path, run_dir: Path) -> None:
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "train") as step:
        step.log_metrics({"loss": 1.0})
    run_id = finish_run(run_dir, "FINISHED")
    state = run_dir / "tracking" / "mlflow.json"
    nobody = {**json.loads(state.read_text()), "steps": {"train": "0" * 32}}
    state.write_text(json.dumps(nobody))
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "train") as step:
        step.log_metrics({"loss": 0.5}, iteration=1)
    assert finish_run(run_dir, "FINISHED") == run_id
    assert nested(folder, run_id)["train"].data.metrics == {"loss": 0.5}


def test_journal_that_was_cut_and_has_grown_since_is_delivered_from_its_start(folder: Path, run_dir: Path) -> None:
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "train") as step:
        step.log_metrics({"loss": 1.0})
    run_id = finish_run(run_dir, "FINISHED")
    journal = step_file(run_dir, "train")
    first, *_ = journal.read_bytes().splitlines(keepends=True)
    grown = {"time": 1, "event": "metrics", "metrics": {"loss": 0.5}, "iteration": 1, "more": "x" * 2000}
    journal.write_bytes(first + json.dumps(grown).encode() + b"\n")
    deliver(run_dir)
    assert nested(folder, run_id)["train"].data.metrics == {"loss": 0.5}


def test_a_failed_step_says_why_and_recovers(folder: Path, run_dir: Path) -> None:
    start_run(run_dir, RECIPE, follow=False)
    with pytest.raises(ValueError, match="no such luck"), step_run(run_dir, "train"):
        raise ValueError("no such luck")
    run_id = finish_run(run_dir, "FAILED")
    assert client(folder).get_run(run_id).info.status == "FAILED"
    failed = nested(folder, run_id)["train"]
    assert failed.info.status == "FAILED"
    assert failed.data.tags["error"] == "ValueError: no such luck"
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "train"):
        assert client(folder).get_run(run_id).info.status == "FAILED"  # nothing is delivered before a step ends
    finish_run(run_dir, "FINISHED")
    resumed = nested(folder, run_id)
    assert {name: run.info.status for name, run in resumed.items()} == {"train": "FINISHED"}
    assert "error" not in resumed["train"].data.tags


def test_gpu_hours_of_a_run_are_the_sum_of_its_steps_with_failed_attempts(folder: Path, run_dir: Path) -> None:
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "sample") as step:
        step.record_gpu_hours("job a", 0.25)
    with pytest.raises(ValueError, match="no such luck"), step_run(run_dir, "train") as step:
        step.record_gpu_hours("job b", 1.0)
        raise ValueError("no such luck")
    run_id = finish_run(run_dir, "FAILED")
    assert client(folder).get_run(run_id).data.metrics == {"gpu_hours": 1.25}
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "train") as step:
        step.record_gpu_hours("job b", 1.5)  # the same job, further on
        step.record_gpu_hours("job c", 2.0)
    with step_run(run_dir, "report"):
        pass
    finish_run(run_dir, "FINISHED")
    assert client(folder).get_run(run_id).data.metrics == {"gpu_hours": 3.75}
    steps = nested(folder, run_id)
    assert {name: run.data.metrics for name, run in steps.items()} == {
        "sample": {"gpu_hours": 0.25}, "train": {"gpu_hours": 3.5}, "report": {}
    }  # fmt: skip
    assert verify_run(run_dir).findings == ()


def test_other_recipe_for_an_existing_run_is_refused(run_dir: Path) -> None:
    start_run(run_dir, RECIPE, follow=False)
    with pytest.raises(UserError, match="another recipe"):
        start_run(run_dir, {**RECIPE, "parameters": {}}, follow=False)


def test_mlflow_run_id_is_adopted(folder: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    theirs = store.create_run(
        store.create_experiment("theirs", artifact_location=(folder / "theirs").as_uri())
    ).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", theirs)
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "corpus"):
        pass
    assert finish_run(run_dir, "FINISHED") == theirs
    assert store.get_run(theirs).info.status == "RUNNING"  # whoever began it ends it
    assert list(nested(folder, theirs)) == ["corpus"]


def test_runs_of_pipelines_are_adopted_as_one_tree(
    folder: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs that Kubeflow Pipelines' MLflow plugin creates: one for the pipeline run, one for each try of a step."""
    store = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = store.create_experiment("pipelines", artifact_location=(folder / "pipelines").as_uri())
    outer = store.create_run(experiment, run_name="a pipeline run").info.run_id

    def give(task: str) -> str:
        tags = {"mlflow.parentRunId": outer}
        given = store.create_run(experiment, run_name=task, tags=tags).info.run_id
        monkeypatch.setenv("MLFLOW_RUN_ID", given)
        return str(given)

    begin = give("begin")
    start_run(run_dir, RECIPE, follow=False, in_step=True, place={"namespace": "search"})
    corpus = give("corpus")
    with step_run(run_dir, "corpus") as step:
        step.log_metrics({"passages": 20.0})
    train = give("train")
    with pytest.raises(ValueError, match="no such luck"), step_run(run_dir, "train") as step:
        step.log_metrics({"loss": 1.0})
        raise ValueError("no such luck")
    again = give("train")
    with step_run(run_dir, "train") as step:
        step.log_metrics({"loss": 0.5}, iteration=1)
    monkeypatch.delenv("MLFLOW_RUN_ID")  # the plugin could not reach MLflow
    with step_run(run_dir, "report"):
        pass
    for repetition in range(2):
        assert finish_run(run_dir, "FINISHED") == outer
        runs = {run.info.run_id: run for run in store.search_runs([experiment])}
        [own] = runs.keys() - {outer, begin, corpus, train, again}
        assert {run.data.tags.get("mlflow.parentRunId") for run in runs.values()} == {None, outer}
        assert runs[own].info.run_name == "report"
        assert runs[outer].data.tags["namespace"] == "search"
        assert runs[outer].data.metrics == {"passages": 20.0, "loss": 0.5}
        assert (runs[corpus].data.metrics, runs[train].data.metrics) == ({"passages": 20.0}, {"loss": 0.5})
        assert runs[begin].data.metrics == runs[again].data.metrics == {}
        # Pipelines ends what it began.
        assert {run.info.status for id, run in runs.items() if id != own} == {"RUNNING"}
        assert verify_run(run_dir).findings == ()
        if not repetition:
            (run_dir / "tracking/mlflow.json").unlink()
    store.log_metric(train, "loss", 0.1, step=1)
    assert [finding.kind for finding in verify_run(run_dir).findings] == ["altered"]


def test_model_is_registered_once_without_a_copy(folder: Path, run_dir: Path) -> None:
    model = run_dir / "iteration-01" / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    (model / "config.json").write_text("{}")
    recipe = {**RECIPE, "name": "registered"}
    start_run(run_dir, recipe, follow=False)
    for step_name in ("train", "train-again"):
        with step_run(run_dir, step_name) as step:
            step.log_model(model, digest=FULL, tags={"base": "hopforge:world-base"})
    run_id = finish_run(run_dir, "FINISHED")
    store = client(folder)
    [version] = store.search_model_versions("name = 'registered'")
    assert version.run_id == run_id
    assert version.tags["weights"] == FULL
    assert version.tags["base"] == "hopforge:world-base"
    [logged] = store.search_logged_models([store.get_run(run_id).info.experiment_id], f"source_run_id = '{run_id}'")
    stored = Path(logged.artifact_location.removeprefix("file://"))
    assert sorted(path.name for path in stored.iterdir()) == ["config.json", "model.safetensors"]
    assert (stored / "model.safetensors").samefile(model / "model.safetensors")


def test_pickled_models_are_refused(run_dir: Path) -> None:
    (run_dir / "pytorch_model.bin").write_bytes(b"")
    start_run(run_dir, RECIPE, follow=False)
    with pytest.raises(UserError, match="pickled"), step_run(run_dir, "train") as step:
        step.log_model(run_dir, digest=FULL)


def test_rollouts_become_traces_once(folder: Path, run_dir: Path) -> None:
    path = run_dir / "iteration-01" / "rollouts.jsonl"
    write_jsonl(path, Rollout, [rollout(number, malformed="no tags" if number == 0 else None) for number in range(6)])
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "sample-1") as step:
        step.log_rollouts(path, limit=4, sources=RewardSources(method="mygo"))
    run_id = finish_run(run_dir, "FINISHED")
    state = run_dir / "tracking" / "mlflow.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "offsets": {}}))
    deliver(run_dir)
    store = client(folder)
    experiment = store.get_run(run_id).info.experiment_id
    sampled = nested(folder, run_id)["sample-1"].info.run_id
    traces = store.search_traces(locations=[experiment], run_id=sampled)
    assert sorted(trace.info.client_request_id for trace in traces) == [f"iteration-01/q{n}#{n % 3}" for n in range(4)]
    [first] = [trace for trace in traces if trace.info.client_request_id == "iteration-01/q0#0"]
    spans = {span.name: span for span in first.data.spans if span.name != "retrieval"}
    assert len(first.data.spans) == len(pieces(rollout(0, malformed="no tags"))) == 1 + 4 + 3 * (1 + 1 + 1)
    assert spans["planner turn 2"].status.description == "no tags"
    assert spans["worker 1.0"].parent_id == spans["rollout"].span_id
    assert spans["worker 1.0"].start_time_ns == spans["worker 1.1"].start_time_ns  # side by side
    assert spans["worker 3.0"].start_time_ns >= spans["planner turn 3"].end_time_ns
    retrievals = [span for span in first.data.spans if span.name == "retrieval"]
    assert {span.parent_id for span in retrievals} == {spans[f"worker {i}"].span_id for i in ("1.0", "1.1", "3.0")}
    assert retrievals[0].outputs[0]["metadata"]["title"] in ("Blue Harbour", "Red Harbour")
    assert first.info.tags["reward.f1"] == "1"


def test_follower_delivers_while_the_run_continues(folder: Path, run_dir: Path) -> None:
    start_run(run_dir, RECIPE)
    steps_only_write_down = mock.patch.object(MlflowClient, "__init__", side_effect=AssertionError)
    with steps_only_write_down, step_run(run_dir, "corpus") as step:
        step.log_metrics({"rows": 30})
    run_id = finish_run(run_dir, "FINISHED")
    assert nested(folder, run_id)["corpus"].data.metrics == {"rows": 30.0}
    assert client(folder).get_run(run_id).info.status == "FINISHED"


def test_follower_that_failed_is_quoted_by_the_line_that_says_why(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    log = run_dir / "tracking" / "follower.log"
    for written, shown in (
        ("error: disk is full\n[SQL: INSERT]\n(see the manual)\n", "disk is full"),
        ("Killed\n", "Killed"),  # after another start: without the earlier error
    ):
        start_run(run_dir, RECIPE)
        with log.open("a") as stream:
            stream.write(written)
        with pytest.raises(UserError, match=rf"could not be delivered to MLflow: {shown} \(full log: "):
            finish_run(run_dir, "FAILED")


def test_a_killed_run_is_marked_and_taken_up_again(folder: Path, run_dir: Path) -> None:
    script = textwrap.dedent("""
        import json, sys, time
        from pathlib import Path
        from platform_sdk.tracking import start_run, step_run
        start_run(Path(sys.argv[1]), json.loads(sys.argv[2]))
        with step_run(Path(sys.argv[1]), "sample"):
            print("inside", flush=True)
            time.sleep(600)
    """)
    command = [sys.executable, "-c", script, str(run_dir), json.dumps(RECIPE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        os.kill(process.pid, signal.SIGKILL)
    state = run_dir / "tracking" / "mlflow.json"
    deadline = time.monotonic() + 60
    status = None
    while status != "KILLED" and time.monotonic() < deadline:
        time.sleep(0.3)
        run_id = json.loads(state.read_text())["run_id"] if state.is_file() else None
        status = client(folder).get_run(run_id).info.status if run_id else None
    assert status == "KILLED"
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "sample"):
        pass
    assert finish_run(run_dir, "FINISHED") == run_id
    assert client(folder).get_run(run_id).info.status == "FINISHED"
    assert list(nested(folder, run_id)) == ["sample"]


def test_a_run_that_ends_while_its_last_step_is_delivered_is_delivered_whole(
    folder: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_run(run_dir, RECIPE, follow=False)
    journal = Journal(step_file(run_dir, "report"))  # its step's process does not deliver
    journal.append("started", name="report")
    journal.append("ended", status="FINISHED")
    (run_dir / "report.html").write_text("<p>")
    terminate = MlflowClient.set_terminated

    def ended_meanwhile(self: MlflowClient, *arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(MlflowClient, "set_terminated", terminate)
        late = Journal(run_file(run_dir))
        late.append("artifact", path=str(run_dir / "report.html"), folder="", digest="0")
        late.append("ended", status="FINISHED")
        terminate(self, *arguments, **named)

    monkeypatch.setattr(MlflowClient, "set_terminated", ended_meanwhile)
    follow(run_dir, lambda: True, lambda: None)
    run_id = mlflow_run_id(run_dir)
    assert run_id is not None
    assert "report.html" in {file.path for file in client(folder).list_artifacts(run_id)}
    assert client(folder).get_run(run_id).info.status == "FINISHED"


def test_resumed_run_is_delivered_although_its_store_was_unavailable_at_the_start(tmp_path: Path) -> None:
    run_dir, store = tmp_path / "run", tmp_path / "mlflow.db"
    start_run(run_dir, RECIPE, follow=False)
    deliver(run_dir)
    content = store.read_bytes()
    store.write_bytes(b"no database" * 100)
    with step_run(run_dir, "sample"):  # delivers nothing
        pass

    def pause() -> None:
        store.write_bytes(content)
        Journal(run_file(run_dir)).append("ended", status="FINISHED")

    follow(run_dir, lambda: True, pause)
    run_id = mlflow_run_id(run_dir)
    assert run_id is not None
    assert client(tmp_path).get_run(run_id).info.status == "FINISHED"
    assert list(nested(tmp_path, run_id)) == ["sample"]


def test_error_with_bytes_that_are_not_utf8_is_recorded_and_delivered(run_dir: Path, folder: Path) -> None:
    text = os.fsdecode(b"caf\xe9.json is missing")
    start_run(run_dir, RECIPE, follow=False)
    with pytest.raises(ValueError, match="is missing"), step_run(run_dir, "sample"):
        raise ValueError(text)
    run_id = finish_run(run_dir, "FAILED", runs.Failure(text, "sample"))
    shown = r"caf\udce9.json is missing"
    assert client(folder).get_run(run_id).data.tags["error"] == shown
    assert nested(folder, run_id)["sample"].data.tags["error"] == f"ValueError: {shown}"
    assert verify_run(run_dir).findings == ()


def test_steps_that_are_delivered_together_keep_their_order(
    folder: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform_sdk.tracking.runs._deliver_without_follower", lambda run_dir: None)
    start_run(run_dir, RECIPE, follow=False)
    for step, weights in (("train-warmup", "1" * 64), ("train-iteration-01", "2" * 64)):
        with step_run(run_dir, step) as running:
            running.record_digests(weights=weights)
        time.sleep(0.002)  # the journal's times are in milliseconds
    run_id = finish_run(run_dir, "FINISHED")
    assert client(folder).get_run(run_id).data.tags["weights"] == "2" * 64


def test_run_with_a_step_that_was_killed_inside_a_line_is_delivered_to_its_end(folder: Path, run_dir: Path) -> None:
    start_run(run_dir, RECIPE, follow=False)
    journal = Journal(step_file(run_dir, "sample"))
    journal.append("started", name="sample")
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole + b'{"event": "metr')
    run_id = finish_run(run_dir, "FAILED")
    assert client(folder).get_run(run_id).info.status == "FAILED"
    assert verify_run(run_dir).findings == ()
    journal.path.write_bytes(whole + b'{"event": "metr')  # by a process that ended later
    assert is_delivered(run_dir)
    follow(run_dir, lambda: True, lambda: pytest.fail("the delivery waits for the rest of the line"))


def test_follower_continues_after_an_error_of_the_disk(folder: Path, run_dir: Path) -> None:
    start_run(run_dir, RECIPE, follow=False)
    full = mock.patch.object(Delivery, "advance", side_effect=OSError(errno.ENOSPC, "No space left on device"))
    full.start()

    def pause() -> None:
        full.stop()
        Journal(run_file(run_dir)).append("ended", status="FINISHED")

    follow(run_dir, lambda: True, pause)
    run_id = mlflow_run_id(run_dir)
    assert run_id is not None
    assert client(folder).get_run(run_id).info.status == "FINISHED"


def test_a_killed_follower_costs_the_run_nothing(folder: Path, run_dir: Path) -> None:
    start_run(run_dir, RECIPE)
    os.kill(runs._followers[run_dir.resolve()].pid, signal.SIGKILL)
    run_id = finish_run(run_dir, "FINISHED")
    assert client(folder).get_run(run_id).info.status == "FINISHED"


def test_an_unreachable_store_stops_no_step_and_loses_nothing(
    folder: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "corpus"):
        pass
    assert "not delivered yet" in caplog.text
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9"):
        finish_run(run_dir, "FINISHED")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    run_id = finish_run(run_dir, "FINISHED")
    assert list(nested(folder, run_id)) == ["corpus"]


def test_missing_run_is_reported(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains no run directories"):
        run_dirs(tmp_path)
    with refused("run.unknown"):
        find_run_dir("f" * 32, folder)
    with refused("run.not-a-run"):
        find_run_dir(str(tmp_path), folder)
