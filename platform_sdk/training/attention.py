"""Attention within the segments of a packed row: an implementation for CPUs, and torch's kernel for GPUs.

A segment is an example, a prompt shared by several examples, or the rest of an example after such a prompt. A token
attends to its segment up to itself, and to all of the segment that it continues. The layout of the segments is known on
the host, so no layer synchronises with the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as functional
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface, AttentionMaskInterface

from platform_sdk.config.errors import UserError

PACKED, VARLEN = "packed", "varlen"
SHARING = frozenset({PACKED, VARLEN})
"""Kinds of attention that support shared prompts."""


@dataclass(frozen=True)
class Segments:
    """Segments of a packed row in order: their lengths, and the segment that each continues (-1: none)."""

    lengths: tuple[int, ...]
    continues: tuple[int, ...]

    @property
    def key_lengths(self) -> tuple[int, ...]:
        """Return the number of keys that each segment's last token attends to."""
        return tuple(
            length + (self.lengths[parent] if parent >= 0 else 0)
            for length, parent in zip(self.lengths, self.continues, strict=True)
        )

    @property
    def key_places(self) -> list[int]:
        """Return the positions in the row of each segment's keys, segment by segment."""
        starts = [0, *accumulate(self.lengths)]
        return [
            place
            for number, parent in enumerate(self.continues)
            for segment in ([parent, number] if parent >= 0 else [number])
            for place in range(starts[segment], starts[segment + 1])
        ]


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    segments: Segments | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention segment by segment: (1, heads, T, d) to (1, T, heads, d).

    A row of T tokens in examples of length L costs T·L instead of T·T with a block-diagonal mask, and needs no mask; on
    a CPU a step of 32 dialogues became eight times as fast.
    """
    segments = _checked(PACKED, segments, attention_mask, sliding_window)
    query, key = query.to(value.dtype), key.to(value.dtype)  # autocast leaves them in the rotary embedding's float32
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    queries, keys, values = (torch.split(whole, list(segments.lengths), dim=2) for whole in (query, key, value))
    parts = []
    for q, k, v, parent in zip(queries, keys, values, segments.continues, strict=True):
        mask: Any = None
        if parent >= 0:
            k, v = torch.cat([keys[parent], k], dim=2), torch.cat([values[parent], v], dim=2)
            mask = causal_lower_right(q.shape[2], k.shape[2])
        parts.append(
            functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=mask is None, scale=scaling
            )
        )
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


def varlen_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    segments: Segments | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Compute all segments at once with torch's kernel, which requires CUDA and bfloat16.

    The keys of a shared prompt are copied before the keys of each segment that continues it.
    """
    segments = _checked(VARLEN, segments, attention_mask, sliding_window)
    if dropout:
        raise ValueError(f"attention {VARLEN!r} has no dropout; set attention to {PACKED}")
    q, k, v = (whole[0].transpose(0, 1).to(value.dtype) for whole in (query, key, value))
    layout = _layout(segments, value.device)
    if layout.key_places is not None:
        k, v = k.index_select(0, layout.key_places), v.index_select(0, layout.key_places)
    from torch.nn.attention import varlen

    output = varlen.varlen_attn(
        q.contiguous(), k.contiguous(), v.contiguous(), layout.query_starts, layout.key_starts,
        max(segments.lengths), max(segments.key_lengths), scale=scaling, window_size=(-1, 0), enable_gqa=True,
    )  # fmt: skip
    assert isinstance(output, torch.Tensor), "no auxiliary output is requested"
    return output[None], None


@dataclass(frozen=True, eq=False)
class _Layout:
    """Segments on a device; ``key_places`` is None if no segment continues another."""

    query_starts: torch.Tensor
    key_starts: torch.Tensor
    key_places: torch.Tensor | None


@lru_cache(maxsize=4)  # every layer of policy and reference requests the same micro-batch
def _layout(segments: Segments, device: torch.device) -> _Layout:
    def starts(lengths: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)

    shared = max(segments.continues) >= 0
    return _Layout(
        starts(segments.lengths),
        starts(segments.key_lengths),
        torch.tensor(segments.key_places, device=device) if shared else None,
    )


def _checked(name: str, segments: Segments | None, mask: torch.Tensor | None, window: int | None) -> Segments:
    if segments is None or mask is not None:
        raise ValueError(f"attention {name!r} needs segments and takes no mask: it serves packed batches only")
    if window is not None and (longest := max(segments.key_lengths)) > window:
        raise UserError(
            f"an example of {longest} tokens exceeds the model's sliding window of {window} tokens; set attention to "
            f"sdpa, or max_length to at most {window}"
        )
    return segments


def _no_mask(*_: Any, **__: Any) -> None:
    """Return no mask, since segments are separate by construction."""


for _name, _attention in ((PACKED, packed_attention), (VARLEN, varlen_attention)):
    AttentionInterface.register(_name, _attention)
    AttentionMaskInterface.register(_name, _no_mask)
