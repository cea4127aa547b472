"""Attacks on a finished run: ``hopforge verify`` names exactly what was attacked, and nothing else."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest

from platform_sdk.files import sha256
from platform_sdk.tracking import manifest
from platform_sdk.tracking.approvals import approve
from platform_sdk.tracking.log.approvers import Approvers, shown
from platform_sdk.tracking.log.chain import FILE_NAME, Log, LogEntry, Statement
from platform_sdk.tracking.log.checkpoint import checkpoint_of
from platform_sdk.tracking.log.ends import send_end
from platform_sdk.tracking.log.keys import SigningKey
from platform_sdk.tracking.removal import remove_files, remove_run
from platform_sdk.tracking.verify import verify_target
from platform_sdk.tracking.verify_files import FileCheck
from tests.authority import make_key
from tests.tracking.small_run import ROLLOUTS, RUN, SCORES, TRAINED

Attack = tuple[Callable[[Path], object], set[tuple[str, str]]]
"""The change of the run's folder, and the kinds and things that ``verify`` finds."""


def found(folder: Path, original: Path) -> set[tuple[str, str]]:
    """Verify the folder with the checkpoint of the original log and, if there are any, with the approvers' keys."""
    checkpoint = checkpoint_of(Log(original / FILE_NAME).read().entries)
    approvers = folder.parent / "approvers"
    results = verify_target(str(folder), folder, checkpoint, Approvers(approvers) if approvers.is_dir() else None)
    return {(finding.kind, finding.thing) for result in results for finding in result.findings}


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
    assert len(manifest.read(folder / RUN)) == len(lines), "the chain is valid"


def rewrite_manifest_and_heads(folder: Path) -> None:
    """Edit a score, and rewrite the manifest, and the heads in the journals to match: the run's files agree."""
    run_dir = folder / RUN
    scores, path = run_dir / SCORES, run_dir / manifest.FILE_NAME
    scores.write_text(scores.read_text().replace("0.5", "0.9"))
    previous, lines = manifest.GENESIS, []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        before = entry.pop("hash")
        for output in entry.get("outputs", ()):
            output["sha256"] = sha256(run_dir / output["path"])
        entry["previous"] = previous
        previous = manifest.digest_of(entry)
        lines.append(json.dumps({**entry, "hash": previous}, separators=(",", ":"), ensure_ascii=False))
        for journal in (run_dir / "tracking").rglob("*.jsonl"):
            journal.write_text(journal.read_text().replace(before, previous))
    path.write_text("\n".join(lines) + "\n")
    assert FileCheck(run_dir).findings == []


