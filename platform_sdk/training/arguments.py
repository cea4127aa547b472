"""Conversion of settings to the Trainer's arguments, with DeepSpeed ZeRO made ready."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, TrainingArguments

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import OptimiserSpec
from platform_sdk.processes.environment import under_torchrun
from platform_sdk.sampling.models import base_of
from platform_sdk.sizing.memory import training_fault, training_memory
from platform_sdk.sizing.shape import shape_of


def device_for(spec: OptimiserSpec) -> str:
    """``cuda`` or ``cpu``.

    Raises:
        UserError: ``device`` is cuda, and torch sees no GPU.
    """
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise UserError("device: cuda, but torch sees no GPU; set device to auto or cpu")
    return "cuda" if spec.device != "cpu" and torch.cuda.is_available() else "cpu"


def bfloat16_for(spec: OptimiserSpec, device: str) -> bool:
    """Return whether the arithmetic is in bfloat16."""
    return spec.precision == "bfloat16" or (spec.precision == "auto" and device == "cuda")


def context_length(spec: OptimiserSpec, model: str | Path) -> int:
    """The most tokens an example may have: ``max_length``, or else the model's context.

    Raises:
        UserError: ``max_length`` is beyond the model's context.
    """
    context: int = AutoConfig.from_pretrained(base_of(model)).max_position_embeddings
    if spec.max_length is not None and spec.max_length > context:
        raise UserError(f"max_length {spec.max_length} exceeds the context of model {model}: {context} tokens")
    return spec.max_length or context


def check_memory(spec: OptimiserSpec, model: str | Path, args: TrainingArguments, *, reference: bool = False) -> None:
    """Refuse a training that plainly exceeds the memory of this process's GPU.

    Raises:
        UserError: with the bytes, by what they are for, and what to do.
    """
    if args.device.type != "cuda":
        return
    try:
        parameters = shape_of(AutoConfig.from_pretrained(base_of(model)).to_dict()).parameters
    except KeyError:  # a model of another family: its size is not known
        return
    sizes: dict[str, Any] = {"zero": spec.deepspeed, "processes": args.world_size, "lora": spec.lora is not None}
    needed = training_memory(parameters, bfloat16=bfloat16_for(spec, "cuda"), reference=reference, **sizes)
    memory = torch.cuda.mem_get_info(args.device)[1]
    if fault := training_fault(str(model), needed, memory, **sizes):
        raise UserError(fault)


def training_arguments(spec: OptimiserSpec, folder: Path, seed: int, device: str) -> TrainingArguments:
    """All but the number of steps, which may depend on the number of processes that these arguments tell.

    Args:
        folder: for the checkpoints.

    Raises:
        UserError: this process sees several GPUs, or DeepSpeed cannot be had.
    """
    args = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=1,  # one item is a process's share of a step
        max_steps=1,  # see set_steps
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
        bf16=bfloat16_for(spec, device),
        **(checkpointing_arguments() if spec.gradient_checkpointing else {}),
        use_cpu=device == "cpu",
        ddp_backend="gloo" if device == "cpu" and under_torchrun() else None,
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


def checkpointing_arguments() -> dict[str, Any]:
    """Return the arguments that turn gradient checkpointing on, by the name that the installed transformers has."""
    known = {field.name for field in fields(TrainingArguments)}
    name = "activation_checkpointing" if "activation_checkpointing" in known else "gradient_checkpointing"
    return {name: True, f"{name}_kwargs": {"use_reentrant": False}}


def deepspeed_file(spec: OptimiserSpec, device: str) -> str | None:
    """Make DeepSpeed ready and return its configuration file; None where ``spec`` does without it.

    DeepSpeed reads its checkpoints with ``weights_only=False``. Here torch is told to refuse every pickle
    that names more than plain data and the three harmless types of DeepSpeed's own that they hold.

    Raises:
        UserError: DeepSpeed is not installed, or the processes were not started by ``torchrun``.
    """
    if spec.deepspeed is None:
        return None
    if not under_torchrun():
        raise UserError(f"deepspeed {spec.deepspeed} works under torchrun, with one process per GPU")
    try:
        import deepspeed
        from deepspeed.runtime.fp16.loss_scaler import LossScaler
        from deepspeed.runtime.zero.config import ZeroStageEnum
        from deepspeed.utils.tensor_fragment import fragment_address
    except ImportError as error:
        raise UserError(f"deepspeed {spec.deepspeed}: not installed; pip install deepspeed==0.19.8") from error
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    torch.serialization.add_safe_globals([LossScaler, ZeroStageEnum, fragment_address])
    if device == "cpu":
        deepspeed.init_distributed(dist_backend="gloo")  # accelerate does it for GPUs only, and ZeRO-3 needs it
    return str(Path(__file__).parent / "deepspeed" / f"{spec.deepspeed}.json")


def set_steps(args: TrainingArguments, spec: OptimiserSpec, steps: int) -> None:
    """The optimiser steps of the whole run, and its warm-up's share of them."""
    args.max_steps = steps
    args.warmup_steps = round(spec.warmup_ratio * steps)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute with ``count`` threads in this context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
