"""Sampling of one token per row of logits, with temperature, filters and random number per row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from platform_sdk.sampling.engine import SamplingParams

GREEDY_BELOW = 1e-5
"""Temperature below which decoding is greedy, as in vLLM; logits divided by a much smaller one are infinite."""


def sample(
    logits: torch.Tensor, params: Sequence[SamplingParams], uniforms: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Sample a token for every row.

    Args:
        logits: shape (rows, vocabulary).
        params: one per row. Temperature applies first, then top-k, then top-p.
        uniforms: one number in [0, 1) per row: the token is where the cumulative probability of
            the tokens in order of their ids first exceeds it (inverse transform sampling).

    Returns:
        The tokens, and their log-probabilities in the full distribution at temperature 1.
    """
    logits = logits.float()
    logprobs = torch.log_softmax(logits, dim=-1)
    temperatures = np.array([one.temperature for one in params], dtype=np.float32)
    drawn = [row for row, one in enumerate(params) if one.temperature >= GREEDY_BELOW]
    tokens = torch.argmax(logits, dim=-1)
    if drawn:
        rows = torch.tensor(drawn, device=logits.device)
        scale = torch.from_numpy(temperatures[drawn]).to(logits.device)
        plain = bool((temperatures[drawn] == 1).all())
        probabilities = (logprobs[rows] if plain else torch.log_softmax(logits[rows] / scale[:, None], dim=-1)).exp()
        if any(params[i].top_k or params[i].top_p < 1 for i in drawn):
            probabilities = _filter(probabilities, [params[i] for i in drawn])
        cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
        threshold = torch.tensor([uniforms[i] for i in drawn], dtype=torch.float64, device=logits.device)
        found = torch.searchsorted(cumulative, (threshold * cumulative[:, -1])[:, None], right=True)[:, 0]
        tokens[rows] = found
    chosen = logprobs.gather(1, tokens[:, None])[:, 0]
    return tokens.tolist(), chosen.tolist()


def _filter(probabilities: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Set probabilities excluded by top-k and top-p to 0. Top-p applies to the tokens left by top-k, as usual."""
    vocabulary = probabilities.shape[-1]
    device = probabilities.device
    kept = torch.tensor([one.top_k or vocabulary for one in params], device=device)[:, None]
    mass = torch.tensor([one.top_p for one in params], dtype=torch.float64, device=device)[:, None]
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    ordered = ordered.masked_fill(torch.arange(vocabulary, device=device) >= kept, 0.0)
    before = ordered.cumsum(dim=-1, dtype=torch.float64) - ordered
    total = ordered.sum(dim=-1, dtype=torch.float64, keepdim=True)
    ordered = ordered.masked_fill((before >= mass * total) & (mass < 1), 0.0)
    return torch.zeros_like(probabilities).scatter_(1, order, ordered)
