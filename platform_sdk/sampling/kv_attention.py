"""Batch-invariant attention over a KV cache.

The engine runs the model on one flat row of tokens: one token of each decoding dialogue, then chunks of prompts. Linear
layers, norms and rotary embeddings process tokens independently; only attention depends on the dialogue of a token.
This function is registered with ``transformers`` and gets a ``Plan`` through the model's forward.

Bitwise batch invariance on a CPU (see ``invariance`` for the linear layers): products over a dialogue's cache have two
shapes, a block of prompt tokens and a single decoded token; ``decode_rows`` measures the number of rows with which the
second shape gives the bits of the first, and decoding pads to it. The sum over the context consists of explicit
segments of ``SEGMENT`` positions, in order; masked positions add exact zeros. So the keys and values of a token have
the same bits in prompt processing and in decoding, alone or in a batch, and caches may be shared and dropped without
affecting results. Where results depend on the batch anyway (a GPU; a CPU whose linear layers are not invariant, as
in bfloat16 or with several threads on some CPUs), torch's fused attention is faster and used instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn import functional
from transformers import AttentionInterface

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "hopforge_kv"
MIN_ROWS = 4
MAX_ROWS = 16
SEGMENT = 128
MOST_COPIED = 0.25
"""Maximum share of decoding slots for which attention copies their caches. With a larger share it reads all slots up to
the last decoding one, without a copy (``benchmarks/sampling.py``)."""
MEASURED_CONTEXTS = (SEGMENT // 2, SEGMENT, 3 * SEGMENT)


@dataclass(frozen=True)
class Chunk:
    """Tokens ``[begin, end)`` of the flat row are the positions from ``start`` on of one slot."""

    slot: int
    begin: int
    end: int
    start: int


@dataclass(frozen=True)
class Plan:
    """Slot and position of every token of a forward pass.

    Attributes:
        store: keys and values, shape (layers, 2, slots, kv heads, capacity, head dimension).
        slots: slot of every token, shape (tokens,); the first ``len(decode)`` are decoded tokens.
        positions: position of every token in its slot, shape (tokens,).
        read: slots that the decode product reads: a slice, which is a view of the cache, or the slots of the decoded
            tokens alone, which are copied (see ``MOST_COPIED``).
        decode: rows of the decoded tokens in the decode product.
        mask: additive, for the decode product, shape (rows, 1, 1, context).
        decode_rows: rows of the product of one decoded token and one key-value head (see the function).
        chunks: the prompt chunks, each with its additive mask of shape (padded tokens, context).
        kernels: the functions to use (see ``KERNELS``).
        decoded: slot and number of positions of each decoded token's dialogue.
    """

    store: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    read: slice | torch.Tensor
    decode: torch.Tensor
    mask: torch.Tensor
    decode_rows: int
    chunks: tuple[tuple[Chunk, torch.Tensor], ...]
    kernels: Kernels
    decoded: tuple[tuple[int, int], ...]


@lru_cache(maxsize=64)
def decode_rows(groups: int, width: int, dtype: torch.dtype, threads: int) -> int:
    """Measure the number of rows with which a decoded token's product gives the bits of a prompt's product on this CPU.

    Args:
        groups: query heads per key-value head.
        width: the dimension of a head.
        threads: torch's number of threads, which affects the kernels.
    """
    together, product_rows = _tokens_per_product(groups), _product_rows(groups)
    random = torch.Generator().manual_seed(0)
    queries, keys, values = (
        torch.randn(count, width, generator=random).to(dtype)
        for count in (product_rows, max(MEASURED_CONTEXTS), max(MEASURED_CONTEXTS))
    )

    def mixed(rows: torch.Tensor, context: int) -> torch.Tensor:
        seen = keys[:context].expand(len(rows), -1, -1)
        weights = torch.softmax(torch.bmm(rows, seen.transpose(-1, -2)), dim=-1)
        return _mix(weights, values[:context].expand(len(rows), -1, -1))

    def agrees(rows: int) -> bool:
        spread = queries.new_zeros(together, rows, width)
        spread[:, :groups] = queries[: together * groups].view(together, groups, width)
        return all(
            torch.equal(
                mixed(spread, context)[:, :groups].reshape(-1, width),
                mixed(queries[None], context)[0, : together * groups],
            )
            for context in MEASURED_CONTEXTS
        )

    with torch.inference_mode():
        candidates = [rows for rows in (MIN_ROWS, 2 * MIN_ROWS) if groups <= rows < product_rows]
        return next((rows for rows in candidates if agrees(rows)), product_rows)


def make_plan(
    store: torch.Tensor,
    decode: Sequence[int],
    decode_positions: Sequence[int],
    chunks: Sequence[Chunk],
    groups: int,
    rows: int,
    *,
    kernels: Kernels,
) -> Plan:
    """Return a forward pass's plan for ``groups`` query heads per key-value head and ``rows`` of ``decode_rows``."""
    device = store.device
    slots, positions = list(decode), list(decode_positions)
    for chunk in chunks:
        length = chunk.end - chunk.begin
        slots += [chunk.slot] * length
        positions += range(chunk.start, chunk.start + length)
    decoding, in_view = torch.tensor(decode, dtype=torch.long, device=device), max(decode, default=-1) + 1
    copied = kernels == "invariant" and len(decode) <= MOST_COPIED * in_view
    row_of = torch.arange(len(decode), device=device) if copied else decoding
    last = torch.full((len(decode) if copied else in_view,), -1, device=device)
    last[row_of] = torch.tensor(decode_positions, dtype=torch.long, device=device)
    mask = _mask(last, _context(max(decode_positions, default=0)), store.dtype)
    masked_chunks = []
    for chunk in chunks:
        length, tokens = chunk.end - chunk.begin, _tokens_per_product(groups)
        padded = -(-length // tokens) * tokens
        last = torch.arange(chunk.start, chunk.start + padded, device=device)
        masked_chunks.append((chunk, _mask(last, _context(chunk.start + length - 1), store.dtype)))
    return Plan(
        store,
        torch.tensor(slots, dtype=torch.long, device=device),
        torch.tensor(positions, dtype=torch.long, device=device),
        decoding if copied else slice(in_view),
        row_of,
        mask[:, None, None, :],
        rows,
        tuple(masked_chunks),
        kernels,
        tuple((slot, position + 1) for slot, position in zip(decode, decode_positions, strict=True)),
    )


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    plan: Plan,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Store the new keys and values, then attend to each token's slot.

    Shapes: query (1, heads, tokens, d), key and value (1, kv heads, tokens, d), possibly with ignored padding tokens at
    the end; result (1, tokens, heads, d).
    """
    keys, values = plan.store[int(module.layer_idx)]  # type: ignore[arg-type]
    real = len(plan.slots)
    keys[plan.slots, :, plan.positions] = key[0, :, :real].transpose(0, 1)
    values[plan.slots, :, plan.positions] = value[0, :, :real].transpose(0, 1)
    heads, tokens, width = query.shape[1:]
    kv_heads = key.shape[1]
    queries = (query[0].transpose(0, 1) * scaling).reshape(tokens, kv_heads, heads // kv_heads, width)
    attend_decoded, attend_chunk = KERNELS[plan.kernels]
    result = torch.zeros_like(queries)
    if len(plan.decode):
        result[: len(plan.decode)] = attend_decoded(queries[: len(plan.decode)], keys, values, plan)
    for chunk, mask in plan.chunks:
        part = queries[chunk.begin : chunk.end]
        result[chunk.begin : chunk.end] = attend_chunk(part, keys[chunk.slot], values[chunk.slot], mask)
    return result.reshape(1, tokens, heads, width), None


AttentionInterface.register(NAME, attend)


def _decode(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Attend with one token per slot."""
    rows, context = plan.mask.shape[0], plan.mask.shape[-1]
    _, kv_heads, groups, width = queries.shape
    spread = queries.new_zeros(rows, kv_heads, plan.decode_rows, width)
    spread[plan.decode, :, :groups] = queries
    scores = torch.matmul(spread, keys[plan.read, :, :context].transpose(-1, -2))
    scores += plan.mask
    shape = (rows * kv_heads, -1, context)
    weights = torch.softmax(scores, dim=-1).view(shape)
    mixed = _mix(weights, values[plan.read, :, :context].view(rows * kv_heads, context, width))
    return mixed.view(rows, kv_heads, -1, width)[plan.decode, :, :groups]


def _decode_fused(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, plan: Plan) -> torch.Tensor:
    """``_decode`` without batch invariance, by one call, which suits a GPU."""
    rows, context = plan.mask.shape[0], plan.mask.shape[-1]
    spread = queries.new_zeros(rows, *queries.shape[1:])
    spread[plan.decode] = queries
    seen, mixed = keys[plan.read, :, :context], values[plan.read, :, :context]
    return functional.scaled_dot_product_attention(spread, seen, mixed, attn_mask=plan.mask, scale=1.0)[plan.decode]


def _decode_by_slot(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, plan: Plan) -> torch.Tensor:
    """``_decode`` without batch invariance, by one call per slot: a CPU then reads no slot beyond its own length."""
    return torch.cat(
        [
            functional.scaled_dot_product_attention(
                query[None], keys[slot, None, :, :length], values[slot, None, :, :length], scale=1.0
            )
            for query, (slot, length) in zip(queries, plan.decoded, strict=True)
        ]
    )


def _chunk_fused(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``_chunk`` without batch invariance."""
    length, _, groups, _ = queries.shape
    context = mask.shape[-1]
    seen, mixed = (each[:, None, :context].expand(-1, groups, -1, -1) for each in (keys, values))
    rows = queries.permute(1, 2, 0, 3)
    return functional.scaled_dot_product_attention(rows, seen, mixed, attn_mask=mask[:length], scale=1.0).permute(
        2, 0, 1, 3
    )


def _chunk(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attend with successive tokens of one slot, in products of ``_tokens_per_product`` tokens each."""
    length, kv_heads, groups, width = queries.shape
    padded, context = mask.shape
    together = _tokens_per_product(groups)
    filled = queries.new_zeros(padded, kv_heads, groups, width)
    filled[:length] = queries
    rest = _product_rows(groups) - together * groups
    mask = mask[:, None].expand(-1, groups, -1).reshape(padded // together, together * groups, context)
    if rest:  # padding by 0 would copy
        mask = functional.pad(mask, (0, 0, 0, rest))
    result = torch.empty_like(filled)
    for head in range(kv_heads):
        blocks = filled[:, head].reshape(len(mask), together * groups, width)
        if rest:
            blocks = functional.pad(blocks, (0, 0, 0, rest))
        seen = keys[head, :context].expand(len(blocks), -1, -1)
        weights = torch.softmax(torch.bmm(blocks, seen.transpose(-1, -2)) + mask, dim=-1)
        mixed = _mix(weights, values[head, :context].expand(len(blocks), -1, -1))
        result[:, head] = mixed[:, : together * groups].reshape(padded, groups, width)
    return result[:length]


Kernels = Literal["invariant", "fused", "by slot"]
KERNELS = {
    "invariant": (_decode, _chunk), "fused": (_decode_fused, _chunk_fused), "by slot": (_decode_by_slot, _chunk_fused)
}  # fmt: skip
"""Functions for decoded tokens and for chunks. Only ``invariant`` is batch-invariant; of the others, ``fused`` suits a
GPU and ``by slot`` a CPU."""


def _mix(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return ``weights @ values``, summed over the context in fixed segments."""
    mixed = torch.bmm(weights[..., :SEGMENT], values[:, :SEGMENT])
    for begin in range(SEGMENT, values.shape[1], SEGMENT):
        mixed = torch.baddbmm(mixed, weights[..., begin : begin + SEGMENT], values[:, begin : begin + SEGMENT])
    return mixed


def _tokens_per_product(groups: int) -> int:
    return max(MAX_ROWS // groups, 1)


def _product_rows(groups: int) -> int:
    """Return the rows of the product of a block of tokens: kernels give other bits in incomplete blocks of rows."""
    return -(-groups // MAX_ROWS) * MAX_ROWS


def _context(last: int) -> int:
    """Return the number of cached positions to read: few different lengths, since memory is reused by size."""
    return -(-(last + 1) // (SEGMENT // 2)) * (SEGMENT // 2)


def _mask(last: torch.Tensor, context: int, dtype: torch.dtype) -> torch.Tensor:
    """Return 0 at positions up to ``last``, else -inf, shape (len(last), context). Rows without any stay 0."""
    hidden = torch.arange(context, device=last.device) > last[:, None]
    hidden &= last[:, None] >= 0
    return torch.zeros(hidden.shape, dtype=dtype, device=last.device).masked_fill_(hidden, float("-inf"))
