"""GRPO's objective: numbers computed by hand, and a plain reading of the formula with autograd."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, log
from pathlib import Path
from typing import Any

import pytest
import torch

from platform_sdk.config.online import CispoClip, ClipRange, EngineCorrection, GspoClip
from platform_sdk.config.training import TrainSpec
from platform_sdk.records import Question, Rollout, Trajectory
from platform_sdk.training.batches import Batch, MicroBatch, pack, shared_step
from platform_sdk.training.credit import GroupAdvantage
from platform_sdk.training.examples import Example, examples_of
from platform_sdk.training.objectives import GroupRelative, effective_sample_size
from platform_sdk.training.policy import agent_logprobs, load_policy


def example(name: str, advantage: float, old: list[float]) -> Example:
    """A prompt of one token, and an agent's token for each of the ``old`` log-probabilities."""
    size = len(old)
    return Example(
        name, tuple(range(size + 1)), (0,) + (1,) * size, (0.0, *old), "w", (0.0,) + (advantage,) * size
    )  # fmt: skip


def batch_of(
    examples: list[Example], whole: list[Example] | None = None, reference: list[float] | None = None
) -> Batch:
    step = shared_step(whole or examples, 1, 10**6)
    batch = pack(examples, MicroBatch(tuple(range(len(examples)))), step)
    return replace(batch, reference_logprobs=None if reference is None else torch.tensor(reference))


def ratios(*values: float) -> torch.Tensor:
    """Log-probabilities that are ``values`` times the old ones, which are 1/4."""
    return torch.tensor([log(value / 4) for value in values], requires_grad=True)


# Â = 2: a ratio of 1.5 is held at 1.2, one of 0.5 counts. Â = -1: 0.5 is held at 0.8, 1.5 and 0.9 count.
TWO = [example("a", 2.0, [log(1 / 4)] * 2), example("b", -1.0, [log(1 / 4)] * 3)]
RATIOS = (1.5, 0.5, 0.5, 1.5, 0.9)


def test_clipping_on_both_sides_by_hand() -> None:
    logprobs = ratios(*RATIOS)
    loss, statistics = GroupRelative(clip=0.2, beta=0.0)(logprobs, batch_of(TWO))
    assert loss.item() == pytest.approx((-2.4 - 1.0 + 0.8 + 1.5 + 0.9) / 5)
    assert statistics["policy_loss"].item() == pytest.approx(loss.item())
    assert statistics["clip_fraction"].item() == pytest.approx(2 / 5)
    assert statistics["ratio"].item() == pytest.approx((1.5 + 0.5 + 0.5 + 1.5 + 0.9) / 5)
    assert "kl" not in statistics
    loss.backward()
    # d ρ / d log π = ρ; nothing flows where the clipped value counts.
    torch.testing.assert_close(logprobs.grad, torch.tensor([0.0, -1.0, 0.0, 1.5, 0.9]) / 5)


def test_bounds_of_their_own_by_hand() -> None:
    logprobs = ratios(*RATIOS)
    loss, _ = GroupRelative(ClipRange(type="range", low=0.4, high=0.28), 0.0)(logprobs, batch_of(TWO))
    assert loss.item() == pytest.approx((-2 * 1.28 - 1.0 + 0.6 + 1.5 + 0.9) / 5)


def test_cispo_by_hand_keeps_every_gradient() -> None:
    logprobs = ratios(*RATIOS)
    loss, statistics = GroupRelative(CispoClip(type="cispo", maximum=1.2), 0.0)(logprobs, batch_of(TWO))
    weights, advantages = torch.tensor([1.2, 0.5, 0.5, 1.2, 0.9]), torch.tensor([2.0, 2.0, -1.0, -1.0, -1.0])
    torch.testing.assert_close(loss, -(weights * advantages * logprobs.detach()).sum() / 5)
    assert statistics["clip_fraction"].item() == pytest.approx(2 / 5)
    loss.backward()
    torch.testing.assert_close(logprobs.grad, -weights * advantages / 5)


def test_cispo_counts_no_token_without_an_advantage_as_clipped() -> None:
    examples = [*TWO, example("c", 0.0, [log(1 / 4)] * 2), example("d", 1.0, [log(1 / 4)])]
    clip = CispoClip(type="cispo", maximum=1.2)
    _, statistics = GroupRelative(clip, 0.0)(ratios(*RATIOS, 2.0, 2.0, 2.0), batch_of(examples))
    assert statistics["clip_fraction"].item() == pytest.approx(3 / 8)


