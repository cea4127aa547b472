"""Step-wise advantages: by hand, against a plain reading, through the objective; and step progress by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from math import exp, log, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from platform_sdk.agents.speaker import Decoding
from platform_sdk.errors import UserError
from platform_sdk.methods.prograph.settings import AgentSpec, CreditSpec
from platform_sdk.methods.prograph.step_credit import StepCredit, StepRewards, update_step_advantages
from platform_sdk.records import Rollout
from platform_sdk.sampling.engine import Request
from platform_sdk.training.batches import MicroBatch, pack, shared_step
from platform_sdk.training.credit import Credit, CreditProbe, GroupAdvantage, TrajectoryKey, turn_credits
from platform_sdk.training.examples import examples_of
from platform_sdk.training.objectives import GroupRelative
from platform_sdk.training.online.preparation import PreparedGroup, prepare_groups, read_prepared
from tests.methods.prograph.saying import ASK, ASK_MOTHER, RIGHT, WRONG, ScriptedPolicyEngine, play, search

Baseline = Literal["step", "trajectory", "return_to_go"]
BASELINES: tuple[Baseline, ...] = ("step", "trajectory", "return_to_go")


def credit(baseline: Baseline = "step", progress: float = 0.0, structure: float = 0.0, **more: Any) -> StepCredit:
    spec = CreditSpec(baseline=baseline, progress_weight=progress, structure_weight=structure, **more)
    return StepCredit(spec, "reward", AgentSpec(max_turns=3), Decoding())


def flat(advantages: Sequence[Sequence[float]]) -> list[float]:
    return [value for steps in advantages for value in steps]


def step_advantages(
    outcomes: Sequence[float], dense: Sequence[Sequence[float]], baseline: Baseline
) -> list[list[float]]:
    rewards = StepRewards(outcomes, progress=[[0.0] * len(own) for own in dense], structure=dense)
    [found] = update_step_advantages([rewards], credit(baseline, structure=1.0).spec)
    return found


def test_step_baseline_by_hand() -> None:
    # Index 0: 1, 3, 2 with mean 2 and deviation 1. Index 1: 1 and 3, mean 2, deviation √2. Index 2: a lone 5.
    found = step_advantages([1.0, 3.0, 1.0], [[0.0, 0.0], [0.0], [1.0, 2.0, 4.0]], "step")
    assert found == [
        pytest.approx([-1 / 1.0001, -1 / (sqrt(2) + 1e-4)]),
        pytest.approx([1 / 1.0001]),
        pytest.approx([0.0, 1 / (sqrt(2) + 1e-4), 0.0]),
    ]


def test_trajectory_baseline_by_hand() -> None:
    # 1, 1, 3 and 7: mean 3, squares 4 + 4 + 0 + 16 over 4 steps is 6, times 2 / (2 - 1) trajectories is 12.
    found = step_advantages([1.0, 3.0], [[0.0, 0.0], [0.0, 4.0]], "trajectory")
    deviation = sqrt(12) + 1e-4
    assert found == [pytest.approx([-2 / deviation] * 2), pytest.approx([0.0, 4 / deviation])]


def test_return_to_go_by_hand() -> None:
    # To come: 0 + 2 + 1 = 3 and 0 + 1 = 1; 4 + 0 = 4. Mean 8/3; squares 1/9 + 25/9 + 16/9 = 42/9 over 3, times 2.
    found = step_advantages([0.0, 4.0], [[2.0, 1.0], [0.0]], "return_to_go")
    deviation = sqrt(28 / 9) + 1e-4
    assert found == [pytest.approx([1 / 3 / deviation, -5 / 3 / deviation]), pytest.approx([4 / 3 / deviation])]


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("dense", [[[0.0, 0.0], [0.0]], [[], [1.0, 2.0]], [[], []]])
def test_steps_without_a_comparison_have_exactly_zero_advantage(baseline: Baseline, dense: list[list[float]]) -> None:
    assert set(flat(step_advantages([0.1, 0.1], dense, baseline))) <= {0.0}


def plain_reading(outcomes: Sequence[float], dense: Sequence[Sequence[float]], baseline: Baseline) -> list[float]:
    """The definitions, step by step, with loops and numpy."""
    steps = [(i, t) for i, own in enumerate(dense) for t in range(len(own))]
    worth = {(i, t): outcomes[i] + dense[i][t] for i, t in steps}
    if baseline == "return_to_go":
        worth = {(i, t): outcomes[i] + sum(dense[i][k] for k in range(t, len(dense[i]))) for i, t in steps}
    found = []
    for i, t in steps:
        if baseline == "step":
            others = np.array([worth[j, u] for j, u in steps if u == t])
            deviation = np.std(others, ddof=1) if len(others) > 1 else 0.0
        else:
            others = np.array(list(worth.values()))
            count = len({j for j, _ in steps})
            deviation = np.std(others) * np.sqrt(count / (count - 1)) if count > 1 else 0.0
        found.append(0.0 if deviation == 0 else (worth[i, t] - others.mean()) / (deviation + 1e-4))
    return [float(value) for value in found]


@pytest.mark.parametrize("baseline", BASELINES)
def test_baselines_equal_a_plain_reading_on_random_groups(baseline: Baseline) -> None:
    rng = random.Random(7)
    for _ in range(200):
        size = rng.randint(2, 6)
        outcomes = [rng.choice((-1.0, -0.5, 0.0, 0.3, 1.0)) for _ in range(size)]
        dense = [[rng.uniform(-1, 2) for _ in range(rng.randint(0, 4))] for _ in range(size)]
        found = flat(step_advantages(outcomes, dense, baseline))
        assert found == pytest.approx(plain_reading(outcomes, dense, baseline), abs=1e-9)


def loss(group: Sequence[Rollout], own: Credit, normalization: Any) -> float:
    """The objective's value where the policy has moved, differently at each token."""
    examples = examples_of(group, own.advantages(group))
    batch = pack(examples, MicroBatch(tuple(range(len(examples)))), shared_step(examples, 1, 10**6))
    assert batch.old_logprobs is not None
    moved = batch.old_logprobs + torch.linspace(log(0.7), log(1.4), len(batch.old_logprobs))
    value, _ = GroupRelative(clip=0.2, beta=0.0, normalization=normalization)(moved, batch)
    return value.item()


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_loss_is_plain_grpos_without_dense_rewards_where_all_have_equally_many_steps(normalization: str) -> None:
    group = [play([ASK, RIGHT], 0), play([ASK, WRONG], 1), play([ASK_MOTHER, WRONG], 2), play(["?", RIGHT], 3)]
    plain = loss(group, GroupAdvantage("reward"), normalization)
    assert abs(plain) > 1e-3
    assert loss(group, credit("trajectory"), normalization) == pytest.approx(plain, abs=1e-6)
    assert loss(group, credit("return_to_go"), normalization) == pytest.approx(plain, abs=1e-6)
    assert loss(group, credit("step"), normalization) == pytest.approx(plain, abs=1e-6)
    assert loss(group, credit("trajectory", structure=1.0), normalization) != pytest.approx(plain, abs=1e-3)


