"""The recipes under attack, so small that a run is mostly files and processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class ReducedRecipe:
    """A recipe (relative to ``pipelines/``) and what makes it small."""

    recipe: str
    overrides: Mapping[str, Any]
    short: Mapping[str, Any]

    def shorter(self) -> ReducedRecipe:
        """Return the shortest possible run, for the ordinary tests."""
        return replace(self, overrides={**self.overrides, **self.short})


REDUCED = {
    "mygo": ReducedRecipe(
        "mygo/world-text.yaml",
        {
            "iterations": 2,
            "retrieval.threads": 1,
            "dataset.world.entities": 60,
            "dataset.world.train_questions": 24,
            "dataset.world.eval_questions": 6,
            "warmup.trajectories": 6,
            "warmup.attempts": 1,
            "warmup.training.checkpoint_steps": 1,
            "warmup.training.batch_size": 8,
            "selection.questions": 8,
            "selection.attempts": 3,
            "selection.accepted": 1,
            "training.checkpoint_steps": 1,
            "training.batch_size": 8,
        },
        {
            "iterations": 1,
            "dataset.world.train_questions": 12, "dataset.world.eval_questions": 2, "dataset.world.hops": [1],
            "warmup.trajectories": 3, "selection.questions": 4, "selection.attempts": 2,
        },
    ),
    "arena": ReducedRecipe(
        "arena/world.yaml",
        {
            "dataset.world": {
                "entities": 60, "train_questions": 24, "eval_questions": 8, "hops": [1, 2], "context": 4
            },
            "online.updates": 3,
            "online.questions": 3,
            "online.group": 5,
            "online.checkpoint_steps": 1,
            "online.evaluate_every": 1,
        },
        {
            "dataset.world": {"entities": 60, "train_questions": 12, "eval_questions": 4, "hops": [1], "context": 4},
            "online.updates": 2, "online.questions": 2,
        },
    ),
    "evipath": ReducedRecipe(
        "evipath/world.yaml",
        {
            "dataset.world": {"entities": 40, "train_questions": 24, "eval_questions": 4, "hops": [1, 2]},
            "training.checkpoint_steps": 1,
            "training.batch_size": 8,
            "training.epochs": 1,
        },
        {"dataset.world": {"entities": 40, "train_questions": 12, "eval_questions": 2, "hops": [1]}},
    ),
    "prograph": ReducedRecipe(
        "prograph/world.yaml",
        {
            "dataset.world": {"entities": 40, "train_questions": 6, "eval_questions": 4, "hops": [1]},
            "agent.max_turns": 3,
            "agent.max_tokens": 24,
            "agent.credit.estimator": "sampling",
            "agent.credit.completions": 2,
            "online.updates": 3,
            "online.questions": 3,
            "online.group": 3,
            "online.checkpoint_steps": 1,
        },
        {"online.updates": 2},
    ),
    "program": ReducedRecipe(
        "program/world.yaml",
        {
            "dataset.world": {"entities": 40, "train_questions": 6, "eval_questions": 4, "hops": [1], "years": 0.6},
            "online.updates": 3,
            "online.questions": 3,
            "online.group": 3,
            "online.checkpoint_steps": 1,
        },
        {
            "dataset.world": {"entities": 40, "train_questions": 6, "eval_questions": 2, "hops": [1], "years": 0.6},
            "online.updates": 2, "online.questions": 2, "online.group": 2,
        },
    ),
    "react": ReducedRecipe(
        "react/world.yaml",
        {
            "dataset.world": {"entities": 40, "train_questions": 6, "eval_questions": 4, "hops": [1], "years": 0.6},
            "online.updates": 3,
            "online.questions": 3,
            "online.group": 3,
            "online.checkpoint_steps": 1,
        },
        {"online.updates": 2},
    ),
    # A method of the tests' own, small as it is.
    "toy": ReducedRecipe("../tests/extensions/toy/pipelines/toy/world.yaml", {}, {}),
}  # fmt: skip