def test_gspo_by_hand_has_one_ratio_for_a_trajectory() -> None:
    """Ratios √(3/4) and ∛(27/40): within the bounds for the first; below for the second, whose Â is negative."""
    logprobs = ratios(*RATIOS)
    objective = GroupRelative(GspoClip(type="gspo", low=0.12, high=0.1), 0.0, "k2", "sequence")
    loss, statistics = objective(logprobs, batch_of(TWO))
    assert loss.item() == pytest.approx((-2 * 0.75**0.5 + 0.88) / 2)
    assert statistics["clip_fraction"].item() == pytest.approx(1 / 2)
    loss.backward()
    first = -2 * 0.75**0.5 / 2 / 2
    torch.testing.assert_close(logprobs.grad, torch.tensor([first, first, 0.0, 0.0, 0.0]))


def test_engine_correction_by_hand_multiplies_losses_by_truncated_weights() -> None:
    """The engine gave 1/8, 1/2, 1/4, 1/4 and 1/40 where the trainer gives 1/4: weights 2, 1/2, 1, 1 and 10."""
    batch = replace(batch_of(TWO), engine_logprobs=torch.tensor([1 / 8, 1 / 2, 1 / 4, 1 / 4, 1 / 40]).log())
    token = GroupRelative(0.2, 0.0, correction=EngineCorrection(maximum=3.0))
    loss, statistics = token(ratios(*RATIOS), batch)
    assert loss.item() == pytest.approx((2 * -2.4 - 0.5 * 1.0 + 0.8 + 1.5 + 3 * 0.9) / 5)
    assert statistics["importance"].item() == pytest.approx((2 + 0.5 + 1 + 1 + 3) / 5)
    assert statistics["importance_truncated"].item() == pytest.approx(1 / 5)
    sequence = GroupRelative(0.2, 0.0, correction=EngineCorrection(level="sequence", maximum=3.0))
    assert sequence(ratios(*RATIOS), batch)[0].item() == pytest.approx((-2.4 - 1.0 + 3 * (0.8 + 1.5 + 0.9)) / 5)
    with pytest.raises(ValueError, match="the engine's policy"):
        token(ratios(*RATIOS), batch_of(TWO))


def test_tail_and_effective_sample_size_by_hand() -> None:
    _, statistics = GroupRelative(0.2, 0.0)(ratios(2.5, 1.0, 0.25, 0.75, 0.5), batch_of(TWO))
    assert statistics["ratio_tail"].item() == pytest.approx(2 / 5)  # above 2, or below a half
    moments = statistics["ratio_moment1"].item(), statistics["ratio_moment2"].item()
    assert moments == pytest.approx((5 / 5, 8.125 / 5))
    assert effective_sample_size(*moments) == pytest.approx(5**2 / (5 * 8.125))


@pytest.mark.parametrize("clip", [CispoClip(type="cispo", maximum=1.2), GspoClip(type="gspo", low=0.12, high=0.1)])
def test_micro_batches_add_up_under_every_clip_and_correction(clip: Any) -> None:
    objective = GroupRelative(clip, 0.0, "k2", "sequence", None, EngineCorrection(level="sequence", maximum=1.5))
    engine, logprobs = torch.tensor([-1.0, -2.0, -1.5, -0.5, -3.0]), ratios(*RATIOS).detach()
    whole = objective(logprobs, replace(batch_of(TWO), engine_logprobs=engine))
    parts = [
        objective(logprobs[:2], replace(batch_of(TWO[:1], TWO), engine_logprobs=engine[:2])),
        objective(logprobs[2:], replace(batch_of(TWO[1:], TWO), engine_logprobs=engine[2:])),
    ]
    torch.testing.assert_close(parts[0][0] + parts[1][0], whole[0])
    for name, value in whole[1].items():
        torch.testing.assert_close(parts[0][1][name] + parts[1][1][name], value)


def test_sequence_normalisation_is_the_mean_of_the_examples_means() -> None:
    logprobs = ratios(*RATIOS)
    loss, statistics = GroupRelative(0.2, 0.0, "k2", "sequence")(logprobs, batch_of(TWO))
    assert loss.item() == pytest.approx(((-2.4 - 1.0) / 2 + (0.8 + 1.5 + 0.9) / 3) / 2)
    assert statistics["clip_fraction"].item() == pytest.approx((1 / 2 + 1 / 3) / 2)
    loss.backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([0.0, -1.0 / 4, 0.0, 1.5 / 6, 0.9 / 6]))


