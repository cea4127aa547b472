"""The guard: the command's status, and the end of everything that the command started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process_watch import alive

HOME = Path(__file__).parents[2]
GUARD = [sys.executable, "-m", "platform_sdk.processes.guard"]


@pytest.mark.parametrize(("command", "status"), [("exit 7", 7), ("kill -KILL $$", 137)])
def test_the_guard_passes_the_status_on(command: str, status: int) -> None:
    assert subprocess.run([*GUARD, str(os.getpid()), "sh", "-c", command], cwd=HOME).returncode == status


def test_guard_without_its_owner_runs_nothing() -> None:
    """The one that started it may die before the guard has come to look."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert subprocess.run([*GUARD, str(gone.pid), "sleep", "60"], cwd=HOME).returncode == 1  # sleep's would be 0


def test_guard_ends_even_children_in_their_own_session(tmp_path: Path) -> None:
    """A child in a session of its own whose parent has ended: in no group and under no parent that could be told."""
    pid = tmp_path / "pid"
    escaped = (
        f"setsid sh -c 'echo $$ > {pid}.new && mv {pid}.new {pid} && exec sleep 60' & while [ ! -e {pid} ]; do :; done"
    )
    done = subprocess.run([*GUARD, str(os.getpid()), "sh", "-c", f"{escaped}; exit 3"], cwd=HOME, timeout=30)
    assert done.returncode == 3
    assert not alive(int(pid.read_text()))
