from __future__ import annotations

import io
import os
import pty
import time
from pathlib import Path
from typing import Any

import pyte
import pytest

from platform_sdk.cli import progress
from platform_sdk.cli.progress import Progress, print_outcome
from platform_sdk.cli.step_output import StepOutput
from platform_sdk.execution.runs import Outcome

SHOWN = ["em", "f1", "judge", "evidence_recall", "well_formed", "turns"]


def evaluation(phase: str, **metrics: float) -> dict[str, Any]:
    spans = {name: {"value": value, "low": value - 0.05, "high": value + 0.05} for name, value in metrics.items()}
    return {"phase": phase, "n": 200, "shown": SHOWN, "metrics": spans}


def test_each_evaluation_is_a_row_and_a_metric_may_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = [
        evaluation("eval-start", em=0.25, f1=0.25, evidence_recall=0.5, well_formed=0.9, turns=3.0),
        evaluation("eval-u0010", em=0.4),
        evaluation("eval-final", em=0.525, f1=0.53, evidence_recall=0.6, well_formed=0.95, turns=1.0),
    ]
    print_outcome(Outcome(str(tmp_path), found, {}, None, "sqlite:///x.db"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    values = {line[0]: line[1:] for line in lines if line and line[0].startswith("eval-")}
    assert values == {
        "eval-start": ["200", "25.0", "25.0", "50.0", "90.0", "3.00"],
        "eval-u0010": ["200", "40.0", "–", "–", "–", "–"],
        "eval-final": ["200", "52.5", "53.0", "60.0", "95.0", "1.00"],
    }
    assert ["47.5–57.5", "48.0–58.0", "55.0–65.0", "90.0–100.0", "0.95–1.05"] in lines


@pytest.mark.parametrize(
    ("uri", "line"),
    [
        ("sqlite:////runs/mlflow.db", "MLflow:  mlflow ui --backend-store-uri sqlite:////runs/mlflow.db"),
        ("http://mlflow.hopforge-services:5000", "MLflow:  http://mlflow.hopforge-services:5000"),
    ],
)
def test_outcome_names_the_mlflow_server_or_the_command_that_starts_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], uri: str, line: str
) -> None:
    print_outcome(Outcome(str(tmp_path), [], {}, None, uri))
    assert line in capsys.readouterr().out.splitlines()


def test_warning_of_a_task_is_shown_in_the_format_of_the_worker() -> None:
    output = StepOutput()
    output.read("WARNING: the retriever does not answer; trying again")
    assert str(output) == "the retriever does not answer; trying again"


# What KFP, tqdm and libraries write; tqdm's carriage returns have become line ends.
LINES = """\
[KFP Executor 2026-01-02 03:04:05,678 INFO]: Looking for component `train` in --component_module_path `/tmp/x.py`
[KFP Executor 2026-01-02 03:04:05,679 INFO]: Got executor_input:
{
    "inputs": {
        "parameterValues": {
            "share": " 50%|#####     | 5/10 [00:01<00:01,  1.00step/s]"
        }
    }
}
Loading weights: 100%|██████████| 80/80 [00:00<00:00, 12720.13it/s]

training:   0%|          | 0/8 [00:00<?, ?step/s]
training:  25%|██▌       | 2/8 [00:06<00:19,  3.16s/step, loss=0.0364]
\x1b[AWriting model shards: 100%|██████████| 1/1 [00:00<00:00,  7.92it/s]
""".splitlines()
SEEN = "2 of 8 steps, 3.16 s each, 00:19 left, loss 0.0364"


def test_a_bar_becomes_a_counter_and_what_libraries_write_is_left_to_the_log() -> None:
    output = StepOutput()
    for line in LINES:
        output.read(line)
    assert str(output) == SEEN
    output.read("eval-final: 100%|██████████| 24/24 [00:08<00:00,  2.91rollout/s, em=0.458]")
    assert str(output) == "24 of 24 rollouts, em 0.458"
    output.read("[KFP Executor 2026-01-02 03:04:09,000 WARNING]: the retriever does not answer; trying again")
    assert str(output) == "24 of 24 rollouts, em 0.458 · the retriever does not answer; trying again"


def test_log_of_a_long_step_has_a_line_a_minute_and_never_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "MINUTE", 0.02)
    out = io.StringIO()

    def wait_for(text: str) -> None:
        end = time.monotonic() + 30
        while text not in out.getvalue():
            assert time.monotonic() < end, out.getvalue()
            time.sleep(0.01)

    warning = "the retriever at http://retriever.hopforge-services:8080 does not answer; " * 3 + "trying again"
    with Progress("long", tmp_path, 1, out) as shown:
        shown.started("eval-final")
        wait_for(" s: running\n")
        shown.said("eval-final", f"WARNING: {warning}")
        wait_for(f" s: {warning}\n")


def test_the_screen_of_a_terminal_has_the_steps_and_one_line_for_the_running_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    leader, follower = pty.openpty()
    screen = pyte.Screen(80, 12)
    stream = pyte.ByteStream(screen)
    frames = []

    def look() -> list[str]:
        time.sleep(0.4)  # longer than between two drawings
        stream.feed(os.read(leader, 1 << 20))
        frames.append([" ".join(line.split()) for line in screen.display if line.strip()])
        return frames[-1]

    with os.fdopen(follower, "w") as out:
        progress = Progress("arena-world", Path("runs/arena-world"), 12, out)
        with progress:
            progress.started("corpus")
            progress.finished("corpus", 1.25)
            progress.started("train-01")
            for line in LINES:
                progress.said("train-01", line)
                look()
            running = look()
            progress.stopping("train-01")
            stopping = look()
            progress.failed("train-01", 125.0)
        last = look()
    os.close(leader)
    head, first = "arena-world in runs/arena-world: 12 steps", "✓ 1/12 corpus 1.2 s"
    assert running[:2] == [head, first]
    assert running[2].endswith(SEEN)
    assert "2/12 train-01 0:" in running[2]
    assert "stopping …" in stopping[2]
    assert last[:3] == [head, first, "✗ 2/12 train-01 2 min 05 s"]
    assert not any("}" in line or "KFP" in line or "Writing" in line for frame in frames for line in frame)
    assert all(len(frame) <= 3 for frame in frames[:-1])  # one line for the running step, whatever it writes


def test_progress_without_a_terminal_prints_at_start_each_minute_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MINUTE", 0.05)
    out = io.StringIO()
    with Progress("x", Path("runs/x"), 1, out) as told:
        told.started("train-01")
        for line in LINES:
            told.said("train-01", line)
        deadline = time.monotonic() + 20
        while SEEN not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
        told.finished("train-01", 3.0)
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["x in runs/x: 1 step", "  1/1  train-01 begins"]
    assert any(line.startswith("  1/1  train-01, 0.") and line.endswith(SEEN) for line in lines)
    assert lines[-2].split() == ["✓", "1/1", "train-01", "3.0", "s"]
    assert lines[-1].startswith("finished in ")


def test_quiet_option_prints_nothing() -> None:
    with Progress("x", Path("runs/x"), 1, None) as told:
        told.started("train-01")
        told.finished("train-01", 3.0)
    assert told.console.quiet
