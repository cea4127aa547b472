"""The package as users install it: from a wheel, in a path with ``python3``, spaces and other letters than English."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import ROOT, TINY_MYGO, content, options

pytestmark = [pytest.mark.e2e, pytest.mark.slow]  # tests/kubeflow/test_local.py runs steps in such a path
PACKAGED = (
    "platform_sdk",
    "components",
    "examples/programs",
    "manifests",
    "pipelines",
    "studies",
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of an awkward name with hopforge in its ``venv``; the dependencies are this environment's."""
    place = tmp_path_factory.mktemp("installed")
    source, home = place / "source", place / "lib python3 Übung"
    source.mkdir()
    for name in PACKAGED:
        path = ROOT / name
        copy = shutil.copytree if path.is_dir() else shutil.copy2
        (source / name).parent.mkdir(exist_ok=True)
        copy(path, source / name)
    venv.create(home / "venv", symlinks=True)
    (packages,) = home.glob("venv/lib/python3*/site-packages")
    # A plain path: the files in it that would install this checkout are not read.
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", place, source], check=True)
    (wheel,) = place.glob("*.whl")
    # Without PYTHONPATH: in a checkout on it, pip would find hopforge installed already.
    command = [*pip, "--python", home / "venv/bin/python", "install", *offline, wheel]
    subprocess.run(command, env=environment(), check=True)
    return home


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}


def hopforge(home: Path, *arguments: object) -> str:
    """Call the installed command from a folder that holds nothing of the project; returns what it printed."""
    elsewhere = home / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    done = subprocess.run(
        [home / "venv/bin/hopforge", *map(str, arguments)],
        cwd=elsewhere, env=environment(), capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not any(elsewhere.iterdir())
    return done.stdout


def run(home: Path, recipe: str, changes: dict[str, Any]) -> Path:
    workdir = home / f"runs/{Path(recipe).stem}"
    sets = [part for option in options(changes) for part in ("--set", option)]
    printed = hopforge(home, "run", recipe, "--workdir", workdir, *sets)
    assert f"'sqlite:///{workdir.parent}/mlflow.db'" in printed, "the command for the UI can be pasted into a shell"
    assert "em" in printed.lower()
    assert "report.html" in printed
    return workdir


def test_a_shipped_recipe_runs_with_a_shipped_model(home: Path) -> None:
    """The model's path contains ``python3`` wherever the package is installed, and is an argument of steps."""
    changes = {
        "dataset": {
            "format": "world",
            "world": {"entities": 60, "train_questions": 4, "eval_questions": 4, "hops": [1], "context": 4},
        },
        "model": "hopforge:world-base-arena",
        "agent": {"form": "direct", "prompts": "compact", "max_tokens": 8},
        "sampling.engine": {"engine": "transformers", "threads": 1},
    }
    done = run(home, "pipelines/arena-baselines/direct-rag-qwen2.5-7b.yaml", changes)
    assert content(done, "eval-start", "scores")["n"] == 4
    assert (done / "report.html").stat().st_size > 0


def test_installed_demo_recipe_runs_with_small_settings(home: Path) -> None:
    done = run(home, "pipelines/mygo/world.yaml", TINY_MYGO)
    assert content(done, "eval-final", "scores")["n"] == TINY_MYGO["dataset.world.eval_questions"]


def test_installed_recipe_of_a_program_finds_the_shipped_program(home: Path) -> None:
    assert "ok" in hopforge(home, "validate", "pipelines/program/world.yaml")
    shipped = next(home.glob("venv/lib/python3*/site-packages/platform_sdk/shipped/examples/programs"))
    assert {path.name for path in (ROOT / "examples/programs").glob("*.py")} <= {
        path.name for path in shipped.iterdir()
    }
    assert not list(shipped.rglob("node_modules"))
