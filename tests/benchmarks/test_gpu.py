"""The GPU benchmarks with a tiny model on a CPU: each runs to its end and writes what it prints."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import model
from benchmarks.gpu.harness import MODELS
from benchmarks.gpu.model import Card, predicted_mfu, step_time
from platform_sdk.sizing.shape import shape_of


@pytest.mark.parametrize("name", ["attention", "sft", "logprobs", "weights", "rollouts", "grpo"])
def test_a_dry_run_writes_its_table(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "outcome.json"
    monkeypatch.setattr(sys, "argv", [name, "--dry-run", "--json", str(path)])
    runpy.run_module(f"benchmarks.gpu.{name}", run_name="__main__")
    [row] = json.loads(path.read_text())["rows"]
    assert row["model"] == "tiny"
    assert row["ratio"] > 0
    head = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("model"))
    assert all(column in head for column in row)


def test_a_step_is_predicted_by_hand() -> None:
    """A step's MFU is 1 with products at the whole peak and nothing else."""
    card = Card(peak=1e12, bandwidth=1e30)
    shape = shape_of(MODELS["3B"])
    step = {"tokens": 4096, "learned": 0, "length": 1, "micro_batch": 4096}
    time = step_time(shape, card, **step)
    assert time.products == pytest.approx(6 * shape.body * 4096 / (model.PRODUCTS * 1e12))
    assert time.total == pytest.approx(time.products + time.attention)
    assert predicted_mfu(shape, card, **step) < model.PRODUCTS
    slow = step_time(shape, Card(1e12, 1e9), **step)
    assert slow.weights == pytest.approx(shape.parameters * (28 + 20) / 1e9)


def test_sizes_are_those_that_the_names_say() -> None:
    sizes = {name: shape_of(config).parameters / 1e9 for name, config in MODELS.items()}
    assert sizes["135M"] == pytest.approx(0.135, abs=0.001)
    assert sizes["0.6B"] == pytest.approx(0.6, abs=0.01)
    assert sizes["3B"] == pytest.approx(3.1, abs=0.05)
    assert sizes["7B/8"] == pytest.approx(8 * 0.2331 + 2 * 0.545, abs=0.01)
