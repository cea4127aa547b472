"""A few of the random attacks of ``attacks.py``, the same ones each time."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.files import storage_error
from tests.e2e.runs import ROOT
from tests.fuzz.attacks import ALTERATIONS, COMMAND_LINES, Alteration, Shell, attack, opened_silently
from tests.methods.finished_run import finished_run

WORLD = "pipelines/mygo/world.yaml"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory.mktemp("runs"), "mygo")


def test_altered_run_is_never_opened_silently(run_dir: Path) -> None:
    attack(ALTERATIONS, lambda drawn: opened_silently(run_dir, drawn), 300, None)


def test_odd_command_line_ends_in_time_without_a_traceback(run_dir: Path, tmp_path: Path) -> None:
    attack(COMMAND_LINES, Shell(run_dir, tmp_path).fault, 30, None)


def test_attack_on_a_file_without_a_seal_is_reported(run_dir: Path) -> None:
    path = run_dir / "eval-final/added.txt"
    path.write_text("not sealed")
    files = sorted(path for path in run_dir.rglob("*") if path.is_file() and path.stat().st_size)
    alteration = Alteration((files.index(path) + 0.5) / len(files), 0.5, "flip", b"\1")
    try:
        assert "eval-final/added.txt" in str(opened_silently(run_dir, [alteration]))
    finally:
        path.unlink()


@pytest.mark.parametrize(
    "arguments",
    [
        lambda run: ("compile", WORLD),
        lambda run: ("report", run),
        lambda run: ("compare", run, run),
        lambda run: ("export", run),
        lambda run: ("export", run, "--format", "messages"),
        lambda run: ("convert", ROOT / "README.md", "--from", "hotpotqa"),
        lambda run: ("study", "table", "studies/world-mygo.yaml", "--format", "csv"),
        lambda run: ("graph", "export", "--recipe", WORLD, "--workdir", run),
        lambda run: ("graph", "show", "x", "--recipe", WORLD, "--workdir", run),
    ],
)
def test_full_device_as_output_is_one_error(
    arguments: Callable[[Path], tuple[object, ...]], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, [*map(str, arguments(run_dir)), "-o", "/dev/full"])
    assert isinstance(done.exception, UserError) or (done.exception and storage_error(done.exception)), done.exception
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
