"""One training run: examples and a model in, a trained model and its figures out.

A killed run can be resumed. Checkpoints and the model carry the digest of all inputs, so a run resumes only from its
own checkpoints, and a finished run is not repeated.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from transformers import TrainerCallback, set_seed

from platform_sdk.config.training import TrainSpec
from platform_sdk.processes.environment import is_main_process
from platform_sdk.sampling.models import weights_digest
from platform_sdk.training.arguments import (
    check_memory,
    context_length,
    device_for,
    set_steps,
    threads,
    training_arguments,
)
from platform_sdk.training.attention import SHARING
from platform_sdk.training.batches import Step, plan
from platform_sdk.training.examples import Example, FittedExamples, digest_examples, fit
from platform_sdk.training.masters import masters_of
from platform_sdk.training.objectives import MaximumLikelihood
from platform_sdk.training.output import TrainedModel, completed, pass_through, read_back, write_model
from platform_sdk.training.policy import attention_for, load_policy
from platform_sdk.training.speed import FIGURES
from platform_sdk.training.trainer import PlannedSteps, PolicyTrainer, Progress


class StepFigures(BaseModel):
    """Log of one optimiser step; ``speed`` as ``training.speed.FIGURES`` names it."""

    model_config = ConfigDict(frozen=True)

    step: int
    loss: float
    learning_rate: float
    grad_norm: float | None = None
    seconds: float
    speed: dict[str, float] = {}
    statistics: dict[str, float]


class TrainResult(TrainedModel):
    """Result of a training run.

    ``tokens_trained`` counts agent tokens over all epochs, ``tokens_total`` all tokens. ``truncated`` examples lost
    ``tokens_cut`` tokens; ``dropped_too_long`` and ``dropped_empty`` (without an agent token) examples were left out.
    ``skipped`` is the reason if nothing was trained and the input model was kept.
    """

    weights: str
    parents: dict[str, str]
    skipped: str | None = None
    examples: int
    steps: int
    tokens_trained: int
    tokens_total: int
    truncated: int
    tokens_cut: int
    dropped_too_long: int
    dropped_empty: int
    loss_first: float | None = None
    loss_last: float | None = None
    curve: tuple[StepFigures, ...] = ()
    training_seconds: float = 0.0


def train(
    spec: TrainSpec,
    examples: Sequence[Example],
    model: str | Path,
    output: Path,
    *,
    seed: int,
    checkpoints: Path,
    parents: dict[str, str] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> TrainResult:
    """Train ``model`` on ``examples`` and write it to the directory ``output``, as one atomic step.

    Under ``torchrun`` every process calls this with the same arguments.

    Args:
        checkpoints: directory for the checkpoints of this output alone; deleted when the model is complete.
        parents: digests of the examples' sources, for the result.
        callbacks: transformers callbacks.

    Raises:
        UserError: a setting does not fit the examples, the model or the machine.
        NotFinite: the loss became infinite or not a number.
    """
    parent = weights_digest(model)
    inputs = _digest(spec, examples, parent, seed)
    done = completed(output, inputs, TrainResult)
    if done is not None:
        shutil.rmtree(checkpoints, ignore_errors=True)  # left over if the process was killed here
        return done
    fitted = fit(examples, context_length(spec, model), spec.too_long)
    figures: dict[str, Any] = {
        "model": str(output),
        "inputs": inputs,
        "parents": {"model": parent, **(parents or {})},
        "examples": len(fitted.examples),
        "truncated": fitted.truncated,
        "tokens_cut": fitted.tokens_cut,
        "dropped_too_long": fitted.dropped_too_long,
        "dropped_empty": fitted.dropped_empty,
    }
    if not fitted.examples:
        reason = "no accepted trajectory" if not examples else "no example was left after the length limit"
        result = TrainResult(**figures, weights=parent, skipped=reason, steps=0, tokens_trained=0, tokens_total=0)
        if is_main_process():
            pass_through(model, output, result)
        return result
    with threads(spec.threads):
        trainer, steps = _fit(spec, fitted, model, seed, checkpoints, inputs[:16], callbacks)
        write_model(trainer, model, output, lambda written: _result(figures, written, trainer, steps, fitted, spec))
    if is_main_process():
        shutil.rmtree(checkpoints)
    return read_back(output, inputs, TrainResult)


def _fit(
    spec: TrainSpec, fitted: FittedExamples, model: str | Path, seed: int, checkpoints: Path, name: str,
    callbacks: Sequence[TrainerCallback],
) -> tuple[PolicyTrainer, list[Step]]:  # fmt: skip
    device = device_for(spec)
    attention = attention_for(spec, device)
    args = training_arguments(spec, checkpoints, seed, device)
    # DeepSpeed's shards and the random states require the number of processes that wrote them.
    args.output_dir = str(checkpoints / f"{name}-{args.world_size}")
    steps = plan(
        fitted.examples,
        batch_size=spec.batch_size,
        micro_batch_tokens=spec.micro_batch_tokens,
        epochs=spec.epochs,
        seed=seed,
        processes=args.world_size,
        share_prompts=attention in SHARING,
    )
    set_steps(args, spec, len(steps))
    check_memory(spec, model, args)
    set_seed(seed)  # a new adapter's weights are drawn
    policy = load_policy(model, spec, attention=attention, device=str(args.device))
    trainer = PolicyTrainer(
        policy,
        args,
        source=PlannedSteps(steps, fitted.examples, args.process_index),
        objective=MaximumLikelihood(spec.normalization),
        callbacks=[Progress(), *masters_of(spec, model), *callbacks],
    )
    trainer.resume()
    return trainer, steps


def _result(
    figures: dict[str, Any], written: Path, trainer: PolicyTrainer, steps: Sequence[Step], fitted: FittedExamples,
    spec: TrainSpec,
) -> TrainResult:  # fmt: skip
    curve = step_figures(trainer)
    return TrainResult(
        **figures,
        weights=weights_digest(written),
        steps=len(steps),
        tokens_trained=sum(step.agent_tokens for step in steps),
        tokens_total=spec.epochs * sum(len(example.token_ids) for example in fitted.examples),
        loss_first=curve[0].loss,
        loss_last=curve[-1].loss,
        curve=curve,
        training_seconds=sum(entry.seconds for entry in curve),
    )


def step_figures(trainer: PolicyTrainer) -> tuple[StepFigures, ...]:
    """Return the logs of all steps so far, including those before a resumption."""
    return tuple(_step_figures(entry) for entry in trainer.state.log_history if "loss" in entry)


def _step_figures(entry: dict[str, float]) -> StepFigures:
    named = {"step", "loss", "learning_rate", "grad_norm", "seconds"}
    speed = {name: entry[name] for name in FIGURES if name in entry}
    statistics = {name: value for name, value in entry.items() if name not in named | {"epoch", *FIGURES}}
    own = {name: value for name, value in entry.items() if name in named}
    return StepFigures.model_validate(own | {"speed": speed, "statistics": statistics})


def _digest(spec: TrainSpec, examples: Sequence[Example], parent: str, seed: int) -> str:
    """Digest everything that affects the trained weights; excludes the save interval and the number of processes."""
    content = {
        "spec": spec.model_dump(mode="json", exclude={"checkpoint_steps", "processes"}),
        "examples": digest_examples(examples),
        "model": parent,
        "seed": seed,
        "objective": repr(MaximumLikelihood(spec.normalization)),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
