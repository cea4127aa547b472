"""Speed of optimiser steps: tokens per second, and for a known GPU the share of its peak."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator

from platform_sdk.sizing.flops import Operations, attended_pairs, peak_of, training_operations, utilisation
from platform_sdk.sizing.shape import ModelShape, shape_of
from platform_sdk.training.batches import Batch

FIGURES = ("tokens_per_second", "mfu", "mfu_head", "mfu_attention")


class StepSpeed:
    """Counter of a step's operations.

    Args:
        model: the model; models without a ``ModelShape`` have no MFU.
    """

    def __init__(self, model: Any, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._frozen = hasattr(model, "peft_config")
        self._shape = _shape(model)
        self._peak = peak_of(torch.cuda.get_device_name(accelerator.device)) if self._on_gpu() else None
        self.begin()

    def _on_gpu(self) -> bool:
        return bool(self._accelerator.device.type == "cuda")

    def begin(self) -> None:
        self._tokens = self._learned = self._pairs = 0

    def add(self, batch: Batch) -> None:
        self._tokens += batch.input_ids.numel()
        self._learned += len(batch.targets)
        self._pairs += attended_pairs(batch.segments.lengths, batch.segments.key_lengths)

    def figures(self, seconds: float) -> dict[str, float]:
        """Return the figures of the step over all processes; every process calls this."""
        counts = torch.tensor([self._tokens, self._learned, self._pairs], device=self._accelerator.device)
        tokens, learned, pairs = self._accelerator.reduce(counts, reduction="sum").tolist()
        figures = {"tokens_per_second": tokens / seconds}
        if self._shape is not None and self._peak is not None:
            operations: Operations = training_operations(self._shape, tokens, learned, pairs, frozen=self._frozen)
            figures |= utilisation(operations, seconds, self._peak * self._accelerator.num_processes)
        return figures


def _shape(model: Any) -> ModelShape | None:
    try:
        return shape_of(model.config.to_dict())
    except KeyError:
        return None
