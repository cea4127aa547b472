"""A run as ``hopforge watch`` shows it on a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

pytest.importorskip("kfp.kubernetes", reason="the extra [cluster] is not installed")

from rich.console import Console
from rich.live import Live

from platform_sdk.cli.run_table import RunTable
from platform_sdk.kubeflow.remote.jobs import JobState
from platform_sdk.kubeflow.remote.pods import StepState
from platform_sdk.kubeflow.remote.state import RunState

NAMES = [f"step-{number:02d}" for number in range(69)]


def run(states: dict[str, str], jobs: Sequence[JobState] = (), unseen: str = "") -> RunState:
    """A run of 69 steps, pending unless said otherwise."""
    steps = tuple(StepState(name, states.get(name, "PENDING")) for name in NAMES)
    return RunState("id", "long-run", "RUNNING", steps=steps, jobs=tuple(jobs), unseen=unseen)


def halfway() -> dict[str, str]:
    states = dict.fromkeys(NAMES[:40], "SUCCEEDED")
    return states | {"step-05": "FAILED", "step-40": "RUNNING", "step-41": "RUNNING"}


def shown(state: RunState, height: int, width: int = 80, *, whole: bool = False) -> list[str]:
    """Return the content of the terminal while the run is watched."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)
    with Live(console=console, auto_refresh=False) as live:
        live.update(RunTable(state, whole=whole), refresh=True)
        file = console.file
        assert isinstance(file, io.StringIO)
        return [line.rstrip() for line in file.getvalue().replace("\x1b[?25l", "").splitlines()]


@pytest.mark.parametrize("height", [12, 24, 50])
def test_table_shows_failed_and_active_steps_within_any_height(height: int) -> None:
    jobs = [JobState("PyTorchJob", f"j-{step}", step, "Queued", "needs 8 GPUs") for step in ("step-40", "step-41")]
    lines = shown(run(halfway(), jobs, "TrainJobs are not shown"), height)
    assert len(lines) <= height
    assert "…" not in "".join(lines)
    text = "\n".join(lines)
    assert "✗  step-05" in text
    assert text.count("needs 8 GPUs") == 2
    assert "TrainJobs are not shown" in text
    seen = [name for name in NAMES if name in text]
    assert {"step-05", "step-40", "step-41", "step-39"} <= set(seen)  # the last that is done, too
    counts = {line.split()[-1]: int(line.split()[-3]) for line in lines if " steps" in line}
    assert counts["succeeded"] + counts["pending"] + len(seen) == 69
    middle = seen[1:]  # nothing between the first and the last shown is left out
    assert middle == NAMES[NAMES.index(middle[0]) : NAMES.index(middle[-1]) + 1]


def test_table_shows_all_steps_if_they_fit_or_the_run_has_ended() -> None:
    states = halfway()
    assert sum("step-" in line for line in shown(run(states), 80)) == 69
    done = [JobState("PyTorchJob", f"j-{step}", step, "Succeeded", "") for step in NAMES[:30]]
    assert sum("step-" in line for line in shown(run(states, done), 80)) == 69  # rather than what they have done
    assert "step-68" not in "\n".join(shown(run(states), 24))
    final = RunTable(run(dict.fromkeys(NAMES, "SUCCEEDED")), whole=True)
    console = Console(file=io.StringIO(), width=80, height=24)
    console.print(final)
    file = console.file
    assert isinstance(file, io.StringIO)
    assert file.getvalue().count("step-") == 69


def test_long_reasons_are_cut_before_steps_are() -> None:
    reason = "couldn't assign flavors to pod set worker: insufficient quota for nvidia.com/gpu " * 5
    jobs = [JobState("PyTorchJob", "j", step, "Queued", reason) for step in ("step-40", "step-41")]
    lines = shown(run(halfway(), jobs), 14)
    assert len(lines) <= 14
    for step in ("step-05", "step-40", "step-41"):
        assert any(step in line for line in lines)
    assert sum("couldn't" in line for line in lines) == 2


def test_jobs_of_one_step_are_shown_under_it_with_their_progress() -> None:
    states = {NAMES[0]: "SUCCEEDED", NAMES[1]: "RUNNING"}
    parts = [f"{verb}-iteration-{number:02d}" for number in range(1, 21) for verb in ("sample", "train")]
    done = [JobState("PyTorchJob", f"j-{part}", NAMES[1], "Succeeded", "", part) for part in parts[:17]]
    running = JobState("PyTorchJob", "j", NAMES[1], "Running", "1 of 1 pods run", parts[17])
    lines = [" ".join(line.split()) for line in shown(run(states, [*done, running]), 30)]
    place = next(number for number, line in enumerate(lines) if NAMES[1] in line)
    assert lines[place + 1 : place + 3] == [
        "17 jobs Succeeded last: sample-iteration-09",
        "train-iteration-09 Running 1 of 1 pods run",
    ]


def test_reason_of_a_failed_step_is_shown_in_its_row() -> None:
    state = RunState("id", "r", "FAILED", steps=(StepState("make", "FAILED", 61.0, "the data are wrong"),))
    [line] = [" ".join(line.split()) for line in shown(state, 30, 120) if "make" in line]
    assert line == "✗ make failed 61 s: the data are wrong"
