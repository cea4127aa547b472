"""Conversion of settings to the Trainer's arguments, and setup of DeepSpeed ZeRO."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import OptimiserSpec
from platform_sdk.processes.environment import under_torchrun
from platform_sdk.sampling.models import load_config, longrope_window
from platform_sdk.sizing.memory import training_fault, training_memory
from platform_sdk.sizing.shape import shape_of


def device_for(spec: OptimiserSpec) -> str:
    """Return ``cuda`` or ``cpu``.

    Raises:
        UserError: ``device`` is cuda, and torch sees no GPU.
    """
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise UserError("device: cuda, but torch sees no GPU; set device to auto or cpu")
    return "cuda" if spec.device != "cpu" and torch.cuda.is_available() else "cpu"


def bfloat16_for(spec: OptimiserSpec, device: str) -> bool:
    """Return True for bfloat16 arithmetic."""
    return spec.precision == "bfloat16" or (spec.precision == "auto" and device == "cuda")


def context_length(spec: OptimiserSpec, model: str | Path) -> int:
    """Return the most tokens of an example: ``max_length``, or else the model's context.

    LongRoPE is limited to its short factors. transformers chooses between short and long factors for a whole batch, by
    its longest sequence: an example would get other log-probabilities when it is packed with a longer one, and a
    dialogue beyond the window others than those that its first tokens were sampled with. Rotary embeddings of the type
    ``dynamic`` depend on the longest sequence only beyond the context, which no example exceeds.

    Raises:
        UserError: ``max_length`` exceeds the model's context, or examples may exceed LongRoPE's original window.
    """
    config = load_config(model)
    context: int = config.max_position_embeddings
    if spec.max_length is not None and spec.max_length > context:
        raise UserError(f"max_length {spec.max_length} exceeds the context of model {model}: {context} tokens")
    length = spec.max_length or context
    window = longrope_window(config)
    if window is not None and window < length:
        raise UserError(
            f"model {model}: its rotary embeddings (longrope) change beyond {window} tokens, which training does not "
            f"support; set max_length to {window}, and max_model_len of the sampling engine to at most that"
        )
    return length


def check_memory(spec: OptimiserSpec, model: str | Path, args: TrainingArguments, *, reference: bool = False) -> None:
    """Reject a training that cannot fit the memory of this process's GPU.

    Raises:
        UserError: the training does not fit; the message has the bytes by purpose.
    """
    if args.device.type != "cuda":
        return
    try:
        parameters = shape_of(load_config(model).to_dict()).parameters
    except KeyError:  # unknown model family
        return
    sizes: dict[str, Any] = {"zero": spec.deepspeed, "processes": args.world_size, "lora": spec.lora is not None}
    needed = training_memory(parameters, bfloat16=bfloat16_for(spec, "cuda"), reference=reference, **sizes)
    memory = torch.cuda.mem_get_info(args.device)[1]
    if fault := training_fault(str(model), needed, memory, **sizes):
        raise UserError(fault)


def training_arguments(spec: OptimiserSpec, folder: Path, seed: int, device: str) -> TrainingArguments:
    """Return all arguments except the number of steps, which depends on the number of processes in these arguments.

    Args:
        folder: directory of the checkpoints.

    Raises:
        UserError: this process sees several GPUs, or DeepSpeed is not available.
    """
    args = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=1,  # one item is a process's share of a step
        max_steps=1,  # see set_steps
        learning_rate=spec.learning_rate,
        lr_scheduler_type="cosine_with_min_lr",
        # A ratio, since for "min_lr" transformers reads the optimiser's defaults, which DeepSpeed's optimiser lacks.
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
    """Return the arguments for gradient checkpointing under the names of the installed transformers."""
    known = {field.name for field in fields(TrainingArguments)}
    name = "activation_checkpointing" if "activation_checkpointing" in known else "gradient_checkpointing"
    return {name: True, f"{name}_kwargs": {"use_reentrant": False}}


def deepspeed_file(spec: OptimiserSpec, device: str) -> str | None:
    """Set up DeepSpeed and return its configuration file, or None if ``spec`` does not use it.

    DeepSpeed reads its checkpoints with ``weights_only=False``. This function restricts torch to pickles of plain data
    and the three harmless DeepSpeed types in them.

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
        deepspeed.init_distributed(dist_backend="gloo")  # accelerate does this only for GPUs, but ZeRO-3 needs it
    return str(Path(__file__).parent / "deepspeed" / f"{spec.deepspeed}.json")


def set_steps(args: TrainingArguments, spec: OptimiserSpec, steps: int) -> None:
    """Set the number of optimiser steps and the share of the warm-up."""
    args.max_steps = steps
    args.warmup_steps = round(spec.warmup_ratio * steps)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set torch's number of threads to ``count`` in this context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
