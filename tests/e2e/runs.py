"""Runs of whole recipes: as a user starts them, and with the steps in this process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

from platform_sdk.config.recipe import load_recipe
from platform_sdk.execution import runs
from platform_sdk.execution.runs import execute
from platform_sdk.execution.worker import Request, Result, run_task
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.tracking.verify import verify_run

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "pipelines/mygo"
Overrides = Mapping[str, Any]
TINY_START: dict[str, Any] = {
    "retrieval.threads": 1,
    "dataset.world.entities": 60,
    "dataset.world.hops": [1, 2],
    "dataset.world.train_questions": 30,
    "dataset.world.eval_questions": 4,
    "warmup.trajectories": 6,
    "warmup.attempts": 1,
    "warmup.training.batch_size": 8,
}
"""A small world and a short warm-up, for whatever trains Mujica."""
TINY_MYGO: dict[str, Any] = {
    **TINY_START,
    "selection.questions": 6,
    "selection.attempts": 3,
    "selection.accepted": 1,
    "training.batch_size": 8,
    "iterations": 1,
}


def options(overrides: Overrides) -> list[str]:
    """``NAME=VALUE``, the value as JSON, which is YAML."""
    return [f"{name}={json.dumps(value)}" for name, value in overrides.items()]


def command(recipe: str, workdir: Path, overrides: Overrides) -> list[str]:
    """``hopforge run``, as a user types it."""
    changes = [part for option in options(overrides) for part in ("--set", option)]
    return [sys.executable, "-m", "platform_sdk.cli", "run", str(RECIPES / recipe), "--workdir", str(workdir), *changes]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run_here(recipe: str, workdir: Path, overrides: Overrides) -> Path:
    """Run a recipe with its steps in this process; nothing else is different. ``hopforge verify`` finds the run whole.

    A small run spends most of its time on starting Python and importing torch for each step.
    """
    loaded = load_recipe(RECIPES / recipe, options(overrides))
    with steps_here():
        execute(loaded, workdir)
    assert [str(finding) for finding in verify_run(workdir).findings] == []
    return workdir


def steps_here() -> AbstractContextManager[object]:
    """Let steps run in this process, where a run would fork one for each."""

    @contextmanager
    def in_process(run_dir: Path, lock: TextIO) -> Iterator[InProcess]:
        yield InProcess()

    return mock.patch.object(runs, "warm_worker", in_process)


class InProcess:
    """Runs each task in this process; its errors go to its log."""

    def run(self, request: Request, heard: Callable[[str], None]) -> Result:
        with request.log.open("a", encoding="utf-8") as log, redirect_stderr(log):
            result = run_task(request.component, request.inputs, request.settings)
        return result.model_copy(update={"code": 0 if result.outputs is not None else 1})


def rollouts(workdir: Path, phase: str, name: str = "rollouts") -> list[Rollout]:
    return list(read_jsonl(workdir / phase / f"{name}.jsonl", Rollout))


def content(workdir: Path, phase: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((workdir / phase / f"{name}.json").read_text(encoding="utf-8"))
    return found
