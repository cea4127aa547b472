"""Several processes of one step: the message when one fails, and that none is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.processes.launch import run_processes
from tests.process_watch import alive, wait_for

ROOT = Path(__file__).parents[2]
MODULE = "tests.processes.launched"


def specification(folder: Path, *acts: str) -> Path:
    path = folder / "spec.json"
    path.write_text(json.dumps({str(rank): act for rank, act in enumerate(acts)}))
    return path


def test_finished_processes_restore_the_signal_handlers(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run_processes(MODULE, specification(tmp_path, "", ""), 2)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["0.pid", "1.pid", "spec.json"]


@pytest.mark.parametrize(
    ("acts", "says"),
    [
        (("wait", "refuse"), "the setting is wrong;\nmend it"),
        (("stumble", "wait"), "process 0 of 2: ZeroDivisionError: a bug"),
        (("wait", "vanish"), "process 1 of 2: ended by SIGKILL; its last lines:\n  the last words"),
    ],
    ids=["told", "bug", "killed"],
)
def test_a_failure_is_one_clear_error(tmp_path: Path, acts: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError) as caught:
        run_processes(MODULE, specification(tmp_path, *acts), len(acts))
    assert str(caught.value) == says
    assert not any(alive(int(path.read_text())) for path in tmp_path.glob("[!.]*.pid"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_the_processes_end_with_their_launcher(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import sys; from pathlib import Path; from platform_sdk.processes.launch import run_processes; "
        f"run_processes({MODULE!r}, Path(sys.argv[1]), 2)"
    )
    command = [sys.executable, "-c", code, str(specification(tmp_path, "wait", "wait"))]
    launcher = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(list(tmp_path.glob("[!.]*.pid"))) == 2)
    workers = [int(path.read_text()) for path in tmp_path.glob("[!.]*.pid")]
    assert all(map(alive, workers))
    launcher.send_signal(number)
    _, errors = launcher.communicate(timeout=60)
    wait_for(lambda: not any(map(alive, workers)))
    assert launcher.returncode != 0
    if number != signal.SIGKILL:
        assert errors.rstrip().endswith("KeyboardInterrupt")


def test_process_without_its_launcher_does_nothing(tmp_path: Path) -> None:
    """The launcher may be killed before a process that it started has come to ask for its end."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "--spec", str(specification(tmp_path, "")), "--launcher", str(gone.pid)],
        cwd=ROOT, env={**os.environ, "RANK": "0"}, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "0.pid").exists()
