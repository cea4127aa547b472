"""Join of the two models of a pair, each trained on the dialogues of its role."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from platform_sdk.sampling.pairs import policy_digest
from platform_sdk.tracking.outcomes import digest_of, write_json
from platform_sdk.training.checkpoints import publish, staging
from platform_sdk.training.run import TrainResult

SUMS = (
    "examples", "steps", "tokens_trained", "tokens_total", "truncated", "tokens_cut", "dropped_too_long",
    "dropped_empty", "training_seconds",
)  # fmt: skip


class PairResult(TrainResult):
    """Result of training both models of a pair: sums, with each model's figures under its role.

    ``skipped`` is set only if neither was trained. Losses and curves are per model.
    """

    roles: dict[str, TrainResult]


def join_pair(parent: str, folder: Path, results: Mapping[str, TrainResult]) -> PairResult:
    """Write the trained models of both roles as the pair ``<folder>/model``, and the result as ``train.json``.

    Args:
        parent: the pair before training.
        results: the training result of each role.
    """
    pair = folder / "model"
    written = staging(pair)
    for role, trained in results.items():
        shutil.copytree(trained.model, written / role, copy_function=os.link)  # hard links instead of copies
    publish(written, pair)
    done = list(results.values())
    result = PairResult(
        model=str(pair),
        inputs=digest_of([one.inputs for one in done]),
        weights=policy_digest(pair),
        parents={"model": policy_digest(parent), "rollouts": done[0].parents["rollouts"]},
        skipped=done[0].skipped if all(one.skipped for one in done) else None,
        roles=dict(results),
        **{name: sum(getattr(one, name) for one in done) for name in SUMS},
    )
    write_json(folder / "train.json", result.model_dump(mode="json"))
    return result
