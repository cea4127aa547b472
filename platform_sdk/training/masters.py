"""Float32 master weights under DeepSpeed, kept between trainings.

DeepSpeed trains bfloat16 weights with float32 masters. By default it initialises the masters from rounded weights and
saves rounded weights, so the next training loses every update below half of bfloat16's spacing: at a learning rate of
5e-7, most updates. Here masters start from the parent's file and are saved in float32. Without DeepSpeed all weights
are in float32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from platform_sdk.config.training import OptimiserSpec
from platform_sdk.sampling.models import resolve, stored_tensors


def masters_of(spec: OptimiserSpec, model: str | Path) -> list[TrainerCallback]:
    """Return the callbacks that load the masters from ``model``'s file, if masters are used."""
    path = resolve(model)
    adapter = spec.lora is not None or (path / "adapter_config.json").exists()
    return [] if spec.deepspeed is None or adapter else [_StartingMasters(path)]


class _StartingMasters(TrainerCallback):  # type: ignore[misc]
    """Initialisation of the masters of a new (not resumed) training from the parent's file."""

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
    """Gather the float32 masters of a model under DeepSpeed tensor by tensor; every process calls this.

    Args:
        keep: return the masters; otherwise the result is empty.
    """
    from deepspeed.utils import safe_get_full_fp32_param

    weights = {}
    for name, parameter in model.named_parameters():
        master = safe_get_full_fp32_param(parameter)
        if keep:
            weights[name] = (parameter.detach() if master is None else master).cpu().clone()
    return weights
