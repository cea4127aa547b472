"""KV cache of the transformers engine: tokens of each slot, and reuse of prefixes.

A slot is the cache of one dialogue. The first ``rows`` slots are for decoding; the others keep the caches of dialogues
that wait (for a search, for their workers) when their row is needed. A request starts from the slot with the longest
common prefix: its dialogue's, or any other slot with the same instructions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from platform_sdk.config.errors import UserError
from platform_sdk.sampling.kv_attention import SEGMENT
from platform_sdk.sizing.memory import ENGINE_LIVE, GIB

WORTH_WAITING = 16


class Slots:
    """Host-side bookkeeping over ``store``, shape (layers, 2, slots, kv heads, capacity, width)."""

    def __init__(self, store: torch.Tensor, rows: int) -> None:
        slots, capacity = store.shape[2], store.shape[4]
        self.store = store
        self.rows = rows
        self.tokens: npt.NDArray[np.int64] = np.zeros((slots, capacity), dtype=np.int64)
        self.length: npt.NDArray[np.int64] = np.zeros(slots, dtype=np.int64)
        self._used: npt.NDArray[np.int64] = np.zeros(slots, dtype=np.int64)
        self._dialogue = [""] * slots
        self._clock = 0

    def clear(self) -> None:
        """Clear all slots, after a change of weights."""
        self.length[:] = 0

    def release(self, dialogue: str) -> None:
        """Mark a dialogue as finished: its slots are reused first, and not saved when their row is needed."""
        for slot, name in enumerate(self._dialogue):
            if name == dialogue:
                self._dialogue[slot] = ""

    def shared(self, prompt: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Return the slot with the longest common prefix, and its length: at most ``len(prompt) - 1``, since the last
        token must be run to predict the next."""
        usable = len(prompt) - 1
        prefix = _common(self.tokens[:, :usable], prompt[:usable])
        prefix = np.minimum(prefix, self.length)
        best = int(prefix.argmax())
        return best, int(prefix[best])

    def worth_waiting(
        self, prompt: npt.NDArray[np.int64], reading: Iterable[Sequence[int] | npt.NDArray[np.int64]]
    ) -> bool:
        """Return True if a prompt in progress shares a longer prefix with this one than any slot so far."""
        cached = self.shared(prompt)[1]
        for tokens in reading:
            other = np.asarray(tokens[: len(prompt) - 1], dtype=np.int64)
            if _common(other[None], prompt[: len(other)])[0] >= cached + WORTH_WAITING:
                return True
        return False

    def take(self, dialogue: str, prompt: npt.NDArray[np.int64], idle: Iterable[int]) -> tuple[int, int]:
        """Return a row for a request, and the number of the prompt's tokens that are already cached in it."""
        source, prefix = self.shared(prompt)
        candidates = list(idle)
        if source in candidates and prefix == self.length[source] > 0:
            row = source
        else:
            row = min(candidates, key=lambda slot: (bool(self._dialogue[slot]), self._used[slot]))
            if self._dialogue[row]:
                source = self._park(row, source)
            self._copy(source, row, prefix)
        self.length[row] = prefix
        self._dialogue[row] = dialogue
        self._touch(row)
        return row, prefix

    def extend(self, slot: int, tokens: Sequence[int] | npt.NDArray[np.int64]) -> None:
        """Record that the slot now has the keys and values of these next tokens."""
        begin = int(self.length[slot])
        self.tokens[slot, begin : begin + len(tokens)] = tokens
        self.length[slot] = begin + len(tokens)

    def _park(self, row: int, source: int) -> int:
        """Save a waiting dialogue's cache from its row; return the new slot of ``source``."""
        parked = range(self.rows, len(self.length))
        if not parked:
            return source
        place = min(parked, key=lambda slot: (bool(self._dialogue[slot]), self._used[slot]))
        if place == source:  # swap the two, so that neither is overwritten
            length = max(int(self.length[row]), int(self.length[place]))
            pair = self.store[:, :, [place, row], :, :length].clone()
            self.store[:, :, [row, place], :, :length] = pair
            for array in (self.tokens, self.length, self._used):
                array[[row, place]] = array[[place, row]]
            names = self._dialogue
            names[row], names[place] = names[place], names[row]
            return row
        self._copy(row, place, int(self.length[row]))
        self.length[place], self._dialogue[place] = self.length[row], self._dialogue[row]
        self._touch(place)
        return place if source == row else source

    def _copy(self, source: int, target: int, length: int) -> None:
        if source != target and length:
            self.store[:, :, target, :, :length] = self.store[:, :, source, :, :length]
            self.tokens[target, :length] = self.tokens[source, :length]

    def _touch(self, slot: int) -> None:
        self._clock += 1
        self._used[slot] = self._clock


def make_slots(model: Any, slots: int, rows: int, longest: int) -> Slots:
    """Return empty slots for sequences of up to ``longest`` tokens of a ``transformers`` model.

    Raises:
        UserError: the device does not provide the memory.
    """
    config = model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    capacity = SEGMENT * -(-longest // SEGMENT)
    # Zeros, not empty: positions past a dialogue's end are multiplied by zero weights. (On a CPU
    # the system provides zero pages only as they are touched.)
    shape = (config.num_hidden_layers, 2, slots, config.num_key_value_heads, capacity, width)
    try:
        store = torch.zeros(shape, dtype=model.dtype, device=model.device)
    except RuntimeError as error:
        if "tried to allocate" not in str(error).lower():  # as both the CPU's and CUDA's allocators say
            raise
        raise UserError(
            f"keys and values of {slots} slots of {capacity:,} tokens take "
            f"{math.prod(shape) * model.dtype.itemsize / GIB:.1f} GiB, more than the {model.device} provides; "
            f"lower {ENGINE_LIVE}, or max_model_len"
        ) from error
    return Slots(store, rows)


def _common(rows: npt.NDArray[np.int64], prompt: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the length of the common prefix of every row with the prompt, shape (rows,)."""
    if not prompt.size:
        return np.zeros(len(rows), dtype=np.int64)
    differs = rows != prompt
    return np.where(differs.any(axis=1), differs.argmax(axis=1), prompt.size)