def test_trajectories_of_more_steps_weigh_more_in_the_baseline() -> None:
    # Outcomes 1 and -0.5: GRPO's mean is 0.25, that of the three steps 0.5; squares 1/4 + 1/4 + 1 over 3, times 2.
    group = [play([ASK, RIGHT], 0), play([WRONG], 1)]
    plain, stepwise = (
        {key.rollout: max(steps, key=abs) for key, steps in own.advantages(group).items()}
        for own in (GroupAdvantage("reward"), credit("trajectory"))
    )
    deviation = sqrt(1.5**2 / 2) + 1e-4
    assert plain == pytest.approx({"q#0": 0.75 / deviation, "q#1": -0.75 / deviation})
    assert stepwise == pytest.approx({"q#0": 0.5 / (1 + 1e-4), "q#1": -1 / (1 + 1e-4)})
    assert loss(group, credit("trajectory"), "token") != pytest.approx(loss(group, GroupAdvantage("reward"), "token"))


def test_each_steps_tokens_carry_its_advantage_and_the_environments_none() -> None:
    group = [play([ASK, ASK_MOTHER, RIGHT], 0), play([ASK, "?", RIGHT], 1)]
    own = credit("step", structure=2.0)
    # Structure at index 0: 1/2 in both; at index 1: 2/3 and, malformed, 0; at index 2: none. Outcomes: 1 and 1.
    high = (2 / 3) / (sqrt(2 * (2 / 3) ** 2) + 1e-4)
    for rollout, expected in zip(group, ([0.0, high, 0.0], [0.0, -high, 0.0]), strict=True):
        values = own.advantages(group)[TrajectoryKey(rollout.id, "agent")]
        for turn, value in zip(rollout.main.agent_turns, expected, strict=True):
            assert values[turn.start : turn.end] == pytest.approx([value] * (turn.end - turn.start))
        assert not any(value for value, mask in zip(values, rollout.main.agent_mask, strict=True) if not mask)
        [recorded] = turn_credits([rollout], own.advantages(group))
        assert recorded.rollout == rollout.id
        assert [turn.advantage for turn in recorded.turns] == pytest.approx(expected)
        assert [turn.rewards for turn in recorded.turns] == [turn.rewards for turn in rollout.main.agent_turns]
    assert own.informative(group)
    assert not credit("step").informative(group)


