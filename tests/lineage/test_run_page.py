"""The lineage page of a run: it follows its base models into other runs, and is an artifact of the run in MLflow."""

from __future__ import annotations

import shutil
from pathlib import Path

import mlflow
import pytest

from platform_sdk.lineage.page import build_run_page
from platform_sdk.tracking import finish_run
from platform_sdk.tracking.verify import verify_run
from tests.lineage.runs import BASE, write_dataset, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, a second run that begins with its model, and a third run on the same data."""
    root = tmp_path_factory.mktemp("pages")
    data = write_dataset(root / "data")
    model = write_run(root / "runs/first", data)
    write_run(root / "runs/second", data, base=model)
    write_run(root / "runs/third", data, base="f" * 64)
    return root / "runs"


def test_page_follows_the_base_model_into_the_run_that_trained_it(folder: Path) -> None:
    page = build_run_page(folder / "second")
    assert BASE in page
    assert "first: train-warmup" in page
    assert "third" not in page, "a run that only shares data is left out"
    assert "second" not in build_run_page(folder / "first")


def test_broken_manifest_of_another_run_does_not_prevent_the_page(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "runs"))
    (copied / "first/manifest.jsonl").write_text("{}\n")
    assert "first: train-warmup" not in build_run_page(copied / "second")


def test_page_is_an_artifact_of_the_run_and_verify_accepts_it_until_it_is_changed(folder: Path) -> None:
    run_dir = folder / "second"
    page = build_run_page(run_dir)
    (run_dir / "lineage.html").write_text(page)
    run_id = finish_run(run_dir, "FINISHED")
    assert build_run_page(run_dir) == page, "the end of the run changes nothing"
    assert verify_run(run_dir).findings == ()
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    assert "lineage.html" in {file.path for file in client.list_artifacts(run_id)}
    [stored] = folder.glob("mlartifacts/*/*/artifacts/lineage.html")
    stored.write_text(page.replace("first", "third"))
    [finding] = verify_run(run_dir).findings
    assert (finding.kind, finding.thing) == ("altered", "MLflow run second: artifact lineage.html")
    stored.write_text(page)
    (run_dir / "lineage.html").write_text(page.replace("first", "third"))
    [finding] = verify_run(run_dir).findings
    assert (finding.kind, finding.thing) == ("altered", "lineage.html")
