"""``hopforge verify DIRECTORY``: an exported model is compared with its run, or with the log if the run is not here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.tracking import manifest
from platform_sdk.tracking.log.chain import FILE_NAME, Log, Statement
from tests.methods.finished_run import finished_run, seal_run
from tests.methods.test_model_export import SCORES

Found = set[tuple[str, str]]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and the model that it exported."""
    folder = tmp_path_factory.mktemp("runs")
    run_dir = finished_run(folder, "arena")
    (run_dir / "eval-final/scores.json").write_text(json.dumps(SCORES))
    seal_run(run_dir)
    done = CliRunner().invoke(app, ["export", str(run_dir), "-o", str(folder / "model")])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MLFLOW_TRACKING_URI", "HOPFORGE_LOG"):
        monkeypatch.delenv(name, raising=False)
    return Path(shutil.copytree(original, tmp_path / "copied"))


def found(folder: Path, runs: Path) -> tuple[int, Found]:
    """Return the exit status of ``hopforge verify`` and the findings in the exported directory."""
    done = CliRunner().invoke(app, ["verify", str(folder / "model"), "--folder", str(runs), "--json"])
    first = json.loads(done.stdout)["runs"][0]
    assert first["run"] == str(folder / "model")
    return done.exit_code, {(one["kind"], one["thing"]) for one in first["findings"]}


def test_exported_directory_agrees_with_its_run(folder: Path) -> None:
    assert found(folder, folder)[1] == set()


def test_every_alteration_of_an_exported_directory_is_named(folder: Path) -> None:
    model = folder / "model"
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    card = model / "README.md"
    card.write_text(card.read_text().replace("| em | 50.0", "| em | 90.0"))
    (model / "config.json").unlink()
    (model / "notes.txt").write_text("added")
    assert found(folder, folder) == (
        1,
        {
            ("altered", "model.safetensors"),
            ("altered", "README.md"),
            ("missing", "config.json"),
            ("added", "notes.txt"),
        },
    )


def test_weights_are_compared_with_the_log_without_the_run(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert found(folder, elsewhere) == (3, {("not checkable", "model")})
    entries = manifest.read(folder / "arena")
    card = (folder / "model/README.md").read_text()
    weights = card.partition("| weights | `")[2].partition("`")[0]
    Log(elsewhere / FILE_NAME).append(
        Statement(event="run ended", run="/far/arena", start=entries[0].hash, head=entries[-1].head, weights=weights)
    )
    assert found(folder, elsewhere) == (3, {("not checkable", "files other than the weights")})
    path = folder / "model/model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert found(folder, elsewhere) == (1, {("altered", "weights")})
    path.unlink()
    assert found(folder, elsewhere) == (1, {("altered", "weights")})
