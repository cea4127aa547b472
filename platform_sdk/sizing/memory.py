"""Least GPU memory for training and sampling: weights, gradients, optimiser, KV cache.

Activations, buckets and fragmentation come on top, so a configuration that does not fit by this count never fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from platform_sdk.errors import UserError

GIB = 2**30
ENGINE_LIVE = "the engine's live (sampling.engine.live, for the extraction of a graph graph.engine.live)"
ADAM, MASTER, SUM = 8, 4, 4  # bytes a parameter: two moments, the float32 weight, the float32 sum of gradients
CACHE_SHARE = 0.5
"""Share of a GPU's free memory for the transformers engine's KV cache; the rest is for a policy in training."""


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes of one GPU's share of a training, by purpose."""

    weights: float
    gradients: float
    optimiser: float
    reference: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimiser + self.reference

    def __str__(self) -> str:
        parts = {name: size for name, size in vars(self).items() if size}
        return f"{self.total / GIB:.0f} GiB ({', '.join(f'{name} {size / GIB:.0f}' for name, size in parts.items())})"


def training_memory(
    parameters: float, *, bfloat16: bool, zero: Literal["zero2", "zero3"] | None, processes: int, lora: bool,
    reference: bool,
) -> TrainingMemory:  # fmt: skip
    """Return the bytes that a training on ``processes`` GPUs takes on each of them.

    Without ZeRO every GPU holds everything, with the weights in float32. ZeRO holds bfloat16 weights and divides the
    rest; ``zero3`` divides the weights too. Under LoRA, neither the adapter's parameters nor a reference are counted.
    """
    half = 2 if bfloat16 else 4
    if lora:
        return TrainingMemory(half * parameters / (processes if zero == "zero3" else 1), 0.0, 0.0, 0.0)
    kept = half * parameters if reference else 0.0
    if zero is None:
        return TrainingMemory(MASTER * parameters, SUM * parameters, ADAM * parameters, kept)
    divided = 1 / processes
    weights = half * parameters * (divided if zero == "zero3" else 1)
    return TrainingMemory(weights, SUM * parameters * divided, (ADAM + MASTER) * parameters * divided, kept)


def training_fault(
    model: str, needed: TrainingMemory, gpu_bytes: float, *, processes: int, zero: Literal["zero2", "zero3"] | None,
    lora: bool,
) -> str | None:  # fmt: skip
    """Return an error message if a training cannot fit the memory of a GPU, else None."""
    if needed.total <= gpu_bytes:
        return None
    remedies = []
    if processes > 1 and zero is None and not lora:
        remedies.append("set deepspeed to zero2, which divides gradients and optimiser among the processes")
    if processes > 1 and zero == "zero2":
        remedies.append("set deepspeed to zero3, which divides the weights too")
    if processes == 1 and zero is not None:
        remedies.append("give more GPUs: ZeRO has nothing to divide on one")
    if not lora:
        remedies.append("set lora to train an adapter")
    remedies.append("take a smaller model or larger GPUs")
    return (
        f"training {model} takes {needed} on each of {processes} GPUs before any activation, but a GPU has "
        f"{gpu_bytes / GIB:.0f} GiB; {', or '.join(remedies)}"
    )


def slots_within(rows: int, slot_bytes: int, free: float) -> int:
    """Return the transformers engine's number of KV cache slots: two for each of ``rows``, or as many as fit.

    Raises:
        UserError: not even one slot for each row fits.
    """
    fitting = int(CACHE_SHARE * free / slot_bytes)
    if fitting < rows:
        remedy = f"lower {ENGINE_LIVE} to {fitting}, or max_model_len" if fitting else "lower max_model_len"
        raise UserError(
            f"keys and values of {rows} requests at their full length take {rows * slot_bytes / GIB:.1f} GiB, but half "
            f"of the GPU's free memory is {CACHE_SHARE * free / GIB:.1f} GiB; {remedy}, or use the engine vllm, which "
            "stores existing tokens only"
        )
    return min(2 * rows, fitting)


def tensor_parallel_fault(size: int, heads: int, key_value_heads: int) -> str | None:
    """Return an error message if attention heads cannot be divided among ``size`` GPUs, else None."""
    if _divides(size, heads, key_value_heads):
        return None
    able = [n for n in range(1, 17) if _divides(n, heads, key_value_heads)]
    return (
        f"{heads} attention heads ({key_value_heads} of keys and values) cannot be divided among {size} GPUs; "
        f"possible are {', '.join(map(str, able))}; several GPUs without tensor parallelism get an engine each"
    )


def parallelism(gpus: int, weights: float, gpu_bytes: float, heads: int, key_value_heads: int) -> tuple[int, int]:
    """Return the number of engines of a server, and the number of GPUs of each.

    Independent engines need no synchronisation, so an engine gets the fewest GPUs on which the weights leave half of
    the memory for the KV cache, or as many as divide the heads.
    """
    able = [n for n in range(1, gpus + 1) if gpus % n == 0 and _divides(n, heads, key_value_heads)]
    size = next((n for n in able if weights / n <= gpu_bytes / 2), able[-1])
    return gpus // size, size


def _divides(size: int, heads: int, key_value_heads: int) -> bool:
    """Return True if each GPU gets whole heads; key-value heads may be replicated."""
    return heads % size == 0 and (key_value_heads % size == 0 or size % key_value_heads == 0)
