"""Giving new weights to the sampling engine: hopforge's proven hand-over against bare copies of the same tensors.

    python -m benchmarks.gpu.weights [--model 3B] [--dry-run] [--json FILE]

Measured is the transformers engine in the trainer's process, with digest, probe and its check; the ratio says how much
of the time is the copying itself. It also prints the bytes that a server reads from files.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.gpu.harness import Setup, main, seconds
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.config.training import TrainSpec
from platform_sdk.sampling.load import load_engine
from platform_sdk.training.online.sync import plain_weights, sync_for
from platform_sdk.training.policy import attention_for, load_policy


def measure(case: Setup) -> list[dict[str, Any]]:
    engine_spec = EngineSpec(live=4, dtype=case.precision, device=case.device, max_model_len=64, threads=None)
    spec = TrainSpec(device=case.device)
    policy = load_policy(case.path, spec, attention=attention_for(spec, case.device), device=case.device)
    engine = load_engine(engine_spec, case.path)
    sync = sync_for(engine_spec, engine, policy, case.path.with_name("weights"))

    def ours() -> None:
        with case.autocast():
            sync.refresh()

    weights = plain_weights(policy)
    room = {name: torch.empty_like(tensor, dtype=getattr(torch, case.precision)) for name, tensor in weights.items()}

    def bare() -> None:
        for name, tensor in weights.items():
            room[name].copy_(tensor)

    mine, theirs = seconds(ours, repeats=2), seconds(bare)
    size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    return [{
        "model": case.name, "seconds": mine, "copy seconds": theirs, "ratio": theirs / mine,
        "GB of files for a server": size / 1e9,
    }]  # fmt: skip


if __name__ == "__main__":
    main(__doc__ or "", measure)