def test_a_constant_length_weighs_every_token_alike_whatever_the_trajectorys_length() -> None:
    logprobs = ratios(*RATIOS)
    loss, statistics = GroupRelative(0.2, 0.0, "k2", "constant", 4)(logprobs, batch_of(TWO))
    assert loss.item() == pytest.approx(((-2.4 - 1.0) / 4 + (0.8 + 1.5 + 0.9) / 4) / 2)
    assert statistics["clip_fraction"].item() == pytest.approx(2 / 5)
    assert statistics["ratio"].item() == pytest.approx((1.5 + 0.5 + 0.5 + 1.5 + 0.9) / 5)


@pytest.mark.parametrize(
    ("kl", "values", "gradients"),
    [  # π_ref is twice π_θ, then half of it: d = log 2, then -log 2
        ("k1", (-log(2), log(2)), (1.0, 1.0)),
        ("k2", (log(2) ** 2 / 2, log(2) ** 2 / 2), (-log(2), log(2))),
        ("k3", (2 - log(2) - 1, 0.5 + log(2) - 1), (1 - 2.0, 1 - 0.5)),
    ],
)
def test_the_estimators_of_the_divergence_by_hand(
    kl: str, values: tuple[float, float], gradients: tuple[float, float]
) -> None:
    logprobs = ratios(1.0, 1.0)
    batch = batch_of([example("a", 0.0, [log(1 / 4)] * 2)], reference=[log(1 / 2), log(1 / 8)])
    loss, statistics = GroupRelative(0.2, 0.04, kl)(logprobs, batch)  # type: ignore[arg-type]
    assert statistics["kl"].item() == pytest.approx(sum(values) / 2)
    assert loss.item() == pytest.approx(0.04 * sum(values) / 2)
    loss.backward()
    torch.testing.assert_close(logprobs.grad, 0.04 * torch.tensor(gradients) / 2)


def test_k3_explodes_where_the_policy_gives_a_token_up_and_k2_does_not() -> None:
    """A token that the reference finds likely, 1/e, and whose probability under the policy vanishes."""

    def of(kl: str, logprob: float) -> tuple[float, float]:
        logprobs = torch.tensor([logprob], requires_grad=True)
        batch = batch_of([example("a", 0.0, [logprob])], reference=[-1.0])
        loss, _ = GroupRelative(0.2, 1.0, kl)(logprobs, batch)  # type: ignore[arg-type]
        loss.backward()
        assert logprobs.grad is not None
        return loss.item(), logprobs.grad.item()

    assert of("k3", -41.0)[1] == pytest.approx(1 - exp(40), rel=1e-5)
    assert of("k3", -101.0) == (inf, -inf)
    assert of("k2", -41.0) == pytest.approx((40**2 / 2, -40))
    assert of("k2", -101.0) == pytest.approx((100**2 / 2, -100))


def plain(
    logits: list[torch.Tensor], examples: list[Example], references: list[list[float]], objective: GroupRelative
) -> torch.Tensor:
    """The formula as it stands in the papers: dialogue by dialogue, token by token."""
    means, everything = [], []
    for rows, one, reference in zip(logits, examples, references, strict=True):
        own = []
        for j, mine in enumerate(one.agent_mask):
            if not mine:
                continue
            new = torch.log_softmax(rows[j - 1], -1)[one.token_ids[j]]
            ratio = torch.exp(new) / exp(one.logprobs[j])
            surrogates = [ratio * one.advantages[j]]
            if ratio > 1 + objective.clip:
                surrogates.append(torch.tensor((1 + objective.clip) * one.advantages[j]))
            elif ratio < 1 - objective.clip:
                surrogates.append(torch.tensor((1 - objective.clip) * one.advantages[j]))
            d = reference[j] - new
            kl = {"k1": -d, "k2": d * d / 2, "k3": torch.exp(d) - 1 - d}[objective.kl]
            own.append(-min(surrogates) + objective.beta * kl)
        means.append(torch.stack(own).mean())
        everything += own
    return torch.stack(means if objective.normalization == "sequence" else everything).mean()


