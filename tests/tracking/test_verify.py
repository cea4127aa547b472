"""``hopforge verify`` of whole, moved, damaged and running runs; ``test_attacks`` has the table of attacks."""

from __future__ import annotations

import json
import math
import random
import shutil
import sqlite3
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import AssessmentSource
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.files import sha256
from platform_sdk.tracking import finish_run, manifest, start_run, step_run
from platform_sdk.tracking.assessments import RewardSources
from platform_sdk.tracking.delivery import deliver
from platform_sdk.tracking.findings import ROWS
from platform_sdk.tracking.log.chain import FILE_NAME, Log, Statement
from platform_sdk.tracking.runs import Failure
from platform_sdk.tracking.verify import verify_run, verify_target
from tests.tracking.small_run import BASE, RECIPE, RUN, SCORES, TRAIN, TRAINED, write_small_run
from tests.tracking.test_attacks import edit

FORMAT_1 = Path(__file__).parent / "format_1"


@pytest.fixture(scope="module")
def original_1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded run of format 1, delivered to a store."""
    folder = tmp_path_factory.mktemp("format") / "1"
    shutil.copytree(FORMAT_1, folder)
    deliver(folder / RUN)
    return folder


def found(run_dir: Path) -> set[tuple[str, str]]:
    return {(finding.kind, finding.thing) for finding in verify_run(run_dir).findings}


def started(folder: Path) -> Path:
    """Start a run in a new directory of a folder; return the directory."""
    run_dir = folder / RUN
    run_dir.mkdir()
    (run_dir / "recipe.json").write_text(json.dumps(RECIPE))
    start_run(run_dir, RECIPE, follow=False)
    return run_dir


def test_a_finished_run_is_whole_and_not_changed_by_its_verification(original: Path) -> None:
    before = {path: sha256(path) for path in original.rglob("*") if path.is_file()}
    verification = verify_run(original / RUN)
    assert verification.findings == ()
    assert verification.finished
    assert verification.detects == ("files", "mlflow", "rewritten")
    entries = manifest.read(original / RUN)
    assert verification.head == f"{len(entries) - 1}:{entries[-1].hash}"
    assert before == {path: sha256(path) for path in original.rglob("*") if path.is_file()}


def test_a_recorded_run_of_format_1_is_whole(original_1: Path) -> None:
    assert verify_run(original_1 / RUN).findings == ()


def test_two_runs_with_equal_data_in_one_folder_are_whole(tmp_path: Path) -> None:
    """MLflow stores the data once, with the first run's place."""
    for name in ("first", "second"):
        write_small_run(tmp_path / name)
    assert [result.findings for result in verify_target(str(tmp_path), tmp_path)] == [(), ()]


def test_a_copied_and_a_moved_folder_are_whole(folder: Path) -> None:
    assert verify_run(folder / RUN).findings == ()
    moved = folder.rename(folder.with_name("moved"))
    assert verify_run(moved / RUN).findings == ()


def test_file_removed_from_a_copied_folder_is_missing_there_although_the_original_has_it(folder: Path) -> None:
    (folder / RUN / "eval-start/rollouts.jsonl").unlink()
    (folder / RUN / "warmup/model/config.json").unlink()
    assert found(folder / RUN) == {
        ("missing", "eval-start/rollouts.jsonl"),
        ("missing", "warmup/model/config.json"),
    }


def test_assessments_by_people_may_be_added_but_not_replace_recorded_ones(folder: Path) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.set_tracking_uri(client.tracking_uri)
    [experiment] = {
        run.info.experiment_id for run in client.search_runs([e.experiment_id for e in client.search_experiments()])
    }
    trace = next(trace for trace in client.search_traces(locations=[experiment]))
    source = AssessmentSource("HUMAN", "ann@example.com")
    mlflow.log_feedback(trace_id=trace.info.trace_id, name="useful", value=True, source=source)
    assert found(folder / RUN) == set()
    em = next(one for one in trace.info.assessments if one.name == "em")
    mlflow.override_feedback(trace_id=trace.info.trace_id, assessment_id=em.assessment_id, value=1, source=source)
    label = f"MLflow trace {trace.info.client_request_id}: assessment em"
    assert found(folder / RUN) == {("altered", label), ("added", label)}