def prepared(own: StepCredit, group: list[Rollout], engine: ScriptedPolicyEngine, path: Path) -> PreparedGroup:
    asked: Any = engine
    prepare_groups(path, [group], own, CreditProbe(asked, "0 online-0001", search), live=1, description="")
    return read_prepared(path, [group])["q"]


@pytest.mark.parametrize("kept", [False, True])
def test_progress_by_sampling_by_hand(kept: bool, tmp_path: Path) -> None:
    group = [play([ASK, RIGHT], 0), play([ASK, WRONG], 1), play(["?", RIGHT], 2)]
    start, asked, failed = (group[i].main.turns[j].end for i, j in ((0, 0), (0, 2), (2, 2)))

    def says(request: Request, taken: int) -> str:
        *_, end, number = request.dialogue.split("/")  # all turns of a completion are one dialogue to the engine
        # At the start: right without a search (-0.5), and right behind one (1). Behind the query: right (1), wrong (0).
        # Behind the malformed turn: right without a search (-0.5), twice malformed (-1).
        return {
            (start, 0): [RIGHT],
            (start, 1): [ASK, RIGHT],
            (asked, 0): ["", RIGHT],
            (asked, 1): ["", WRONG],
            (failed, 0): ["", RIGHT],
            (failed, 1): ["", "?", "?"],
        }[int(end), int(number)][taken]

    own = credit("step", progress=2.0, estimator="sampling", completions=2, train_completions=kept)
    found = prepared(own, group, ScriptedPolicyEngine(says), tmp_path / "prepared.jsonl")
    # 1 + 2 requests at the start and 1 + 1 behind the query, once for all who share them; 1 + 2 behind the error.
    assert found.requests == 8
    turns = [[turn.rewards["progress"] for turn in rollout.main.agent_turns] for rollout in found.rollouts]
    assert turns == [[0.25, 0.5], [0.25, -0.5], [-1.0, 0.25]]
    assert [rollout.rewards["certainty"] for rollout in found.rollouts] == [0.25] * 3
    assert [rollout.rewards["progress"] for rollout in found.rollouts] == [0.375, -0.125, -0.375]
    # R at index 0: 1 + 0.5, 0 + 0.5, -0.5 - 2; at index 1: 1 + 1, 0 - 1, -0.5 + 0.5.
    expected = plain_reading([1.0, 0.0, -0.5], [[0.5, 1.0], [0.5, -1.0], [-2.0, 0.5]], "step")
    advantages = own.advantages(found.rollouts)
    assert [
        advantages[TrajectoryKey(rollout.id, "agent")][turn.start]
        for rollout in found.rollouts
        for turn in rollout.main.agent_turns
    ] == pytest.approx(expected)
    # Completions are compared with those of the same history: -0.5 and 1, 1 and 0, -0.5 and -1.
    worths = {
        (start, 0): -0.75,
        (start, 1): 0.75,
        (asked, 0): 0.5,
        (asked, 1): -0.5,
        (failed, 0): 0.25,
        (failed, 1): -0.25,
    }
    examples = {each.id: each for each in examples_of(found.rollouts, advantages)}
    assert len(examples) == 3 + (len(worths) if kept else 0)
    assert [len(examples_of(found.rollouts)), *(len(rollout.trajectories) for rollout in found.rollouts)] == [
        3,
        1,
        1,
        1,
    ]
    for (end, number), worth in worths.items() if kept else ():
        [name] = [name for name in examples if name.endswith(f"branch-{end}-{number}")]
        example, deviation = examples[name], abs(worth) * sqrt(2)
        # The history was sampled by another trajectory, which learns it.
        assert example.agent_mask[:end] == (0,) * end
        assert example.agent_tokens > 0
        assert example.token_ids[:end] in {each.main.token_ids[:end] for each in group}
        assert [value for value, mask in zip(example.advantages, example.agent_mask, strict=True) if mask] == (
            pytest.approx([worth / (deviation + 1e-4)] * example.agent_tokens)
        )
    assert found.rollouts == read_prepared(tmp_path / "prepared.jsonl", [group])["q"].rollouts


