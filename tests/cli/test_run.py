"""The commands on the toy pipeline, each in a process of its own, as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kfp import components

from tests.kubeflow.toy import write_toy

HOME = Path(__file__).parents[2]


def hopforge(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "platform_sdk.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=HOME, capture_output=True, text=True)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_toy(tmp_path)


def test_run(recipe: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    failed = hopforge("run", recipe, "--workdir", run_dir, "--set", "mode=user-error")
    assert failed.returncode == 2
    assert "✗ 1/4  make" in failed.stdout
    assert failed.stderr.startswith("error: step make failed: the data are wrong;\nmend them\n(its whole log: ")
    other = hopforge("run", recipe, "--workdir", run_dir)
    assert other.returncode == 2
    assert 'parameters.mode: "user-error" → "well"' in other.stderr
    left = tmp_path / "other" / "warmup" / ".sample.json.host.7.tmp"  # by a process that was killed
    left.parent.mkdir(parents=True)
    left.touch()
    done = hopforge("run", recipe, "--workdir", tmp_path / "other")
    assert done.returncode == 0, done.stderr
    assert not left.exists()
    lines = done.stdout.splitlines()
    assert [line.split()[2] for line in lines if line.startswith("✓")] == ["make", "use-01", "use-02", "last"]
    assert f"mlflow ui --backend-store-uri sqlite:///{tmp_path}/mlflow.db" in done.stdout
    assert json.loads((tmp_path / "other" / "recipe.json").read_text())["parameters"]["rate"] == 0.5
    runs = json.loads(hopforge("runs", tmp_path, "--json").stdout)
    assert {run["name"]: run["status"] for run in runs} == {"run": "FAILED", "other": "FINISHED"}


def test_compile(recipe: Path, tmp_path: Path) -> None:
    done = hopforge("compile", recipe, "-o", tmp_path / "ir.yaml", "--set", "iterations=3")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/ir.yaml: 5 tasks\n")
    assert components.load_component_from_file(str(tmp_path / "ir.yaml"))


def test_validate(recipe: Path) -> None:
    good = hopforge("validate", recipe)
    assert (good.returncode, good.stdout) == (0, f"{recipe}: ok (toy, 4 tasks)\n")
    assert json.loads(hopforge("validate", recipe, "--json").stdout)["parameters"]["iterations"] == 2
    bad = hopforge("validate", recipe, "--set", "rate=2", "--set", "sede=1")
    assert bad.returncode == 2
    assert bad.stderr.splitlines() == [
        "error: 2 problems",
        "--set sede=1: sede: there is no such parameter; did you mean seed? "
        "known are iterations, mode, overlap, rate, seed, spec",
        "--set rate=2: rate: must be at most 1, but is 2",
    ]


def test_schema(recipe: Path) -> None:
    schema = json.loads(hopforge("schema", recipe.parent / "pipeline.yaml").stdout)
    assert schema["title"] == "Recipe of toy"
    assert "steps" in json.loads(hopforge("schema").stdout)["properties"]


def test_a_wrong_option_is_told(recipe: Path) -> None:
    done = hopforge("run", recipe, "--sett", "a=b")
    assert done.returncode == 2
    assert "No such option" in done.stderr
