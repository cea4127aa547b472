"""Training a pair of models, each on the dialogues of its own role."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from platform_sdk.sampling.pairs import policy_digest
from platform_sdk.tracking.outcomes import digest_of, write_json
from platform_sdk.training.checkpoints import publish, staging
from platform_sdk.training.launch import Elsewhere, Job, launch_training
from platform_sdk.training.run import TrainResult


class PairResult(TrainResult):
    """What the trainings of both models did: sums, with each one's own figures under its role.

    ``skipped`` only if neither was trained. Losses and curves are each model's own.
    """

    roles: dict[str, TrainResult]


def launch_pair(job: Job, models: Mapping[str, Path], elsewhere: Elsewhere | None = None) -> PairResult:
    """Train each model of a pair by a job of its own, in ``<run_dir>/<phase>/<role>``.

    ``<run_dir>/<phase>/model`` is the pair of what came out, ``<phase>/train.json`` the result. Both jobs go on where
    they were killed, and so does this.

    Args:
        job: its ``model`` is the pair.
        models: the pair's models by role.
    """
    folder = job.run_dir / job.phase
    results = {
        role: launch_training(
            job.model_copy(update={"run_dir": folder, "phase": role, "model": str(model), "role": role}), elsewhere
        )
        for role, model in models.items()
    }
    pair = folder / "model"
    written = staging(pair)
    for role, trained in results.items():
        shutil.copytree(trained.model, written / role, copy_function=os.link)  # a second name, not a second copy
    publish(written, pair)
    done = list(results.values())
    result = PairResult(
        model=str(pair),
        inputs=digest_of([one.inputs for one in done]),
        weights=policy_digest(pair),
        parents={"model": policy_digest(job.model), "rollouts": done[0].parents["rollouts"]},
        skipped=done[0].skipped if all(one.skipped for one in done) else None,
        examples=sum(one.examples for one in done),
        steps=sum(one.steps for one in done),
        tokens_trained=sum(one.tokens_trained for one in done),
        tokens_total=sum(one.tokens_total for one in done),
        truncated=sum(one.truncated for one in done),
        tokens_cut=sum(one.tokens_cut for one in done),
        dropped_too_long=sum(one.dropped_too_long for one in done),
        dropped_empty=sum(one.dropped_empty for one in done),
        training_seconds=sum(one.training_seconds for one in done),
        roles=results,
    )
    write_json(folder / "train.json", result.model_dump(mode="json"))
    return result
