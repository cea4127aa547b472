"""Log-probabilities of given continuations, by forward passes of bounded size (the transformers engine's ``score``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch

from platform_sdk.sampling.kv_attention import Chunk
from platform_sdk.sampling.kv_slots import Slots

ROWS = 16
"""Number of pairs scored concurrently."""
LOGITS_AT_ONCE = 1 << 25
"""Most logits of a forward pass, 128 MiB of float32."""

Forward = Callable[[list[int], list[Chunk], list[int]], torch.Tensor]
"""Maps a flat row of tokens, their chunks, and positions in the row to logits (positions, vocabulary)."""


def score(
    prompts: Sequence[Sequence[int]],
    continuations: Sequence[Sequence[int]],
    slots: Slots,
    forward: Forward,
    tokens_at_once: int,
    vocabulary: int,
) -> list[tuple[float, ...]]:
    """Return the log-probabilities of each continuation's tokens after its prompt.

    Pairs are processed in the order of their prompts, and a pair waits for a prompt in progress that shares a prefix:
    many continuations of one prompt process the prompt once.

    Args:
        slots: empty slots, one row per concurrently scored pair.
        forward: a forward pass over the keys and values of ``slots``.
        tokens_at_once: the maximum number of tokens in a forward pass.
        vocabulary: number of logits per token.
    """
    starts = [np.asarray(prompt, dtype=np.int64) for prompt in prompts]
    # The last token predicts nothing.
    inputs = [np.array([*one, *other[:-1]], dtype=np.int64) for one, other in zip(prompts, continuations, strict=True)]
    waiting = deque(sorted(range(len(starts)), key=lambda number: list(prompts[number])))
    rows: dict[int, int] = {}
    found: list[list[float]] = [[] for _ in starts]
    while waiting or rows:
        idle = set(range(slots.rows)) - set(rows.values())
        while waiting and idle:
            start = starts[waiting[0]]
            reading = [starts[number] for number, row in rows.items() if slots.length[row] < len(starts[number]) - 1]
            if slots.worth_waiting(start, reading):
                break
            row, _ = slots.take("", start, idle)
            rows[waiting.popleft()] = row
            idle.remove(row)
        flat: list[int] = []
        chunks: list[Chunk] = []
        heads: list[int] = []
        targets: list[tuple[int, int]] = []
        for number, row in rows.items():
            begin, place, done = int(slots.length[row]), len(flat), len(found[number])
            first = len(starts[number]) - 1 + done  # the next position with required logits
            room = max(LOGITS_AT_ONCE // vocabulary, 1) - len(heads)
            end = min(len(inputs[number]), begin + tokens_at_once - place, first + room)
            if end == begin:
                continue
            part = inputs[number][begin:end]
            flat += part.tolist()
            chunks.append(Chunk(row, place, len(flat), begin))
            slots.extend(row, part)
            wanted = range(first, end)
            heads += [place + position - begin for position in wanted]
            targets += [(number, token) for token in continuations[number][done : done + len(wanted)]]
        logits = forward(flat, chunks, heads)
        tokens = torch.tensor([token for _, token in targets], dtype=torch.long, device=logits.device)
        logprobs = torch.log_softmax(logits.float(), dim=-1).gather(1, tokens[:, None])[:, 0]
        for (number, _), logprob in zip(targets, logprobs.tolist(), strict=True):
            found[number].append(logprob)
        rows = {number: row for number, row in rows.items() if len(found[number]) < len(continuations[number])}
    return [tuple(logprobs) for logprobs in found]