def test_progress_by_sampling_of_a_reward_that_is_no_outcome_is_refused(tmp_path: Path) -> None:
    spec = CreditSpec(baseline="step", progress_weight=1.0, structure_weight=0.0, estimator="sampling", completions=1)
    own = StepCredit(spec, "struct", AgentSpec(max_turns=3), Decoding())
    engine = ScriptedPolicyEngine(lambda request, taken: RIGHT)
    with pytest.raises(UserError, match=r"online.reward struct: .* set online.reward to em, f1, format"):
        prepared(own, [play([ASK, RIGHT], 0), play([ASK, WRONG], 1)], engine, tmp_path / "prepared.jsonl")


def test_progress_by_likelihood_by_hand(tmp_path: Path) -> None:
    group = [play([ASK, RIGHT], 0, max_turns=3), play([ASK, ASK_MOTHER, "?"], 1, max_turns=3)]
    engine = ScriptedPolicyEngine(lambda request, taken: "")
    own = credit("step", progress=1.0, estimator="likelihood")
    found = prepared(own, group, engine, tmp_path / "prepared.jsonl")
    # The start and the history behind the first query are shared; one more of each.
    assert len(engine.scored) == found.requests == 4
    assert all(prompt.endswith("<answer>") and gold == "Lena Roth" for prompt, gold in engine.scored)
    assert engine.scored[2][0].endswith("<|assistant|><think>t</think><answer>")
    # The engine says -n / 100 and -n / 50 behind n tokens: -0.015 n in the mean.
    first, second = found.rollouts
    prefix = len("<answer>")
    begins = [exp(-0.015 * (turn.start + prefix)) for turn in second.main.agent_turns]
    steps = [after - before for before, after in pairwise(begins)]
    last = begins[1] * exp(-0.015 * len("<think>t</think>")) - begins[1]
    assert [turn.rewards["progress"] for turn in first.main.agent_turns] == pytest.approx([steps[0], last])
    # Behind the last turn, which gives no answer, nothing has changed.
    assert [turn.rewards["progress"] for turn in second.main.agent_turns] == pytest.approx([*steps, 0.0])
    # Where the context has no room for the gold answer, nothing has changed either.
    room = second.main.agent_turns[1].start + len("<answer>") + len("Lena Roth")
    small = prepared(own, group, ScriptedPolicyEngine(lambda request, taken: "", room), tmp_path / "small.jsonl")
    values = [turn.rewards["progress"] for turn in small.rollouts[1].main.agent_turns]
    assert values == pytest.approx([steps[0], 0.0, 0.0])


def test_a_gold_answer_that_spells_a_special_token_is_scored_as_text(tmp_path: Path) -> None:
    class Counting(ScriptedPolicyEngine):
        def score(
            self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
        ) -> list[tuple[float, ...]]:
            lengths.update(map(len, continuations))
            return super().score(prompts, continuations)

    lengths = set[int]()
    gold = "<|end|> Lena"
    group = [play([ASK, RIGHT], attempt, max_turns=3) for attempt in (0, 1)]
    group = [one.model_copy(update={"question": one.question.model_copy(update={"answers": (gold,)})}) for one in group]
    own = credit("step", progress=1.0, estimator="likelihood")
    prepared(own, group, Counting(lambda request, taken: ""), tmp_path / "prepared.jsonl")
    assert lengths == {len(gold)}  # the tokenizer has a token for each character


def test_credit_prepares_only_with_an_estimator() -> None:
    assert credit("step", progress=1.0, estimator="likelihood").prepares
    assert not credit("step", structure=1.0).prepares


SCORED = {"baseline": "step", "progress_weight": 1.0, "structure_weight": 0.0}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"baseline": "step", "structure_weight": 1.0},
        SCORED,
        SCORED | {"estimator": "sampling"},
        {"baseline": "step", "progress_weight": 0.0, "structure_weight": 0.0, "estimator": "likelihood"},
        SCORED | {"estimator": "likelihood", "completions": 2},
        SCORED | {"estimator": "likelihood", "train_completions": True},
        SCORED | {"estimator": "sampling", "completions": 1, "train_completions": True},
    ],
)  # fmt: skip
def test_weights_and_completions_must_be_given(spec: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CreditSpec.model_validate(spec)
