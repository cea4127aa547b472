"""Shipped recipes at a size that runs in seconds on one CPU; what decides a step's job is unchanged.

A recipe keeps its pipeline, method, switches, engines, credits and rewards. ``SMALL``, ``WORLD`` and ``MODELS`` are all
settings that get another value: data and model, amounts, and the hardware of a process. Of these, a job
(``training_job.here.describe``) shows only ``ONE_GPU``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platform_sdk.config.recipe import Recipe, load_recipe

OPTIMISER: dict[str, Any] = {
    "device": "cpu", "precision": "float32", "deepspeed": None, "processes": None, "gradient_checkpointing": False,
    "max_length": None, "micro_batch_tokens": 2048, "checkpoint_steps": 1,
}  # fmt: skip
TRAINING = OPTIMISER | {"epochs": 1, "batch_size": 8}
ENGINE: dict[str, Any] = {
    "live": 8, "searching": 0, "dtype": "float32", "device": "cpu", "threads": 1, "max_model_len": None
}  # fmt: skip
ONE_GPU = {"teaching.engine": {"extra": {}}}
"""One GPU for a teacher, as for other engines. With the four of a teacher of 70B, a pod that evaluates has four
processes, which a local index refuses (on a cluster these recipes need ``retrieval.url``).
"""
RETRIEVER: dict[str, Any] = {
    "url": None, "collection": None, "encoder": None, "query_prefix": None, "passage_prefix": None, "device": "cpu",
    "threads": 1,
}  # fmt: skip
SMALL: dict[str, dict[str, Any]] = {
    "agent": {"prompts": "compact", "demonstrate": False, "max_tokens": 24, "planner_tokens": 32, "worker_tokens": 24,
              "executor_tokens": 24, "max_turns": 2, "iteration_limit": 2, "max_steps": 2, "step_tokens": 16},
    "demonstrations": {"reasoning_tokens": 16},
    "evaluation": {"max_tokens": 24},
    "iteration_training": TRAINING,
    "online": OPTIMISER | {"updates": 1, "questions": 2, "group": 2, "mini_batches": 1, "resamples": 0},
    "retrieval": RETRIEVER,
    "sampling.engine": ENGINE,
    "selection": {"questions": 4, "attempts": 2, "accepted": 1},
    "synthesis": {"questions": 3, "max_tokens": 24, "unit": "passage"},  # the world annotates no sentences
    "teaching.engine": ENGINE | ONE_GPU["teaching.engine"],
    "training": TRAINING,
    "warmup": {"trajectories": 4, "attempts": 1},
    "warmup.training": TRAINING,
}  # fmt: skip
"""Values by the path of a struct in the recipe's parameters, used for the fields that the struct has."""
WORLD = {
    "format": "world",
    "world": {"entities": 40, "train_questions": 12, "eval_questions": 2, "hops": [1], "context": 4},
}
MODELS = {
    "arena": "hopforge:world-base-arena", "arena-baselines": "hopforge:world-base-arena",
    "prograph": "hopforge:world-base-prograph", "program": "hopforge:world-base-react",
    "program-mygo": "hopforge:world-base-react", "prompting": "hopforge:world-base-react",
    "react": "hopforge:world-base-react",
}  # fmt: skip
"""Models by pipeline; ``hopforge:world-base`` for others."""


def small_recipe(path: Path) -> Recipe:
    """Return a shipped recipe with small settings."""
    shipped = load_recipe(path)
    return _with(path, [*_data_and_model(shipped), *_values(shipped, SMALL)])


def shipped_recipe(path: Path) -> Recipe:
    """Return a shipped recipe with ``ONE_GPU``."""
    return _with(path, list(_values(load_recipe(path), ONE_GPU)))


def _with(path: Path, overrides: list[tuple[str, Any]]) -> Recipe:
    return load_recipe(path, [f"{name}={json.dumps(value)}" for name, value in overrides], {})


def _data_and_model(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    parameters = recipe.parameters
    model = MODELS.get(recipe.pipeline.name, "hopforge:world-base")
    yield "dataset", WORLD
    yield "model", model
    if parameters.get("teacher_model"):
        yield "teacher_model", model
    if parameters.get("iterations"):
        yield "iterations", 1
    if "world-text" in (recipe.pipeline.document.parameters["environment"].choices or ()):
        yield "environment", "world-kg" if parameters["environment"].endswith("-kg") else "world-text"


def _values(recipe: Recipe, values: dict[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the paths and values of the fields that the recipe has."""
    for struct, fields in values.items():
        present = _at(recipe.parameters, struct)
        yield from ((f"{struct}.{name}", value) for name, value in fields.items() if name in present)


def _at(parameters: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the struct at a dotted path; empty if the recipe has none."""
    found: Any = parameters
    for name in path.split("."):
        found = (found or {}).get(name)
    return dict(found or {})
