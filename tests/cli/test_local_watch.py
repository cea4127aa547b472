"""A run on this machine watched from another terminal."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.commands import command_line
from tests.e2e.runs import ROOT
from tests.kubeflow.toy import write_toy
from tests.process_watch import wait_for


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command_line(*arguments), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_watch_ends_with_the_run_and_an_interrupt_ends_only_the_watch(tmp_path: Path) -> None:
    recipe, run_dir = write_toy(tmp_path), tmp_path / "run"
    running = start("run", recipe, "--workdir", run_dir, "--set", "mode=slow", "--quiet")
    wait_for((run_dir / "pid").is_file, seconds=60)  # of its first step, which then sleeps
    watching = start("watch", run_dir, "--json")
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline()) == {"step": "make", "state": "RUNNING"}
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=60)
    assert (watching.returncode, told) == (130, "stopped watching; the run continues\n")
    assert running.poll() is None

    watching = start("watch", run_dir)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) == 130
    _, told = watching.communicate(timeout=60)
    assert (watching.returncode, told) == (3, f"the run was stopped; see hopforge logs {run_dir}\n")


@pytest.mark.slow  # each run of four steps is ten seconds
def test_watch_of_an_ended_run_prints_every_step(tmp_path: Path) -> None:
    recipe, run_dir = write_toy(tmp_path), tmp_path / "run"
    assert start("run", recipe, "--workdir", run_dir, "--quiet").wait(timeout=120) == 0
    shown, _ = (watching := start("watch", run_dir)).communicate(timeout=60)
    assert watching.returncode == 0
    steps = [line.split()[1:3] for line in shown.splitlines() if line.startswith("✓")]
    assert steps == [["1/4", "make"], ["2/4", "use-01"], ["3/4", "use-02"], ["4/4", "last"]]
    assert "MLflow:" in shown

    failed = tmp_path / "failed"
    assert start("run", recipe, "--workdir", failed, "--set", "mode=bug", "--quiet").wait(timeout=120) == 2
    watching = start("watch", failed, "--json")
    lines = [json.loads(line) for line in watching.communicate(timeout=60)[0].splitlines()]
    assert [line["state"] for line in lines] == ["RUNNING", "FAILED", "FAILED"]
    assert watching.returncode == 1