def test_a_trace_holds_rewards_with_their_sources_and_gold_answers(original: Path) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{original / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    trace = next(
        one for one in client.search_traces(locations=experiments) if one.info.client_request_id == "eval-final/q0#0"
    )
    shown = {
        one.name: (one.source.source_type, one.source.source_id, (one.feedback or one.expectation).value)
        for one in trace.info.assessments
    }
    assert shown == {
        "em": ("CODE", "hopforge/mygo", 1.0),
        "f1": ("LLM_JUDGE", "a-judge", 1.0),
        "expected_answers": ("CODE", "dataset world", ["Lyon", "Lyons"]),
    }


def test_the_end_of_the_run_removed_from_both_records_is_found_by_mlflow(folder: Path) -> None:
    for name in ("manifest.jsonl", "tracking/run.jsonl"):
        edit(name, lambda text: "".join(text.splitlines(keepends=True)[:-1]))(folder)
    assert found(folder / RUN) == {("altered", "manifest.jsonl")}


def test_entries_name_inputs_outputs_settings_journals_and_use(original: Path) -> None:
    run_dir = original / RUN
    entries = {entry.event: entry for entry in manifest.read(run_dir)}
    start, trained, end = entries["run started"], entries["step train-warmup"], entries["run ended: FINISHED"]
    assert {"version", "source", "host", "user", "hardware"} <= start.origin.keys()
    assert [(one.name, one.digest, one.kind) for one in trained.inputs] == [
        ("weights", BASE, "model"),
        ("train", TRAIN, "training"),
    ]
    weights = run_dir / "warmup/model/model.safetensors"
    sizes = {output.path: (output.bytes, output.sha256) for output in trained.outputs}
    assert sizes["warmup/model/model.safetensors"] == (weights.stat().st_size, sha256(weights))
    assert trained.settings == start.digests["recipe"]
    assert trained.used["seconds"] >= 0
    assert trained.used["gpu_hours"] == 0
    assert {"report.html", "tracking/steps/train-warmup.jsonl"} <= end.files.keys()


def test_published_heads_cover_the_things_that_they_stand_on(original: Path) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{original / 'mlflow.db'}")
    entries = manifest.read(original / RUN)
    heads = {entry.head: entry for entry in entries}
    version = client.get_model_version("small", "1")
    covering = heads[version.tags["manifest_head"]]
    assert "warmup/model/model.safetensors" in covering.files
    assert covering.digests["weights"] == TRAINED
    run = client.get_run(version.run_id)
    assert run.data.tags["manifest_head"] == entries[-1].head
    [stored] = original.glob("mlartifacts/*/*/artifacts/manifest.jsonl")
    assert stored.read_bytes() == (original / RUN / "manifest.jsonl").read_bytes()


def test_a_run_of_format_1_is_resumed_and_verified(tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(FORMAT_1, tmp_path / "runs")) / RUN
    before = len(manifest.read(run_dir))
    start_run(run_dir, RECIPE, follow=False)
    with step_run(run_dir, "extra") as step:
        (run_dir / "extra.json").write_text("{}")
        step.seal(run_dir / "extra.json")
    finish_run(run_dir, "FINISHED")
    events = [entry.event for entry in manifest.read(run_dir)[before:]]
    assert events[-2:] == ["step extra", "run ended: FINISHED"]
    assert verify_run(run_dir).findings == ()
    (run_dir / SCORES).write_text("{}")
    assert found(run_dir) == {("altered", SCORES)}


def test_a_run_of_format_1_is_whole_after_its_steps_ran_again(tmp_path: Path) -> None:
    """Rollouts that were sent without assessments are sent again with them."""
    run_dir = Path(shutil.copytree(FORMAT_1, tmp_path / "runs")) / RUN
    deliver(run_dir)
    start_run(run_dir, RECIPE, follow=False)
    for phase in ("eval-start", "eval-final"):
        with step_run(run_dir, phase) as step:
            step.seal(run_dir / phase)
            step.log_rollouts(run_dir / phase / "rollouts.jsonl", sources=RewardSources(method="mygo"))
    finish_run(run_dir, "FINISHED")
    assert verify_run(run_dir).findings == ()


def test_run_whose_metrics_are_not_finite_is_whole_until_one_is_edited(tmp_path: Path) -> None:
    run_dir = started(tmp_path)
    with step_run(run_dir, "train-warmup") as step:
        for number, (loss, norm) in enumerate([(math.nan, math.inf), (1.0, -math.inf), (math.nan, 2.0)]):
            step.log_metrics({"loss": loss, "norm": norm}, iteration=number)
    finish_run(run_dir, "FINISHED")
    assert verify_run(run_dir).findings == ()
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("update metrics set is_nan = 0 where key = 'loss' and step = 0")
    database.close()
    assert found(run_dir) == {
        ("altered", f"MLflow run {name}: metric loss") for name in ("small", "small/train-warmup")
    }


def test_run_in_a_store_with_a_relative_path_is_delivered_next_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    write_small_run(tmp_path / "runs" / RUN)
    assert verify_run(tmp_path / "runs" / RUN).findings == ()
    assert [*tmp_path.glob("mlartifacts/mygo/*/artifacts/report.html")]


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"{}"])
def test_recipe_replaced_in_mlflow_is_named(folder: Path, content: bytes) -> None:
    [path] = folder.glob("mlartifacts/*/*/artifacts/recipe.json")
    path.write_bytes(content)
    assert found(folder / RUN) == {("altered", "MLflow run small: artifact recipe.json")}


