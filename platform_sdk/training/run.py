"""One training run: examples and a model in, a trained model and its figures out.

It may be killed at any moment and started again. Checkpoints and the model are named by the digest of
everything that went in, so a run goes on only from its own checkpoints, and a finished one is not
repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from transformers import AutoConfig, TrainerCallback, TrainingArguments, set_seed

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import TrainSpec
from platform_sdk.sampling.models import load_tokenizer, resolve, weights_digest
from platform_sdk.training.batches import Step, plan
from platform_sdk.training.checkpoints import latest, publish, staging
from platform_sdk.training.examples import Example, Fitted, digest_examples, fit
from platform_sdk.training.objectives import MaximumLikelihood, Objective
from platform_sdk.training.policy import attention_for, load_policy
from platform_sdk.training.trainer import PolicyTrainer
from platform_sdk.training.zero import deepspeed_file

RESULT = "training.json"


class StepFigures(BaseModel):
    """What was logged of one optimiser step."""

    model_config = ConfigDict(frozen=True)

    step: int
    loss: float
    learning_rate: float
    grad_norm: float | None = None
    seconds: float
    statistics: dict[str, float]


class TrainResult(BaseModel):
    """What a training run did.

    ``tokens_trained`` counts agent tokens over all epochs, ``tokens_total`` all tokens the policy read for
    them. ``truncated`` examples lost ``tokens_cut`` tokens; ``dropped_too_long`` and ``dropped_empty``
    (no agent's token) ones were left out. ``skipped`` says why nothing was trained, if so: the model is
    then the one that came in.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    inputs: str
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
    objective: Objective | None = None,
    parents: dict[str, str] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> TrainResult:
    """Train ``model`` on ``examples`` and write it to the directory ``output``, as one atomic step.

    Under ``torchrun`` every process calls this with the same arguments.

    Args:
        checkpoints: directory for the checkpoints of this output alone; deleted when the model is complete.
        objective: default: maximum likelihood with ``spec.normalization``.
        parents: digests of what the examples came from, for the result.
        callbacks: of transformers, told of every step as it happens.

    Raises:
        UserError: a setting does not fit the examples, the model or the machine.
        NotFinite: the loss became infinite or not a number.
    """
    objective = objective or MaximumLikelihood(spec.normalization)
    parent = weights_digest(model)
    inputs = _digest(spec, examples, parent, seed, objective)
    done = completed(output, inputs)
    if done is not None:
        shutil.rmtree(checkpoints, ignore_errors=True)  # a kill may have come between the two
        return done
    fitted = fit(examples, _max_length(spec, model), spec.too_long)
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
        return _pass_through(model, output, figures, examples, parent)
    folder = checkpoints / inputs[:16]
    threads = torch.get_num_threads()
    torch.set_num_threads(spec.threads)
    try:
        return _fit(spec, fitted, model, output, seed, folder, objective, figures, callbacks)
    finally:
        torch.set_num_threads(threads)


def main_process() -> bool:
    """Whether this process is the one that writes; of those that ``torchrun`` started, the first."""
    return os.environ.get("RANK", "0") == "0"


def completed(output: Path, inputs: str) -> TrainResult | None:
    """The result that ``output`` holds, if it was made from the same inputs."""
    file = output / RESULT
    if not file.exists():
        return None
    result = TrainResult.model_validate_json(file.read_text())
    return result.model_copy(update={"model": str(output)}) if result.inputs == inputs else None


def _fit(
    spec: TrainSpec, fitted: Fitted, model: str | Path, output: Path, seed: int, folder: Path, objective: Objective,
    figures: dict[str, Any], callbacks: Sequence[TrainerCallback],
) -> TrainResult:  # fmt: skip
    device = _device(spec)
    args = _arguments(spec, folder, seed, device)
    steps = plan(
        fitted.examples,
        batch_size=spec.batch_size,
        micro_batch_tokens=spec.micro_batch_tokens,
        epochs=spec.epochs,
        seed=seed,
        processes=args.world_size,
    )
    args.max_steps = len(steps)
    args.warmup_steps = round(spec.warmup_ratio * len(steps))
    set_seed(seed)  # a new adapter's weights are drawn
    policy = load_policy(model, spec, attention=attention_for(spec, device))
    trainer = PolicyTrainer(
        policy, args, steps=steps, examples=fitted.examples, objective=objective, callbacks=callbacks
    )
    checkpoint = latest(folder)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return _finish(trainer, model, output, folder, figures, fitted, spec, steps)


def _finish(
    trainer: PolicyTrainer, model: str | Path, output: Path, folder: Path, figures: dict[str, Any], fitted: Fitted,
    spec: TrainSpec, steps: Sequence[Step],
) -> TrainResult:  # fmt: skip
    written = output.with_name(f".{output.name}.writing")
    if trainer.args.should_save:
        staging(output)
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(written))
    trainer.accelerator.wait_for_everyone()
    if trainer.args.should_save:
        load_tokenizer(model).save_pretrained(written)
        curve = tuple(_step_figures(entry) for entry in trainer.state.log_history if "loss" in entry)
        result = TrainResult(
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
        (written / RESULT).write_text(result.model_dump_json(indent=1))
        publish(written, output)
        shutil.rmtree(folder.parent)
    trainer.accelerator.wait_for_everyone()
    finished = completed(output, figures["inputs"])
    if finished is None:
        raise UserError(f"{output}: written by the main process, but not visible to this one; use a shared directory")
    return finished


def _step_figures(entry: dict[str, float]) -> StepFigures:
    named = {"step", "loss", "learning_rate", "grad_norm", "seconds"}
    statistics = {name: value for name, value in entry.items() if name not in named | {"epoch"}}
    return StepFigures.model_validate({k: v for k, v in entry.items() if k in named} | {"statistics": statistics})


def _pass_through(
    model: str | Path, output: Path, figures: dict[str, Any], examples: Sequence[Example], parent: str
) -> TrainResult:
    """Nothing to learn from: the model that came in is the one that goes out."""
    reason = "no accepted trajectory" if not examples else "no example was left after the length limit"
    result = TrainResult(**figures, weights=parent, skipped=reason, steps=0, tokens_trained=0, tokens_total=0)
    if not main_process():
        return result
    written = staging(output)
    shutil.copytree(resolve(model), written, dirs_exist_ok=True)
    load_tokenizer(model).save_pretrained(written)
    (written / RESULT).write_text(result.model_dump_json(indent=1))
    publish(written, output)
    return result


def _digest(spec: TrainSpec, examples: Sequence[Example], parent: str, seed: int, objective: Objective) -> str:
    """Of everything that decides the trained weights. How often to save, and how many processes share the work, does not."""
    content = {
        "spec": spec.model_dump(mode="json", exclude={"checkpoint_steps", "processes"}),
        "examples": digest_examples(examples),
        "model": parent,
        "seed": seed,
        "objective": getattr(objective, "__qualname__", repr(objective)),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _max_length(spec: TrainSpec, model: str | Path) -> int:
    path = resolve(model)
    adapter = path / "adapter_config.json"
    if adapter.exists():
        path = resolve(json.loads(adapter.read_text())["base_model_name_or_path"])
    context: int = AutoConfig.from_pretrained(path).max_position_embeddings
    if spec.max_length is not None and spec.max_length > context:
        raise UserError(f"max_length {spec.max_length} exceeds the context of model {model}: {context} tokens")
    return spec.max_length or context


def _device(spec: TrainSpec) -> str:
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise UserError("device: cuda, but torch sees no GPU; set device to auto or cpu")
    return "cuda" if spec.device != "cpu" and torch.cuda.is_available() else "cpu"


def _arguments(spec: TrainSpec, folder: Path, seed: int, device: str) -> TrainingArguments:
    bfloat16 = spec.precision == "bfloat16" or (spec.precision == "auto" and device == "cuda")
    args = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=1,  # one item is a process's share of a step
        max_steps=1,  # set with the plan
        learning_rate=spec.learning_rate,
        lr_scheduler_type="cosine_with_min_lr",
        # As a ratio: for "min_lr" transformers asks the optimiser for its defaults, which DeepSpeed's does not have.
        lr_scheduler_kwargs={"min_lr_rate": spec.minimum_learning_rate / spec.learning_rate},
        optim="adamw_torch_fused",
        weight_decay=spec.weight_decay,
        adam_beta1=spec.betas[0],
        adam_beta2=spec.betas[1],
        adam_epsilon=spec.epsilon,
        max_grad_norm=spec.max_grad_norm,
        bf16=bfloat16,
        activation_checkpointing=spec.gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if spec.gradient_checkpointing else None,
        use_cpu=device == "cpu",
        ddp_backend="gloo" if device == "cpu" and "WORLD_SIZE" in os.environ else None,
        ddp_find_unused_parameters=False,
        deepspeed=deepspeed_file(spec, device),
        save_strategy="steps",
        save_steps=spec.checkpoint_steps,
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        seed=seed,
    )
    if args.n_gpu > 1:
        raise UserError(
            f"this process sees {args.n_gpu} GPUs: start one process per GPU with torchrun "
            "(python -m torch.distributed.run --nproc-per-node N -m platform_sdk.training --spec FILE), "
            "or show it one with CUDA_VISIBLE_DEVICES"
        )
    return args
