"""A few of the random attacks of ``attacks.py``, the same ones each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.attacks import ALTERATIONS, COMMAND_LINES, Alteration, Shell, attack, opened_silently
from tests.methods.finished_run import finished_run


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
