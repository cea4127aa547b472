"""``hopforge verify``: every attack on a run is named, and nothing else is."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
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
from platform_sdk.tracking.verify import verify_run, verify_target
from tests.tracking.small_run import BASE, RECIPE, TRAIN, TRAINED, write_small_run

FORMAT_1 = Path(__file__).parent / "format_1"
RUN = "small"
SCORES = "eval-final/scores.json"


@pytest.fixture(scope="module", autouse=True)
def _environment() -> Iterator[None]:
    before = mlflow.get_tracking_uri()
    with pytest.MonkeyPatch.context() as environment:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME"):
            environment.delenv(name, raising=False)
        yield
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of the current format and its store; tests change copies."""
    folder = tmp_path_factory.mktemp("original")
    write_small_run(folder / RUN)
    return folder


@pytest.fixture(scope="module")
def original_1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded run of format 1, delivered to a store."""
    folder = tmp_path_factory.mktemp("format") / "1"
    shutil.copytree(FORMAT_1, folder)
    deliver(folder / RUN)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copied"))


def found(run_dir: Path) -> set[tuple[str, str]]:
    return {(finding.kind, finding.thing) for finding in verify_run(run_dir).findings}


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


def edit(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def attack(folder: Path) -> None:
        path = folder / RUN / name
        text = path.read_text()
        assert change(text) != text
        path.write_text(change(text))

    return attack


def rewrite_manifest(folder: Path) -> None:
    """Edit a score, and rewrite the manifest with a valid chain."""
    scores = folder / RUN / SCORES
    scores.write_text(scores.read_text().replace("0.5", "0.9"))
    path = folder / RUN / manifest.FILE_NAME
    previous, lines = manifest.GENESIS, []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        del entry["hash"]
        if SCORES in entry.get("files", {}):
            entry["files"][SCORES] = sha256(scores)
        for output in entry.get("outputs", ()):
            if output["path"] == SCORES:
                output["sha256"] = sha256(scores)
        entry["previous"] = previous
        previous = manifest.digest_of(entry)
        lines.append(json.dumps({**entry, "hash": previous}, separators=(",", ":"), ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n")
    assert len(manifest.verify(folder / RUN)) == len(lines), "the chain is valid"


FILES: dict[str, tuple[Callable[[Path], object], set[tuple[str, str]]]] = {
    "score": (edit(SCORES, lambda text: text.replace("0.5", "0.9")), {("altered", SCORES)}),
    "rollout": (
        edit("eval-start/rollouts.jsonl", lambda text: text.replace("Lyon", "Paris")),
        {("altered", "eval-start/rollouts.jsonl")},
    ),
    "weights": (
        lambda folder: (folder / RUN / "warmup/model/model.safetensors").write_text("others"),
        {("altered", "warmup/model/model.safetensors")},
    ),
    "report": (edit("report.html", lambda text: text.replace("50.0", "90.0")), {("altered", "report.html")}),
    "dataset": (edit("corpus/questions.eval.jsonl", str.upper), {("altered", "corpus/questions.eval.jsonl")}),
    "recipe": (edit("recipe.json", lambda text: text.replace("3", "4")), {("altered", "recipe.json")}),
    "environment": (
        edit("tracking/environment.json", lambda text: text.replace("CPUs", "GPUs")),
        {("altered", "tracking/environment.json")},
    ),
    "file added": (
        lambda folder: (folder / RUN / "eval-final/notes.json").write_text("{}"),
        {("added", "eval-final/notes.json")},
    ),
    "phase added": (
        lambda folder: shutil.copytree(folder / RUN / "eval-final", folder / RUN / "eval-best"),
        {("added", "eval-best/scores.json"), ("added", "eval-best/rollouts.jsonl")},
    ),
    "file removed": (
        lambda folder: (folder / RUN / "corpus/passages.jsonl").unlink(),
        {("missing", "corpus/passages.jsonl")},
    ),
    "entry altered": (
        edit("manifest.jsonl", lambda text: text.replace("step policy", "step policf")),
        {("altered", "manifest.jsonl")},
    ),
    "manifest rewritten": (rewrite_manifest, {("altered", "manifest.jsonl")}),
    "manifest removed": (lambda folder: (folder / RUN / "manifest.jsonl").unlink(), {("missing", "manifest.jsonl")}),
    "journal removed": (
        lambda folder: (folder / RUN / "tracking/steps/eval-final.jsonl").unlink(),
        {("missing", "tracking/steps/eval-final.jsonl")},
    ),
    "journal edited": (
        edit(
            "tracking/steps/eval-final.jsonl", lambda text: text.replace('"eval-final/em": 0.5', '"eval-final/em": 0.9')
        ),
        {("altered", "tracking/steps/eval-final.jsonl")},
    ),
    "journal's last line removed": (
        edit("tracking/run.jsonl", lambda text: "".join(text.splitlines(keepends=True)[:-1])),
        {("altered", "tracking/run.jsonl")},
    ),
    "journal's end delayed": (
        edit("tracking/run.jsonl", lambda text: text[:-5] + str(1 - int(text[-5] == "1")) + text[-4:]),
        {("altered", "tracking/run.jsonl")},
    ),
    "run's journal emptied": (
        lambda folder: (folder / RUN / "tracking/run.jsonl").write_text(""),
        {("altered", "tracking/run.jsonl")},
    ),
}


@pytest.mark.parametrize("attack", FILES)
def test_an_attack_on_files_is_named_and_nothing_else(folder: Path, attack: str) -> None:
    do, expected = FILES[attack]
    do(folder)
    assert found(folder / RUN) == expected


TRACES = [f"MLflow trace eval-{phase}/{id}" for phase in ("start", "final") for id in ("q0#0", "q1#1")]
STEPS = ("/corpus", "/policy", "/eval-start", "/train-warmup", "/eval-final", "/report")
DATABASE: dict[str, tuple[str, set[tuple[str, str]]]] = {
    "metric": (
        "UPDATE metrics SET value = 0.99 WHERE key = 'eval-final/em'",
        {("altered", f"MLflow run small{step}: metric eval-final/em") for step in ("", "/eval-final")},
    ),
    "latest metric": (
        "UPDATE latest_metrics SET value = 0.99 WHERE key = 'eval-final/em'",
        {("altered", f"MLflow run small{step}: metric eval-final/em") for step in ("", "/eval-final")},
    ),
    "metric added": (
        "INSERT INTO latest_metrics SELECT 'f1', value, timestamp, step, is_nan, run_uuid FROM latest_metrics "
        "WHERE key = 'warmup/loss'",
        {("added", f"MLflow run small{step}: metric f1") for step in ("", "/train-warmup")},
    ),
    "model's metric": (
        "UPDATE logged_model_metrics SET metric_value = 0.99 WHERE metric_name = 'Scores/em' AND metric_value = 0.5",
        {("altered", "MLflow model small-warmup: metric Scores/em")},
    ),
    "parameter": (
        "UPDATE params SET value = '4' WHERE key = 'seed'",
        {("altered", "MLflow run small: param seed")},
    ),
    "tag": (
        "UPDATE tags SET value = 'x' WHERE key = 'train'",
        {("altered", f"MLflow run small{step}: tag train") for step in ("", "/corpus")},
    ),
    "tag removed": (
        "DELETE FROM tags WHERE key = 'git_dirty'",
        {("missing", "MLflow run small: tag git_dirty")},
    ),
    "note": (
        "UPDATE tags SET value = 'Better.' WHERE key = 'mlflow.note.content'",
        {("altered", "MLflow run small: tag mlflow.note.content")},
    ),
    "status": (
        "UPDATE runs SET status = 'FAILED' WHERE name = 'eval-start'",
        {("altered", "MLflow run small/eval-start: status")},
    ),
    "run deleted": (
        "UPDATE runs SET lifecycle_stage = 'deleted' WHERE name = 'small'",
        {("missing", "MLflow run small")},
    ),
    "step deleted": (
        "UPDATE runs SET lifecycle_stage = 'deleted' WHERE name = 'eval-start'",
        {("missing", "MLflow run small/eval-start")},
    ),
    "version's score": (
        "UPDATE model_version_tags SET value = '0.990' WHERE key = 'em'",
        {("altered", "MLflow model small/1: tag em")},
    ),
    "version's description": (
        "UPDATE model_versions SET description = 'The best.'",
        {("altered", "MLflow model small/1: description")},
    ),
    "version removed": (
        "DELETE FROM model_versions",
        {("missing", f"MLflow model small: version of {TRAINED[:16]}…")},
    ),
    "alias": (
        "UPDATE registered_model_aliases SET alias = 'best'",
        {("missing", "MLflow model small: alias small"), ("added", "MLflow model small: alias best")},
    ),
    "user": (
        "UPDATE tags SET value = 'somebody' WHERE key = 'mlflow.user'",
        {("altered", f"MLflow run small{step}: tag mlflow.user") for step in ("", *STEPS)},
    ),
    "source": (
        "UPDATE tags SET value = 'other.py' WHERE key = 'mlflow.source.name'",
        {("altered", f"MLflow run small{step}: tag mlflow.source.name") for step in ("", *STEPS)},
    ),
    "licence": (
        "UPDATE tags SET value = 'own MIT' WHERE key = 'dataset_licence'",
        {("altered", f"MLflow run small{step}: tag dataset_licence") for step in ("", "/corpus")},
    ),
    "approval of a step": (
        "INSERT INTO tags SELECT 'approved', 'model approved by Grace', run_uuid FROM runs WHERE name = 'eval-final'",
        {("added", "MLflow run small/eval-final: tag approved")},
    ),
    "approval of a logged model": (
        "INSERT INTO logged_model_tags (model_id, experiment_id, tag_key, tag_value) "
        "SELECT model_id, experiment_id, 'approved', 'yes' FROM logged_models WHERE name = 'small-warmup'",
        {("added", "MLflow model small-warmup: tag approved")},
    ),
    "reward": (
        "UPDATE assessments SET value = '0.0' WHERE name = 'em'",
        {("altered", f"{trace}: assessment em") for trace in TRACES},
    ),
    "judge": (
        "UPDATE assessments SET source_id = 'another' WHERE name = 'f1'",
        {("altered", f"{trace}: assessment f1") for trace in TRACES},
    ),
    "source of a reward": (
        "UPDATE assessments SET source_type = 'HUMAN' WHERE name = 'em'",
        {("altered", f"{trace}: assessment em") for trace in TRACES},
    ),
    "gold answers": (
        "UPDATE assessments SET value = '[\"Paris\"]' WHERE name = 'expected_answers'",
        {("altered", f"{trace}: assessment expected_answers") for trace in TRACES},
    ),
    "reward overridden": (
        "UPDATE assessments SET valid = 0 WHERE name = 'em'",
        {("altered", f"{trace}: assessment em") for trace in TRACES},
    ),
    "reward removed": (
        "DELETE FROM assessments WHERE name = 'em'",
        {("missing", f"{trace}: assessment em") for trace in TRACES},
    ),
    "reward added": (
        "INSERT INTO assessments (assessment_id, trace_id, experiment_id, trace_timestamp_ms, name, assessment_type, "
        "value, created_timestamp, last_updated_timestamp, source_type, source_id, valid, is_numeric_value) "
        "SELECT 'a-other' || assessment_id, trace_id, experiment_id, trace_timestamp_ms, 'correct', assessment_type, "
        "value, created_timestamp, last_updated_timestamp, source_type, source_id, valid, is_numeric_value "
        "FROM assessments WHERE name = 'em'",
        {("added", f"{trace}: assessment correct") for trace in TRACES},
    ),
    "trace": (
        "UPDATE trace_tags SET value = 'correct' WHERE key = 'outcome'",
        {("altered", trace) for trace in TRACES},
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", DATABASE)
def test_an_edit_of_mlflows_database_is_named_and_nothing_else(folder: Path, attack: str) -> None:
    statement, expected = DATABASE[attack]
    with sqlite3.connect(folder / "mlflow.db") as database:
        database.execute(statement)
    database.close()
    assert found(folder / RUN) == expected


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
    events = [entry.event for entry in manifest.verify(run_dir)[before:]]
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


def test_a_run_under_way_is_compared_as_far_as_its_steps_have_finished(tmp_path: Path) -> None:
    run_dir = tmp_path / RUN
    run_dir.mkdir()
    (run_dir / "recipe.json").write_text(json.dumps(RECIPE))
    start_run(run_dir, RECIPE, follow=False)
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
