"""DeepSpeed ZeRO: its configuration files, and reading its checkpoints safely."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import OptimiserSpec
from platform_sdk.processes.environment import under_torchrun


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
