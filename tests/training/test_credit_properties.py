"""Properties of every credit, on drawn groups: permutation, scale, ties, a lone attempt, muting, negative weight."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from platform_sdk.agents.speaker import Decoding
from platform_sdk.config.credit import GdpoCreditSpec, GroupCreditSpec, InformationGainSpec
from platform_sdk.methods.prograph.settings import AgentSpec, CreditSpec
from platform_sdk.methods.prograph.step_credit import StepCredit
from platform_sdk.records import Question, Rollout, Trajectory, Turn
from platform_sdk.training.credit import Credit, GroupAdvantage
from platform_sdk.training.information_gain import InformationGain

Group = list[Rollout]
OPENING = "<answer>"


def attempt(question: str, number: int, outcome: float, dense: Sequence[float], scale: float = 1.0) -> Rollout:
    """A rollout with a turn of two tokens for each dense reward, under the names that the credits read."""
    turns = tuple(
        Turn(
            speaker="agent", text="", start=1 + 3 * place, end=3 + 3 * place,
            rewards=dict.fromkeys(("progress", "struct", "gain"), scale * value),
        )
        for place, value in enumerate(dense)
    )  # fmt: skip
    mask = (0, *(1, 1, 0) * len(dense))
    main = Trajectory(
        role="agent", id="agent", token_ids=(1,) * len(mask), agent_mask=mask, logprobs=(-1.0,) * len(mask), turns=turns
    )
    rewards = {"reward": scale * outcome, "style": scale * sum(dense), "tie": 0.0}
    return Rollout(
        question=Question(id=question, text="?", answers=("a",), dataset="d"), attempt=number, seed=0, main=main,
        outcome="answered", rewards=rewards, weights="w", corpus="c",
    )  # fmt: skip


def drawn(seed: int, scale: float = 1.0) -> list[Group]:
    """Three groups of two to five attempts of one to three turns, with outcomes that often tie."""
    rng = random.Random(seed)
    return [
        [
            attempt(
                f"q{group}", number, rng.choice((0.0, 0.5, 1.0)),
                [rng.uniform(-1, 1) for _ in range(rng.randint(1, 3))], scale,
            )
            for number in range(rng.randint(2, 5))
        ]
        for group in range(3)
    ]  # fmt: skip


def steps(**settings: Any) -> Credit:
    weights = {"progress_weight": 0.5, "structure_weight": 0.25, "estimator": "likelihood"}
    return StepCredit(CreditSpec.model_validate(weights | settings), "reward", AgentSpec(), Decoding())


def gains(**settings: Any) -> Credit:
    return InformationGain(
        InformationGainSpec.model_validate({"type": "information_gain"} | settings), "reward", OPENING
    )


def plain(**settings: Any) -> Credit:
    return GroupAdvantage("reward", GroupCreditSpec.model_validate(settings))


def gdpo(**settings: Any) -> Credit:
    weights = {"reward": 1.0, "style": 0.3}
    return GroupAdvantage("reward", GdpoCreditSpec.model_validate({"type": "gdpo", "weights": weights} | settings))


SCALED: dict[str, tuple[Any, dict[str, Any]]] = {
    "GRPO": (plain, {}),
    "batch scale": (plain, {"scale": "batch"}),
    "GDPO": (gdpo, {}),
    **{
        f"steps, {baseline}, {scale}": (steps, {"baseline": baseline, "scale": scale})
        for baseline in ("step", "trajectory", "return_to_go")
        for scale in ("group", "batch")
    },
    "steps, GDPO": (steps, {"baseline": "step", "aggregation": "gdpo"}),
    "steps to go, GDPO": (steps, {"baseline": "return_to_go", "aggregation": "gdpo"}),
    **{
        f"information gain, {normalization}, {scale}": (gains, {"normalization": normalization, "scale": scale})
        for normalization in ("joint", "separate")
        for scale in ("group", "batch")
    },
    "information gain, discounted": (gains, {"discount": 0.5, "weight": 0.3}),
}
UNSCALED: dict[str, tuple[Any, dict[str, Any]]] = {
    "Dr. GRPO": (plain, {"scale": "none"}),
    "RLOO": (plain, {"scale": "none", "baseline": "leave_one_out"}),
    "steps, unscaled": (steps, {"baseline": "step", "scale": "none"}),
    "steps of all, unscaled": (steps, {"baseline": "trajectory", "scale": "none"}),
    "information gain, unscaled": (gains, {"scale": "none"}),
}
CREDITS = SCALED | UNSCALED
every = pytest.mark.parametrize("name", CREDITS)


def credit(name: str, **settings: Any) -> Credit:
    make, own = CREDITS[name]
    made: Credit = make(**own | settings)
    return made


def by_attempt(own: Credit, groups: Sequence[Group]) -> dict[str, list[float]]:
    """Return the advantages of all tokens, by rollout."""
    return {key.rollout: list(values) for each in own.update_advantages(groups) for key, values in each.items()}


@every
def test_order_of_attempts_and_groups_changes_no_advantage(name: str) -> None:
    for seed in range(20):
        groups = drawn(seed)
        expected = by_attempt(credit(name), groups)
        found = by_attempt(credit(name), [group[::-1] for group in groups][::-1])
        assert found.keys() == expected.keys()
        for key, values in expected.items():
            assert found[key] == pytest.approx(values, abs=1e-9)


@every
def test_scale_of_the_rewards_matters_only_to_unscaled_credits(name: str) -> None:
    factor = 1.0 if name in SCALED else 100.0
    for seed in range(20):
        expected = by_attempt(credit(name), drawn(seed))
        for key, values in by_attempt(credit(name), drawn(seed, scale=100.0)).items():
            assert values == pytest.approx([factor * value for value in expected[key]], rel=0.02, abs=0.02)


@every
def test_equal_attempts_have_equal_advantages(name: str) -> None:
    for seed in range(20):
        groups = drawn(seed)
        twins = [[*group, group[0].model_copy(update={"attempt": 9})] for group in groups]
        found = by_attempt(credit(name), twins)
        assert all(found[group[0].id] == found[f"{group[0].question.id}#9"] for group in groups)


@every
def test_groups_without_differences_have_exactly_zero_advantages(name: str) -> None:
    equal = [attempt("equal", number, 0.1, [0.0, 0.0]) for number in range(4)]
    alone = [attempt("alone", 0, 1.0, [0.3])]
    groups = [*drawn(1), equal, alone]
    found = by_attempt(credit(name), groups)
    assert not any(value for group in (equal, alone) for one in group for value in found[one.id])
    assert not credit(name).informative(equal)
    assert not credit(name).informative(alone)
    assert any(value for values in found.values() for value in values)


@every
def test_muting_zeroes_groups_with_tied_outcomes_and_changes_no_other(name: str) -> None:
    tied = [attempt("tied", number, 1.0, [0.1 * number, 0.5]) for number in range(3)]
    groups = [*drawn(3), tied]
    whole, muted = by_attempt(credit(name), groups), by_attempt(credit(name, mute_ties_of="reward"), groups)
    for group in groups:
        ties = len({one.rewards["reward"] for one in group}) == 1
        for one in group:
            assert muted[one.id] == ([0.0] * len(whole[one.id]) if ties else whole[one.id])
    assert not credit(name, mute_ties_of="reward").informative(tied)
    assert not any(
        value for values in by_attempt(credit(name, mute_ties_of="tie"), groups).values() for value in values
    )


@every
@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_negative_weight_multiplies_advantages_below_zero_alone(name: str, weight: float) -> None:
    for seed in range(5):
        whole = by_attempt(credit(name), drawn(seed))
        for key, values in by_attempt(credit(name, negative_weight=weight), drawn(seed)).items():
            assert values == [value if value > 0 else weight * value for value in whole[key]]


@every
def test_tokens_of_the_environment_have_no_advantage(name: str) -> None:
    groups = drawn(5)
    found = by_attempt(credit(name), groups)
    masks = {one.id: one.main.agent_mask for group in groups for one in group}
    assert all(
        mask or not value for key, values in found.items() for mask, value in zip(masks[key], values, strict=True)
    )


def test_gdpo_by_hand() -> None:
    """Rewards 0, 1 and styles 2, 0 are -1/√2, 1/√2 and the contrary; half the style leaves half, whitened to ±√3/2."""
    group = [attempt("a", 0, 0.0, [2.0]), attempt("a", 1, 1.0, [0.0])]
    equal = [attempt("b", number, 1.0, [1.0]) for number in range(2)]
    own = gdpo(weights={"reward": 1.0, "style": 0.5})
    found = by_attempt(own, [group, equal])
    # The values ±√2/4, 0, 0 have a deviation of √(2 · 2/16 / 3) = √(1/12); √2/4 · √12 = √6/2.
    assert found["a#1"][1] == pytest.approx(6**0.5 / 2, rel=1e-3)
    assert found["a#0"][1] == pytest.approx(-(6**0.5) / 2, rel=1e-3)
    assert found["b#0"] == found["b#1"] == [0.0] * 4


def test_gdpo_of_steps_by_hand() -> None:
    """Two attempts of one turn differ by the sign of a weighted sum alone, since whitening leaves two values ±1/√2."""
    group = [attempt("a", 0, 0.0, [2.0]), attempt("a", 1, 1.0, [0.0])]
    weights = {"progress_weight": 0.25, "structure_weight": 0.25}
    found = by_attempt(steps(baseline="step", aggregation="gdpo", **weights), [group])
    assert found["a#1"][1] == pytest.approx(0.5**0.5, rel=1e-3)  # two values ±x whiten to ±1/√2, whatever x
    found = by_attempt(steps(baseline="step", aggregation="gdpo", progress_weight=2.0, structure_weight=1.0), [group])
    assert found["a#1"][1] == pytest.approx(-(0.5**0.5), rel=1e-3)  # 1 - 2 - 1 < 0


def test_information_gain_by_hand() -> None:
    """Rewards 0.5, 1 and 0: mean 0.5, deviation 0.5. Normalised 0, 1 and -1; a turn has its own and the later ones."""
    group = [attempt("a", 0, 1.0, [0.5, 9.0]), attempt("a", 1, 0.0, [9.0])]  # the last turn's gain is not looked at
    assert by_attempt(gains(scale="none"), [group]) == {
        "a#0": pytest.approx([0, 0.5, 0.5, 0, 0.5, 0.5, 0]), "a#1": pytest.approx([0, -0.5, -0.5, 0]),
    }  # fmt: skip
    found = by_attempt(gains(discount=0.5), [group])
    assert found["a#0"] == pytest.approx([0, 0.5, 0.5, 0, 1, 1, 0], rel=1e-3)
    # By themselves the outcomes are ±1/√2 and the one gain has nothing to be compared with.
    found = by_attempt(gains(normalization="separate", discount=0.0), [group])
    assert found["a#0"] == pytest.approx([0, 0, 0, 0, 0.5**0.5, 0.5**0.5, 0], rel=1e-3)


def test_information_gain_of_one_turn_is_grpo() -> None:
    groups = [[attempt(f"q{g}", n, (g + n) % 3, [0.7]) for n in range(4)] for g in range(2)]
    assert by_attempt(gains(), groups) == by_attempt(plain(), groups)


def test_called_trajectories_share_the_advantage_of_the_turn_that_called_them() -> None:
    def calling(number: int, outcome: float) -> Rollout:
        one = attempt("q", number, outcome, [0.2 * number, 0.0])
        first, last = one.main.turns
        main = one.main.model_copy(update={"turns": (first.model_copy(update={"calls": ("w",)}), last)})
        worker = Trajectory(role="worker", id="w", token_ids=(1, 2), agent_mask=(0, 1), logprobs=(0.0, -1.0), turns=())
        return one.model_copy(update={"main": main, "others": (worker,)})

    group = [calling(0, 0.0), calling(1, 1.0)]
    for key, values in gains().advantages(group).items():
        if key.trajectory == "w":
            assert values == [0.0, gains().advantages(group)[key._replace(trajectory="agent")][1]]
    assert {key.trajectory for key in gains(others="none").advantages(group)} == {"agent"}
