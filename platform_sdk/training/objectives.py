"""What training minimises.

An objective is a function of the policy's log-probabilities of the agent's tokens and of the packed
batch they stand in, and gives a loss and named statistics. It is called once per micro-batch, and its
values are parts of the step's: over the micro-batches and processes of a step they *add up*. So it
divides by the step's normalisers (``batch.step_tokens``, ``batch.step_examples``) and never by counts
of its own micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from platform_sdk.training.batches import Batch

Objective = Callable[[torch.Tensor, Batch], tuple[torch.Tensor, dict[str, torch.Tensor]]]


@dataclass(frozen=True)
class MaximumLikelihood:
    r"""Cross-entropy on the agent's tokens: MyGO's objective.

    ``sequence`` is the formula of the paper, -(1/|D|) Σ_τ Σ_j 1(o_j is the agent's) log π(o_j | o_<j), with
    the step's examples for D: a long dialogue weighs more. ``token`` divides by the step's agent tokens,
    as frameworks for supervised fine-tuning do (the paper trained with one).

    Statistics: ``token_loss``, the mean over agent tokens whatever the normalisation; and
    ``policy_drift``, the mean of old minus new log-probability: 0 when the tokens come from the policy
    itself, and an estimate of its KL divergence from the one that sampled.
    """

    normalization: Literal["token", "sequence"] = "token"

    def __call__(self, logprobs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        total = -logprobs.sum()
        loss = total / (batch.step_tokens if self.normalization == "token" else batch.step_examples)
        with torch.no_grad():
            drift = (batch.old_logprobs - logprobs).sum() / batch.step_tokens
        return loss, {"token_loss": total.detach() / batch.step_tokens, "policy_drift": drift}
