"""Verification of a registered model without its run directory, the tag ``verified``, and the outcome on a report."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.methods.verify_export import verify_export
from platform_sdk.sampling.models import resolve
from platform_sdk.sampling.pairs import policy_digest
from platform_sdk.tracking import manifest
from platform_sdk.tracking.findings import Verification
from platform_sdk.tracking.log.chain import FILE_NAME
from platform_sdk.tracking.verify import verify_run, verify_target
from platform_sdk.tracking.verify_log import LogCheck
from tests.tracking.small_run import RUN, SCORES, TRAINED

ABSENT = ("not checkable", "run directory")


def of_model(folder: Path) -> Verification:
    [result] = verify_target("small/1", folder)
    return result


def found(result: Verification) -> set[tuple[str, str]]:
    return {(finding.kind, finding.thing) for finding in result.findings}


def execute(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "mlflow.db") as database:
        assert database.execute(statement).rowcount > 0
    database.close()


def overwrite(pattern: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def attack(folder: Path) -> None:
        [path] = folder.glob(f"mlartifacts/**/artifacts/{pattern}")
        content = path.read_bytes()
        assert old in content
        path.unlink()  # it may be a link to the run's file
        path.write_bytes(content.replace(old, new))

    return attack


def in_database(statement: str) -> Callable[[Path], None]:
    return lambda folder: execute(folder, statement)


def test_model_without_its_run_directory_is_checked_by_the_manifest_in_mlflow(folder: Path) -> None:
    head = manifest.read(folder / RUN)[-1].head
    shutil.rmtree(folder / RUN)
    result = of_model(folder)
    assert found(result) == {ABSENT}
    assert (result.run, result.head, result.finished, result.detects) == ("small/1", head, True, ("rewritten",))
    done = CliRunner().invoke(app, ["verify", "small@small", "--folder", str(folder)])
    assert done.exit_code == 3
    assert "small/1: not wholly checkable" in done.stdout


ATTACKS: dict[str, tuple[Callable[[Path], object], tuple[str, str]]] = {
    "weights": (
        overwrite("model.safetensors", b"weights", b"Weights"),
        ("altered", "MLflow model small-warmup: file model.safetensors"),
    ),
    "file of the model removed": (
        lambda folder: next(folder.glob("mlartifacts/**/artifacts/config.json")).unlink(),
        ("missing", "MLflow model small-warmup: file config.json"),
    ),
    "files of the model removed": (
        lambda folder: shutil.rmtree(next(folder.glob("mlartifacts/**/artifacts/config.json")).parent),
        ("missing", "MLflow model small-warmup: files"),
    ),
    "file added to the model": (
        lambda folder: next(folder.glob("mlartifacts/**/artifacts/config.json")).with_name("x.py").write_text("1"),
        ("added", "MLflow model small-warmup: file x.py"),
    ),
    "manifest": (
        overwrite("manifest.jsonl", b"step policy", b"step policf"),
        ("altered", "MLflow run small: artifact manifest.jsonl"),
    ),
    "manifest of random bytes": (
        overwrite("manifest.jsonl", b"{", bytes(range(128, 256))),
        ("altered", "MLflow run small: artifact manifest.jsonl"),
    ),
    "manifest removed": (
        lambda folder: next(folder.glob("mlartifacts/**/artifacts/manifest.jsonl")).unlink(),
        ("missing", "MLflow run small: artifact manifest.jsonl"),
    ),
    "recipe": (overwrite("recipe.json", b"3", b"4"), ("altered", "MLflow run small: artifact recipe.json")),
    "report": (overwrite("report.html", b"50.0", b"90.0"), ("altered", "MLflow run small: artifact report.html")),
    "scores": (
        overwrite("eval-final/scores.json", b'"value": 0.5', b'"value": 0.9'),
        ("altered", "MLflow run small/eval-final: artifact eval-final/scores.json"),
    ),
    "head of the run": (
        in_database("UPDATE tags SET value = '0:' || substr(value, 3) WHERE key = 'manifest_head'"),
        ("altered", "MLflow run small: tag manifest_head"),
    ),
    "head of the version": (
        in_database("UPDATE model_version_tags SET value = '0:' || substr(value, 3) WHERE key = 'manifest_head'"),
        ("altered", "MLflow model small/1: tag manifest_head"),
    ),
    "weights of the version": (
        in_database("UPDATE model_version_tags SET value = 'other' WHERE key = 'weights'"),
        ("altered", "MLflow model small/1: tag weights"),
    ),
    "approval": (
        in_database("UPDATE registered_model_aliases SET alias = 'approved'"),
        ("added", "MLflow model small: alias approved"),
    ),
    "run deleted": (
        in_database("UPDATE runs SET lifecycle_stage = 'deleted' WHERE name = 'small'"),
        ("missing", "MLflow run"),
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_on_a_model_without_its_run_directory_is_named_and_nothing_else(folder: Path, attack: str) -> None:
    do, (kind, thing) = ATTACKS[attack]
    shutil.rmtree(folder / RUN)
    do(folder)
    others = found(of_model(folder)) - {ABSENT}
    assert {(kind, name.rpartition(" ")[0] if attack == "run deleted" else name) for kind, name in others} == {
        (kind, thing)
    }


def test_model_of_a_rewritten_run_is_found_by_the_log(folder: Path, original: Path, rewritten: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(rewritten, folder)
    shutil.copyfile(original / FILE_NAME, folder / FILE_NAME)
    shutil.rmtree(folder / RUN)
    assert found(of_model(folder)) == {ABSENT, ("altered", "manifest.jsonl")}


def test_recorded_verification_is_a_tag_of_the_run_and_its_versions_and_no_alteration(folder: Path) -> None:
    done = CliRunner().invoke(app, ["verify", str(folder), "--record"])
    assert done.exit_code == 0, done.output
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    version = client.get_model_version("small", "1")
    tag = client.get_run(version.run_id).data.tags["verified"]
    head = manifest.read(folder / RUN)[-1].head
    assert tag.startswith(f"whole, head {head}, 20")
    assert version.tags["verified"] == tag
    assert verify_run(folder / RUN).findings == ()
    (folder / RUN / SCORES).write_text("{}")
    assert CliRunner().invoke(app, ["verify", RUN, "--folder", str(folder), "--record"]).exit_code == 1
    assert client.get_run(version.run_id).data.tags["verified"].startswith("differs from its records, head ")


def test_report_shows_the_outcome_of_verify_and_its_time_or_nothing(folder: Path) -> None:
    page = folder / "page.html"
    command = ["report", str(folder / RUN), "-o", str(page)]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert "verified" not in page.read_text()
    assert CliRunner().invoke(app, [*command, "--verify"]).exit_code == 0
    assert "<dt>verified</dt>" in page.read_text()
    assert "whole, 20" in page.read_text()
    execute(folder, "UPDATE latest_metrics SET value = 0.99 WHERE key = 'eval-final/em'")
    assert CliRunner().invoke(app, [*command, "--verify"]).exit_code == 0
    assert "differs from its records, 20" in page.read_text()
    assert "MLflow run small: metric eval-final/em: altered" in page.read_text()


def test_sealed_page_of_a_finished_run_is_not_replaced_by_another(folder: Path) -> None:
    before = (folder / RUN / "report.html").read_bytes()
    done = CliRunner().invoke(app, ["report", str(folder / RUN)])
    assert isinstance(done.exception, UserError)
    assert "write it to another file with -o" in str(done.exception)
    assert (folder / RUN / "report.html").read_bytes() == before


@pytest.mark.parametrize("altered", [False, True])
def test_export_of_the_model_before_training_is_not_altered_without_its_run(
    folder: Path, tmp_path: Path, altered: bool
) -> None:
    """The log has the digest of the weights trained last only."""
    head = manifest.read(folder / RUN)[-1].head
    exported, log = tmp_path / "exported", tmp_path / "elsewhere"
    log.mkdir()
    shutil.copy(folder / FILE_NAME, log)
    shutil.copytree(resolve("hopforge:world-base"), exported)
    weights = TRAINED if altered else policy_digest(exported)
    (exported / "README.md").write_text(f"| weights | `{weights}` |\n| manifest's head | `{head}` |\n")
    [own] = verify_export(exported, LogCheck(log), log)
    assert {(finding.kind, finding.thing) for finding in own.findings} >= {
        ("altered" if altered else "not checkable", "weights")
    }