def test_an_artifact_edited_in_mlflow_is_named_and_nothing_else(folder: Path) -> None:
    [path] = folder.glob("mlartifacts/*/*/artifacts/report.html")
    path.write_text("<p>em 90.0</p>")
    assert found(folder / RUN) == {("altered", "MLflow run small: artifact report.html")}


def test_a_missing_store_is_not_checkable(folder: Path) -> None:
    (folder / "mlflow.db").unlink()
    verification = verify_run(folder / RUN)
    assert [finding.kind for finding in verification.findings] == ["not checkable"]
    assert verification.detects == ("files", "rewritten")
    assert not (folder / "mlflow.db").exists()


def test_a_store_that_is_no_database_is_not_checkable(folder: Path) -> None:
    (folder / "mlflow.db").write_bytes(b"no database" * 1000)
    assert {kind for kind, _ in found(folder / RUN)} == {"not checkable"}


def test_a_store_of_another_mlflow_version_is_not_checkable(folder: Path) -> None:
    with sqlite3.connect(folder / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '000000000000'")
    database.close()
    [finding] = verify_run(folder / RUN).findings
    assert (finding.kind, "\n" in finding.found) == ("not checkable", False)
    assert "mlflow.db" in finding.thing


def test_an_unreachable_server_is_not_checkable_and_named_without_its_password(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ada:secret@127.0.0.1:9")
    [finding] = [one for one in verify_run(folder / RUN).findings if one.thing != "log"]
    assert (finding.kind, "secret" in str(finding), "\n" in str(finding)) == ("not checkable", False, False)
    assert "127.0.0.1:9" in finding.thing
    with pytest.raises(UserError, match=r"MLflow server http://\*\*\*@127.0.0.1:9: .*check MLFLOW_TRACKING_URI"):
        verify_target("small/1", folder)


def test_a_manifest_of_random_bytes_is_one_finding(folder: Path) -> None:
    (folder / RUN / "manifest.jsonl").write_bytes(random.Random(7).randbytes(4000))
    [finding] = verify_run(folder / RUN).findings
    assert (finding.kind, finding.thing, "\n" in str(finding)) == ("altered", "manifest.jsonl", False)


def test_a_log_of_another_project_is_not_checkable(folder: Path, tmp_path: Path) -> None:
    digest = "1" * 64
    (folder / FILE_NAME).unlink()
    Log(folder / FILE_NAME).append(Statement(event="run ended", run="/other/run", start=digest, head=f"7:{digest}"))
    [finding] = verify_run(folder / RUN).findings
    assert (finding.kind, finding.thing) == ("not checkable", "log")
    assert "hopforge log send adds it" in finding.found


def test_a_failed_run_is_whole_until_its_error_is_edited(tmp_path: Path) -> None:
    run_dir = started(tmp_path)
    with pytest.raises(ValueError, match="no questions"), step_run(run_dir, "corpus"):
        raise ValueError("no questions")
    failure = Failure("no questions at https://ada:secret@data.example", step="corpus", code=1)
    finish_run(run_dir, "FAILED", failure)
    assert verify_run(run_dir).findings == ()
    journal = run_dir / "tracking/run.jsonl"
    assert "no questions" in journal.read_text()
    journal.write_text(journal.read_text().replace("no questions", "no disk space"))
    assert found(run_dir) == {("altered", "tracking/run.jsonl")}


def test_a_run_under_way_is_compared_as_far_as_its_steps_have_finished(tmp_path: Path) -> None:
    run_dir = started(tmp_path)
    with step_run(run_dir, "corpus") as step:
        (run_dir / "passages.jsonl").write_text("{}\n")
        step.seal(run_dir / "passages.jsonl")
    with step_run(run_dir, "eval-start") as step:
        (run_dir / "half.json").write_text("{")
        verification = verify_run(run_dir)
        assert verification.findings == ()
        assert not verification.finished
    (run_dir / "passages.jsonl").write_text("[]\n")
    assert found(run_dir) == {("altered", "passages.jsonl")}


@pytest.mark.parametrize("kind", ["artifact", "tags", "metrics", "recipe"])
def test_event_without_its_fields_is_an_altered_journal_of_a_finished_run_and_of_one_under_way(
    folder: Path, kind: str
) -> None:
    journal = folder / RUN / "tracking/run.jsonl"
    whole = journal.read_text()
    line = json.dumps({"event": kind, "time": 2_000_000_000_000}) + "\n"
    journal.write_text(whole + line)
    assert found(folder / RUN) == {("altered", "tracking/run.jsonl")}
    journal.write_text(whole)
    start_run(folder / RUN, RECIPE, follow=False)
    journal.write_text(journal.read_text() + line)
    assert found(folder / RUN) == {("altered", "tracking/")}


def test_a_folder_and_a_model_are_verified_by_the_runs_behind_them(folder: Path) -> None:
    assert [result.run for result in verify_target(str(folder), folder)] == [RUN]
    for model in ("small@small", "small/1"):
        [result] = verify_target(model, folder)
        assert (result.run, result.findings) == (RUN, ())
    for unknown in ("small@nobody", "small/7", "other/1", "nothing"):
        with pytest.raises(UserError, match=unknown):
            verify_target(unknown, folder)


def test_the_command_exits_0_1_or_3_and_prints_what_it_detects(folder: Path) -> None:
    command = ["verify", RUN, "--folder", str(folder)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "small: whole" in done.stdout
    assert f"detects {ROWS['files']}; {ROWS['mlflow']}; {ROWS['rewritten']}" in done.stdout
    assert f"does not detect {ROWS['log']}" in done.stdout
    edit(SCORES, lambda text: text.replace("0.5", "0.9"))(folder)
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 1
    [run] = json.loads(done.stdout)["runs"]
    [finding] = run["findings"]
    assert finding["thing"] == SCORES
    assert finding["found"] == sha256(folder / RUN / SCORES) != finding["expected"]
    shutil.copyfile(folder / RUN / "eval-start/scores.json", folder / RUN / SCORES)
    (folder / "mlflow.db").unlink()
    assert CliRunner().invoke(app, command).exit_code == 1
    shutil.rmtree(folder / RUN)
    assert CliRunner().invoke(app, command, standalone_mode=False).exception is not None
