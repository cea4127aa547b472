"""Runs of whole recipes: as a user starts them, and with the steps in this process."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

from platform_sdk.config.recipe import load_recipe
from platform_sdk.kubeflow import local
from platform_sdk.kubeflow.runs import execute
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "pipelines/mygo"
Overrides = Mapping[str, Any]
TINY_START: dict[str, Any] = {
    "retrieval.threads": 1,
    "dataset.world.entities": 60,
    "dataset.world.train_questions": 30,
    "dataset.world.eval_questions": 6,
    "warmup.trajectories": 6,
    "warmup.attempts": 1,
    "warmup.training.batch_size": 8,
}
"""A small world and a short warm-up, for whatever trains Mujica."""
TINY_MYGO: dict[str, Any] = {
    **TINY_START,
    "selection.questions": 10,
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
    """Run a recipe through KFP with its steps in this process; nothing else is different.

    A small run spends most of its time on starting Python and importing torch for each step.
    """
    loaded = load_recipe(RECIPES / recipe, options(overrides))
    with steps_here():
        execute(loaded, workdir)
    return workdir


def steps_here() -> AbstractContextManager[object]:
    """Let steps run in this process, where a run would start one for each."""
    return mock.patch.object(local._Session, "_execute", _execute)


def rollouts(workdir: Path, phase: str, name: str = "rollouts") -> list[Rollout]:
    return list(read_jsonl(workdir / phase / f"{name}.jsonl", Rollout))


def content(workdir: Path, phase: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((workdir / phase / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _execute(
    session: Any, task: str, command: list[str], variables: dict[str, str], log: TextIO
) -> tuple[int, list[str]]:
    """Do what KFP's launcher does in the process of a step. Gives the exit status and the last lines."""
    from kfp.dsl import executor_main

    place = command.index("--executor_input")
    module = session.logs / f"{task}.py"
    module.write_text(command[place - 1], encoding="utf-8")
    arguments = ["executor_main", "--component_module_path", str(module), *command[place:]]
    try:
        with mock.patch.object(sys, "argv", arguments), mock.patch.dict(os.environ, variables):
            executor_main.executor_main()
    except Exception:
        lines = traceback.format_exc().splitlines()
        log.write("\n".join(lines))
        return 1, lines
    return 0, []
