"""Objectives that training minimises.

An objective maps the policy's log-probabilities of the agent tokens and the packed batch to a loss and named
statistics. It is called once per micro-batch, and its values *add up* over the micro-batches and processes of a step.
So it divides by the step's normalisers (``batch.step_tokens``, ``batch.step_examples``), never by counts of its
micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from platform_sdk.config.online import CispoClip, Clip, EngineCorrection, GspoClip, OnlineSpec
from platform_sdk.training.batches import Batch

TAIL = 2.0
"""Ratios above this value or below its inverse count as tail."""

Objective = Callable[[torch.Tensor, Batch], tuple[torch.Tensor, dict[str, torch.Tensor]]]


@dataclass(frozen=True)
class MaximumLikelihood:
    r"""Cross-entropy on the agent's tokens: MyGO's objective.

    ``sequence`` is the formula of the paper, -(1/|D|) Σ_τ Σ_j 1(o_j is the agent's) log π(o_j | o_<j), with
    the step's examples for D: a long dialogue weighs more. ``token`` divides by the step's agent tokens,
    as frameworks for supervised fine-tuning do (the paper trained with one).

    Statistics: ``token_loss``, the mean over agent tokens for any normalisation; and ``policy_drift``, the mean of old
    minus new log-probability, an estimate of the KL divergence from the sampling policy (0 for the same policy); it is
    left out if any example of the step was not sampled by a policy.
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
    r"""A policy gradient with advantages relative to the group, a bounded ratio, and a KL term per token.

    Per agent token, with Â its advantage, ρ = π_θ / π_old and d = log π_ref - log π_θ: w · surrogate + ``beta`` · kl.
    ``clip`` chooses the surrogate:

    - a number, GRPO's (DeepSeekMath, Shao et al., 2024, equation 3): -min(ρ Â, clip(ρ, 1 - ``clip``, 1 + ``clip``) Â);
    - ``ClipRange``: the same with separate bounds, 1 - ``low`` and 1 + ``high`` (clip-higher, DAPO);
    - ``CispoClip``: -sg(min(ρ, ``maximum``)) Â log π_θ, with sg a constant to the gradient (MiniMax-M1; ``cispo`` in
      TRL);
    - ``GspoClip``: as ``ClipRange``, with the trajectory's ratio s = (Π ρ)^(1/length) for ρ. A token's gradient is
      s ∇log π_θ, as in GSPO-token, which equals GSPO if all tokens of a trajectory share Â.

    w is 1, or with ``correction`` the truncated importance weight min(π_old / π_engine, maximum), with the
    probabilities of the same tokens under the trainer (π_old) and the engine (TIS).

    ``kl`` names the estimator (Schulman, 2020). As a part of the loss, only its *gradient* matters:

    - ``k3``, exp(d) - d - 1: gradient (1 - π_ref/π_θ) ∇log π_θ, unbounded if the policy gives a sampled token a much
      lower probability than the reference; on the policy's own samples it descends KL(π_ref ‖ π_θ);
    - ``k2``, d²/2: gradient -d ∇log π_θ, which grows only logarithmically; on the policy's own samples it
      descends KL(π_θ ‖ π_ref); ARENA's;
    - ``k1``, -d: gradient ∇log π_θ, independent of the reference. On the policy's own samples its mean is zero: an
      unbiased statistic, but as a loss only noise without regularisation. For comparison.

    ``token`` normalisation divides by the step's agent tokens, so a long trajectory weighs more (ARENA's, and ``dapo``
    in TRL). ``sequence`` is DeepSeekMath's: the mean over examples of the mean over their agent tokens (``grpo`` in
    TRL); not the ``sequence`` of ``MaximumLikelihood``, which sums over the tokens of an example. ``constant`` divides
    an example's sum by ``length`` instead of the example's length, so a token's weight does not depend on the
    trajectory's length: Dr. GRPO (Liu et al., 2025; ``dr_grpo`` in TRL). Tokens without advantage count in the
    normaliser.

    By default π is the policy at temperature 1 for any sampling temperature: this is the saved policy, and π_old are
    the log-probabilities recorded in sampling, which engines report at temperature 1, so ρ = 1 before the first update.
    Samples of another temperature are treated as π's own, without a correction: a ratio to the true sampling
    distribution would differ from 1 at the start and be clipped. With ``OnlineSpec.scale_logits`` π, π_old and π_ref
    are at the sampling temperature; nothing changes here.

    Statistics with the loss's weights: ``policy_loss`` and ``kl`` (loss = policy_loss + beta · kl), ``clip_fraction``
    (tokens whose gradient was changed by clipping) and ``ratio``, the mean of ρ; under ``constant``, whose weights do
    not sum to 1, the last two are means over the step's agent tokens. Means over the step's agent tokens:
    ``ratio_tail``, the share with ρ above 2 or below 1/2; ``ratio_moment1`` and ``ratio_moment2``, the means of ρ and
    ρ² for ``effective_sample_size``; with importance weights ``importance`` and ``importance_truncated``, their mean
    and the share at the bound.
    """

    clip: Clip = 0.2
    beta: float = 0.04
    kl: Literal["k1", "k2", "k3"] = "k2"
    normalization: Literal["token", "sequence", "constant"] = "token"
    length: int | None = None
    correction: EngineCorrection | None = None

    @classmethod
    def of(cls, spec: OnlineSpec) -> GroupRelative:
        """Return the objective of an online run."""
        return cls(spec.clip, spec.beta, spec.kl, spec.normalization, spec.normalization_length, spec.engine_correction)

    def __call__(self, logprobs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        if batch.old_logprobs is None:
            raise ValueError("a policy gradient needs log-probabilities, but no policy sampled some of these examples")
        weights = self._weights(batch)
        log_ratio = logprobs - batch.old_logprobs
        if isinstance(self.clip, GspoClip):
            log_ratio = _mean_of_example(log_ratio.detach(), batch) + logprobs - logprobs.detach()
        ratio = torch.exp(log_ratio)
        gain, bounded = self._gain(ratio, logprobs, batch.advantages)
        importance = None if self.correction is None else importance_weights(batch, self.correction)
        if importance is not None:
            gain = importance * gain
        loss = policy_loss = -(weights * gain).sum()
        # Weights by a constant length do not sum to 1.
        shares = weights if self.length is None else torch.ones_like(weights) / batch.step_tokens
        statistics = {
            "policy_loss": policy_loss.detach(),
            "clip_fraction": (shares * bounded).sum(),
            "ratio": (shares * ratio.detach()).sum(),
        }
        statistics |= {
            name: value / batch.step_tokens for name, value in self._sums(ratio.detach(), importance).items()
        }
        if self.beta > 0:
            kl = (weights * self._divergence(logprobs, batch)).sum()
            statistics["kl"] = kl.detach()
            loss = policy_loss + self.beta * kl
        return loss, statistics

    def _gain(
        self, ratio: torch.Tensor, logprobs: torch.Tensor, advantages: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the negative loss of each token, and the tokens changed by clipping."""
        if isinstance(self.clip, CispoClip):
            weight = ratio.detach().clamp(max=self.clip.maximum)
            return weight * advantages * logprobs, (ratio.detach() > self.clip.maximum) & (advantages != 0)
        low, high = (self.clip, self.clip) if isinstance(self.clip, float) else (self.clip.low, self.clip.high)
        free = ratio * advantages
        held = ratio.clamp(1 - low, 1 + high) * advantages
        return torch.minimum(free, held), held < free

    def _sums(self, ratio: torch.Tensor, importance: torch.Tensor | None) -> dict[str, torch.Tensor]:
        sums = {
            "ratio_tail": ((ratio > TAIL) | (ratio < 1 / TAIL)).sum(),
            "ratio_moment1": ratio.sum(),
            "ratio_moment2": ratio.square().sum(),
        }
        if importance is not None and self.correction is not None:
            sums["importance"] = importance.sum()
            sums["importance_truncated"] = (importance >= self.correction.maximum).sum()
        return sums

    def _weights(self, batch: Batch) -> torch.Tensor:
        """Return weights (A,) that sum to 1 over a step (``constant``: to the mean length divided by ``length``)."""
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


def importance_weights(batch: Batch, correction: EngineCorrection) -> torch.Tensor:
    """Return min(π_old / π_engine, maximum) for each agent token, or for its whole trajectory."""
    if batch.old_logprobs is None or batch.engine_logprobs is None:
        raise ValueError("a correction needs the log-probabilities of the trainer's and of the engine's policy")
    difference = batch.old_logprobs - batch.engine_logprobs
    if correction.level == "sequence":
        difference = _sum_of_example(difference, batch)
    return torch.exp(difference).clamp(max=correction.maximum)


def effective_sample_size(moment1: float, moment2: float) -> float:
    """Return the effective share of weighted samples, (Σ ρ)² / (n Σ ρ²) (Kish), from the means of ρ and ρ²."""
    return moment1**2 / moment2


def _sum_of_example(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return for each agent token the sum over its example, which is complete in a micro-batch."""
    sums = values.new_zeros(int(batch.example.max()) + 1 if len(values) else 0)
    return sums.index_add(0, batch.example, values)[batch.example]


def _mean_of_example(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    return _sum_of_example(values, batch) / _sum_of_example(torch.ones_like(values), batch)