FILES: dict[str, Attack] = {
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
    "dataset line": (
        edit("corpus/questions.eval.jsonl", lambda text: text.replace("q1", "q2")),
        {("altered", "corpus/questions.eval.jsonl")},
    ),
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
    "manifest and heads rewritten": (
        rewrite_manifest_and_heads,
        {
            ("altered", "manifest.jsonl"),
            ("altered", "MLflow run small: artifact manifest.jsonl"),
            ("altered", "MLflow run small: tag manifest_head"),
        },
    ),
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


def execute(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "mlflow.db") as database:
        assert database.execute(statement).rowcount > 0
    database.close()


def key_of(folder: Path, name: str) -> SigningKey:
    """Make an approver's key, whose public part is among the approvers' keys."""
    key, approvers = folder.parent / f"{name}.key", folder.parent / "approvers"
    approvers.mkdir(exist_ok=True)
    make_key(key)
    signing = SigningKey(key)
    (approvers / f"{name}.pem").write_text(signing.public)
    return signing


def publish(folder: Path, entry: LogEntry) -> None:
    """Give MLflow the alias and the tag of an approval, as someone who can write MLflow can."""
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    client.set_registered_model_alias("small", "approved", "1")
    client.set_model_version_tag("small", "1", "approved", shown(entry))


def approve_signed(folder: Path) -> LogEntry:
    return approve("small/1", folder, "Read the rollouts.", name="ada", key=key_of(folder, "ada"))


def forge_approval(folder: Path) -> None:
    """Set alias and tag in MLflow for an approval that the log does not have."""
    entry = Log(folder / FILE_NAME).read().entries[-1]
    publish(
        folder, entry.model_copy(update={"event": "model approved", "who": "ada", "note": "Good.", "key": "0" * 64})
    )


def approve_with_another_key(folder: Path) -> None:
    """Approve in ada's name with the key of grace, who is an approver too."""
    key_of(folder, "ada")
    approve("small/1", folder, "Read the rollouts.", name="ada", key=key_of(folder, "grace"))


def forge_signed_approval(folder: Path) -> None:
    """Append an approval in ada's name to the log, with the signature of another one of hers that she withdrew."""
    signed = approve_signed(folder)
    approve("small/1", folder, "The wrong split.", name="ada", key=SigningKey(folder.parent / "ada.key"), withdraw=True)
    replayed = Statement.model_validate(signed.content() | {"at": "2027-01-01T00:00:00.000+00:00"})
    forged = Log(folder / FILE_NAME).append(replayed)
    publish(folder, forged)
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    client.set_tag(client.get_model_version("small", "1").run_id, "approved", shown(forged))


def remove_another_file(folder: Path) -> None:
    """Remove a file with the record of another one's removal."""
    remove_files(folder / RUN, ROLLOUTS, "Space.")
    log = folder / RUN / "tracking/removed.jsonl"
    log.write_text(log.read_text().replace(ROLLOUTS, SCORES))
    (folder / RUN / SCORES).unlink()


APPROVAL = "approval of small/1"
ALIAS, TAG = "MLflow model small: alias approved", "MLflow model small/1: tag approved"
DECISIONS: dict[str, Attack] = {
    "approved": (approve_signed, set()),
    "approval forged": (forge_approval, {("added", ALIAS), ("added", TAG)}),
    "approval signed by another key": (approve_with_another_key, {("altered", APPROVAL)}),
    "approval with a signature of another": (forge_signed_approval, {("altered", APPROVAL)}),
    "file removed on record": (lambda folder: remove_files(folder / RUN, ROLLOUTS, "Space."), set()),
    "folder removed on record": (lambda folder: remove_files(folder / RUN, "warmup/model", "Space."), set()),
    "another file removed": (remove_another_file, {("missing", SCORES)}),
    "run removed on record": (lambda folder: remove_run(folder / RUN, "Failed."), set()),
    "run removed off record": (lambda folder: shutil.rmtree(folder / RUN), {("missing", "run directory")}),
}


@pytest.mark.parametrize("attack", [*FILES, *DECISIONS])
def test_attack_on_files_and_decisions_is_named_and_nothing_else(folder: Path, original: Path, attack: str) -> None:
    do, expected = {**FILES, **DECISIONS}[attack]
    do(folder)
    assert found(folder, original) == expected


@pytest.mark.parametrize("attack", DATABASE)
def test_edit_of_mlflows_database_is_named_and_nothing_else(folder: Path, original: Path, attack: str) -> None:
    statement, expected = DATABASE[attack]
    execute(folder, statement)
    assert found(folder, original) == expected


def test_rewritten_run_is_found_by_the_log_and_a_rewritten_log_by_a_checkpoint(
    folder: Path, original: Path, rewritten: Path
) -> None:
    shutil.rmtree(folder)
    shutil.copytree(rewritten, folder)
    shutil.copyfile(original / FILE_NAME, folder / FILE_NAME)
    assert found(folder, original) == {("altered", "manifest.jsonl")}
    (folder / FILE_NAME).unlink()
    send_end(folder / RUN)
    assert found(folder, original) == {("altered", "log")}
    assert found(folder, folder) == set(), "the rewritten log agrees with the rewritten run"
