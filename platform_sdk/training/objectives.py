"""Objectives that training minimises.

An objective is a function of the policy's log-probabilities of the agent's tokens and of the packed
batch that holds them, and gives a loss and named statistics. It is called once per micro-batch, and its
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
    itself, and an estimate of its KL divergence from the one that sampled; left out of a step that learns
    from text that no policy sampled.
    """

    normalization: Literal["token", "sequence"] = "token"

    def __call__(self, logprobs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        total = -logprobs.sum()
        loss = total / (batch.step_tokens if self.normalization == "token" else batch.step_examples)
        statistics = {"token_loss": total.detach() / batch.step_tokens}
        if batch.old_logprobs is not None:
            statistics["policy_drift"] = (batch.old_logprobs - logprobs.detach()).sum() / batch.step_tokens
        return loss, statistics


@dataclass(frozen=True)
class GroupRelative:
    r"""GRPO: a clipped policy gradient with advantages relative to the group, and a KL term per token.

    Per agent token, with Â its rollout's advantage, ρ = π_θ / π_old and d = log π_ref - log π_θ:
    -min(ρ Â, clip(ρ, 1 - ``clip``, 1 + ``clip``) Â) + ``beta`` · kl. Sources: DeepSeekMath (Shao et al., 2024),
    equation 3; ARENA for ``k2``.

    ``kl`` names the estimator (Schulman, 2020), and with it what pulls the policy back, since as a part of the loss
    it is its *gradient* that counts:

    - ``k3``, exp(d) - d - 1: gradient (1 - π_ref/π_θ) ∇log π_θ, without bound where the policy has come to give a
      sampled token much less than the reference does; on the policy's own samples it descends KL(π_ref ‖ π_θ);
    - ``k2``, d²/2: gradient -d ∇log π_θ, finite and growing with the logarithm alone; on the policy's own samples it
      descends KL(π_θ ‖ π_ref);
    - ``k1``, -d: gradient ∇log π_θ, which the reference does not enter. On the policy's own samples its mean is
      zero: unbiased as a figure, as a loss it is noise and holds nothing back. There for comparison.

    ``token`` normalisation divides by the step's agent tokens, so a long trajectory weighs more (ARENA's, and
    ``dapo`` in TRL). ``sequence`` is DeepSeekMath's: the mean over examples of the mean over their agent tokens
    (``grpo`` in TRL); not the ``sequence`` of ``MaximumLikelihood``, which sums over the tokens of an example.
    ``constant`` divides an example's sum by ``length`` instead of its own, so that no token's weight depends on how
    long the trajectory became: Dr. GRPO (Liu et al., 2025; ``dr_grpo`` in TRL). Tokens without advantage count in the
    normaliser.

    By default π is the policy at temperature 1, whatever the temperature of sampling: it is the policy that is saved,
    and π_old are the log-probabilities recorded when the tokens were sampled, which engines give at temperature 1, so
    that ρ = 1 before the first update. Samples of another temperature are used as π's own without a correction: a ratio
    to what they were really drawn from would start off 1 and be clipped before anything was learned. With
    ``OnlineSpec.scale_logits`` π, π_old and π_ref are at the sampling temperature; nothing changes here.

    Statistics, all with the loss's weights: ``policy_loss`` and ``kl`` (loss = policy_loss + beta · kl),
    ``clip_fraction`` (tokens whose gradient the clipping cut off) and ``ratio``, the mean of ρ.
    """

    clip: float = 0.2
    beta: float = 0.04
    kl: Literal["k1", "k2", "k3"] = "k2"
    normalization: Literal["token", "sequence", "constant"] = "token"
    length: int | None = None

    def __call__(self, logprobs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        if batch.old_logprobs is None:
            raise ValueError("a policy gradient needs log-probabilities, but no policy sampled some of these examples")
        weights = self._weights(batch)
        ratio = torch.exp(logprobs - batch.old_logprobs)
        free = ratio * batch.advantages
        held = ratio.clamp(1 - self.clip, 1 + self.clip) * batch.advantages
        loss = policy_loss = -(weights * torch.minimum(free, held)).sum()
        statistics = {
            "policy_loss": policy_loss.detach(),
            "clip_fraction": (weights * (held < free)).sum(),
            "ratio": (weights * ratio.detach()).sum(),
        }
        if self.beta > 0:
            kl = (weights * self._divergence(logprobs, batch)).sum()
            statistics["kl"] = kl.detach()
            loss = policy_loss + self.beta * kl
        return loss, statistics

    def _weights(self, batch: Batch) -> torch.Tensor:
        """(A,), over a whole step adding up to 1 (``constant``: to the examples' mean length by ``length``)."""
        ones = torch.ones_like(batch.advantages)
        if self.normalization == "token":
            return ones / batch.step_tokens
        if self.length is not None:
            return ones / self.length / batch.step_examples
        lengths = torch.bincount(batch.example)
        return ones / lengths[batch.example] / batch.step_examples

    def _divergence(self, logprobs: torch.Tensor, batch: Batch) -> torch.Tensor:
        if batch.reference_logprobs is None:
            raise ValueError("beta is above 0, but the batch has no log-probabilities of a reference")
        d = batch.reference_logprobs - logprobs
        if self.kl == "k1":
            return -d
        return d.square() / 2 if self.kl == "k2" else torch.exp(d) - d - 1
