"""Initial model of a run, on this machine's disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.execution.step import Finished, StepInputs, StepOutputs, step_name

if TYPE_CHECKING:
    from platform_sdk.data.terms import Terms


class Inputs(StepInputs):
    """The name of a model: a path, a hub name, package:NAME, hopforge:NAME or run:DIRECTORY.

    ``worker_name`` is a second model, for the agent's workers; empty if one model plays all roles. ``phase`` is the
    folder in the run directory; a second policy of a pipeline, e.g. a teacher, has its own.
    """

    name: str
    worker_name: str = ""
    phase: str = "policy"


class Outputs(StepOutputs):
    model_path: str
    model_digest: str


def run(inputs: Inputs) -> Finished[Outputs]:
    """Find the model, download or convert it if necessary, and compute the digest of its weights."""
    from platform_sdk.evaluation.cards import model_card_text
    from platform_sdk.sampling.models import resolve
    from platform_sdk.sampling.pairs import make_pair, model_files, models_of, policy_digest
    from platform_sdk.tracking import step_run

    name, worker_name, phase = inputs.name, inputs.worker_name, inputs.phase
    with step_run(inputs.run_dir, step_name("policy", phase)) as step:
        path = make_pair(inputs.run_dir / phase, name, worker_name) if worker_name else resolve(name)
        digest = policy_digest(path)
        # The parameters of the trained policy have no prefix.
        prefix, weights = ("", "base_weights") if phase == "policy" else (f"{phase}_", f"{phase}_weights")
        step.log_params({f"{prefix}model": name} | ({f"{prefix}worker_model": worker_name} if worker_name else {}))
        step.record_digests(**{weights: digest})
        step.log_base_model(f"{name} and {worker_name}" if worker_name else name, digest)
        folders = zip((name, worker_name), models_of(path).values(), strict=True) if worker_name else [(name, path)]
        step.record_licences(f"{prefix}model_licence", (one for model in folders for one in _terms(*model)))
        step.seal(*model_files(path))
        facts = {"name": name, "worker_name": worker_name, "digest": digest, "path": str(path)}
        return Finished(
            Outputs(model_path=str(path), model_digest=digest), model_card_text(name, Path(path), digest), facts
        )


def _terms(name: str, path: str | Path) -> Iterator[Terms]:
    """Yield the terms of a model; for the model of a run, the terms of the model that the run began with."""
    from platform_sdk.data.licences import model_terms
    from platform_sdk.sampling.models import RUN
    from platform_sdk.tracking import manifest

    entries = manifest.read(Path(os.path.expanduser(name.removeprefix(RUN)))) if name.startswith(RUN) else []
    base = [one for entry in entries for one in entry.licences if one.thing.startswith("model ")]
    yield from base or [model_terms(name, Path(path))]