@pytest.mark.parametrize("normalization", ["token", "sequence"])
@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
def test_loss_and_gradient_equal_a_plain_reading_of_the_formula(
    dialogues: list[Example], kl: str, normalization: str
) -> None:
    generator = torch.Generator().manual_seed(2)
    objective = GroupRelative(0.2, 0.3, kl, normalization)  # type: ignore[arg-type]
    chosen, logits, references = [], [], []
    for number, one in enumerate(dialogues[:5]):
        length = len(one.token_ids)
        rows = torch.randn(length, 40, generator=generator, dtype=torch.float64).requires_grad_()
        picked = torch.log_softmax(rows, -1).detach()[torch.arange(length - 1), one.token_ids[1:]].tolist()
        near = (0.5 * torch.randn(2, length, generator=generator)).tolist()
        old = [m * (p + e) for m, p, e in zip(one.agent_mask, [0.0, *picked], near[0], strict=True)]
        references.append([p + e for p, e in zip([0.0, *picked], near[1], strict=True)])
        chosen.append(
            replace(one, logprobs=tuple(old), advantages=tuple(m * (number - 2.0) for m in one.agent_mask))
        )  # fmt: skip
        logits.append(rows)
    expected = plain(logits, chosen, references, objective)
    wanted = torch.autograd.grad(expected, logits)

    kept = [
        r for one, row in zip(chosen, references, strict=True) for m, r in zip(one.agent_mask, row, strict=True) if m
    ]
    batch = batch_of(chosen, reference=kept)
    found = torch.log_softmax(torch.cat(logits), -1)[batch.predicts[0]].gather(1, batch.targets[:, None])[:, 0]
    loss, statistics = objective(found, batch)
    assert 0 < statistics["clip_fraction"] < 1
    torch.testing.assert_close(loss, expected, atol=1e-6, rtol=1e-6, check_dtype=False)
    for mine, theirs in zip(torch.autograd.grad(loss, logits), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("normalization", "length"), [("token", None), ("sequence", None), ("constant", 4)])
def test_micro_batches_of_a_step_add_up(normalization: str, length: int | None) -> None:
    objective = GroupRelative(0.2, 0.04, "k3", normalization, length)  # type: ignore[arg-type]
    reference = [-1.0, -2.0, -1.5, -0.5, -3.0]
    logprobs = ratios(*RATIOS).detach()
    whole = objective(logprobs, batch_of(TWO, reference=reference))
    parts = [
        objective(logprobs[:2], batch_of(TWO[:1], TWO, reference[:2])),
        objective(logprobs[2:], batch_of(TWO[1:], TWO, reference[2:])),
    ]
    torch.testing.assert_close(parts[0][0] + parts[1][0], whole[0])
    for name, value in whole[1].items():
        torch.testing.assert_close(parts[0][1][name] + parts[1][1][name], value)


def rollout(question: str, attempt: int, reward: float, one: Example) -> Rollout:
    trajectory = Trajectory(
        role="agent", id="agent", token_ids=one.token_ids, agent_mask=one.agent_mask, logprobs=one.logprobs, turns=()
    )
    return Rollout(
        question=Question(id=question, text="?", answers=("a",), dataset="d"), attempt=attempt, seed=0,
        main=trajectory, outcome="answered", rewards={"reward": reward}, weights="w", corpus="c",
    )  # fmt: skip


def gradients(model: torch.nn.Module, examples: list[Example]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    batch = batch_of(examples)
    loss, _ = GroupRelative(0.2, 0.0)(agent_logprobs(model, batch), batch)
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}  # type: ignore[union-attr]


def credited(group: list[Rollout]) -> list[Example]:
    return examples_of(group, GroupAdvantage("reward").advantages(group))


def test_the_order_of_the_rollouts_changes_nothing(tiny_model: Path, dialogues: list[Example]) -> None:
    """Two groups of three, one after the other and shuffled into each other."""
    rollouts = [rollout(f"q{i // 3}", i % 3, float(i % 4), dialogues[i]) for i in range(6)]
    shuffled = [rollouts[i] for i in (3, 0, 5, 1, 4, 2)]
    model = load_policy(tiny_model, TrainSpec(), attention="packed")
    before, after = (
        gradients(model, [e for q in ("q0", "q1") for e in credited([r for r in order if r.question.id == q])])
        for order in (rollouts, shuffled)
    )
    for name, gradient in before.items():
        torch.testing.assert_close(after[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


def test_a_group_without_variance_teaches_nothing(tiny_model: Path, dialogues: list[Example]) -> None:
    rollouts = [rollout("same", i, 13.0, dialogues[i]) for i in range(3)]
    model = load_policy(tiny_model, TrainSpec(), attention="packed")
    found = gradients(model, credited(rollouts))
    assert all((gradient == 0).all() for gradient in found.values())
