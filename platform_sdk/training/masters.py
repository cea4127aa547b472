"""Float32 master weights under DeepSpeed, from one training to the next.

DeepSpeed trains bfloat16 weights with float32 masters. By itself it makes the masters of the rounded weights and saves
the rounded weights, so that what one training leaves to the next loses every update below half of bfloat16's spacing:
at a learning rate of 5e-7 most of them. Here masters begin as the parent's file has them, and are what is saved.
Without DeepSpeed weights are in float32 throughout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from platform_sdk.config.training import OptimiserSpec
from platform_sdk.sampling.models import resolve, stored_tensors


def masters_of(spec: OptimiserSpec, model: str | Path) -> list[TrainerCallback]:
    """Return what gives a training the masters of ``model``'s file; nothing where no masters are kept of it."""
    path = resolve(model)
    adapter = spec.lora is not None or (path / "adapter_config.json").exists()
    return [] if spec.deepspeed is None or adapter else [_StartingMasters(path)]


class _StartingMasters(TrainerCallback):  # type: ignore[misc]
    """Gives the masters of a training that starts, not resumes, the values of the file it starts from."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step:
            return  # a checkpoint has the masters
        from deepspeed.utils import safe_set_full_fp32_param

        parameters = dict(model.named_parameters())
        for name, tensor in stored_tensors(self._path):
            if name in parameters and tensor.dtype != torch.bfloat16:
                parameter = parameters[name]
                safe_set_full_fp32_param(parameter, tensor.to(parameter.device, torch.float32))


def master_weights(model: Any, keep: bool) -> dict[str, torch.Tensor]:
    """Gather the float32 masters of a model under DeepSpeed, a tensor at a time; every process calls this.

    Args:
        keep: True where they are needed: elsewhere the result is empty.
    """
    from deepspeed.utils import safe_get_full_fp32_param

    weights = {}
    for name, parameter in model.named_parameters():
        master = safe_get_full_fp32_param(parameter)
        if keep:
            weights[name] = (parameter.detach() if master is None else master).cpu().clone()
    return weights
