"""The rewards: a few hundred responses decided by hand, what holds for any text, and what a recipe may change."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from platform_sdk.errors import UserError
from platform_sdk.evaluation.answers import normalize_squad, spaced_bag, spaced_exact_match, spaced_f1
from platform_sdk.methods.arena.brevity import brevity
from platform_sdk.methods.arena.rewards import judged, recorded_verdict, rewards
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.methods.mygo.agent import scored
from platform_sdk.methods.mygo.settings import AgentSpec as MujicaSpec
from platform_sdk.methods.program.agent import rewards as program_rewards
from platform_sdk.methods.program.settings import AgentSpec as ProgramSpec
from platform_sdk.records import Rollout
from tests.methods.arena.responses import ANSWERS, FRAMES, QUESTION, RELEVANCE, cases, rollout_of

WHOLE = "<relevance>[2,5]</relevance><analysis>x</analysis><answer>Ann Lee</answer>"


def spec(**reward: Any) -> AgentSpec:
    return AgentSpec.model_validate({"rewards": reward})


def test_every_response_is_worth_what_the_specification_says() -> None:
    every = cases()
    assert len(every) > 280
    wrong = []
    for case in every:
        for name, format in (("strict", case.strict), ("compat", case.compat)):
            found = rewards(rollout_of(case.text), spec(format=name))
            expected = {
                "format": format,
                "accuracy": case.accuracy,
                "relevance": case.relevance,
                "bonus": case.bonus(format),
                "reward": case.reward(format),
            }
            if {key: found[key] for key in expected} != expected:
                wrong.append((name, case.text[:200], found, expected))
    assert not wrong
    assert {case.reward(case.strict) for case in every} >= {0, 0.5, 1, 1.5, 2, 2.5, 13}


PARTS = [frame.text for frame in FRAMES] + [text for text, _ in RELEVANCE + ANSWERS]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PARTS), max_size=4).map("".join)))
@settings(max_examples=300, deadline=None)
def test_any_text_has_rewards_within_their_bounds(text: str) -> None:
    text = text.replace("{R}", "<relevance>[2,5]</relevance>").replace("{A}", "<answer>Ann Lee</answer>")
    strict, compat = (rewards(rollout_of(text), spec(format=format)) for format in ("strict", "compat"))
    assert strict["format"] in (0, 1)
    assert strict["accuracy"] in (0, 1)
    assert strict["relevance"] in (0, 0.5, 1)
    assert strict["bonus"] == 10 * (strict["format"] == strict["accuracy"] == strict["relevance"] == 1)
    assert 0 <= strict["reward"] <= 13
    assert 0 <= compat["reward"] <= 13


def test_weights_make_another_sum() -> None:
    weights = {"format": 0.5, "accuracy": 2, "relevance": 4, "bonus": 0.1}
    assert rewards(rollout_of(WHOLE), spec(weights=weights))["reward"] == pytest.approx(0.5 + 2 + 4 + 1)
    assert rewards(rollout_of(WHOLE + "."), spec(weights=weights))["reward"] == pytest.approx(2 + 4)


def test_f1_may_be_the_accuracy_and_a_whole_one_earns_the_bonus() -> None:
    partly = WHOLE.replace("Ann Lee", "Ann Lee Jones")  # 2 of 3 words right, both gold words found: F1 = 4/5
    found = rewards(rollout_of(partly), spec(accuracy="f1"))
    assert found["accuracy"] == pytest.approx(0.8)
    assert found["bonus"] == 0
    assert found["reward"] == pytest.approx(2.8)
    swapped = WHOLE.replace("Ann Lee", "Lee, Ann")  # the same words in another order
    assert rewards(rollout_of(swapped), spec(accuracy="f1"))["reward"] == 13
    assert rewards(rollout_of(swapped), spec())["reward"] == 2


def test_a_judge_may_be_the_accuracy() -> None:
    judging = spec(accuracy="judge", judge={"url": "http://localhost:1/v1", "model": "m"})
    waiting = rewards(rollout_of(WHOLE), judging)
    assert waiting == {"em": 1, "f1": 1, "format": 1, "relevance": 1}  # the rest waits for the verdict
    assert rewards(rollout_of(WHOLE), judging, judged="yes")["reward"] == 13
    assert rewards(rollout_of(WHOLE), judging, judged="no")["reward"] == 2

    asked: list[Any] = []

    class NoddingJudge:
        def verdicts(self, items: list[Any]) -> list[str]:
            asked.extend(items)
            return ["unparsable" if response is None else "yes" for _, _, response in items]

    both = [rollout_of(WHOLE, answer="Ann Lee"), rollout_of("<answer></answer>")]
    found = judged(both, judging, NoddingJudge())  # type: ignore[arg-type]
    assert [rollout.rewards["reward"] for rollout in found] == [13, 0]
    assert [rollout.rewards["no_verdict"] for rollout in found] == [0, 1]
    for rollout in found:  # what is recorded gives back everything but the verdict
        assert rewards(rollout, judging, recorded_verdict(rollout)) == rollout.rewards
        altered = rollout.model_copy(update={"rewards": rollout.rewards | {"format": 0.5}})
        assert rewards(altered, judging, recorded_verdict(altered)) == rollout.rewards
    assert asked == [(QUESTION.text, QUESTION.answers, "Ann Lee"), (QUESTION.text, QUESTION.answers, None)]


def test_gold_passages_that_are_not_there_leave_the_empty_list_right() -> None:
    bare = QUESTION.model_copy(update={"gold_passages": ("T99",)})
    for listed, value in (("[]", 1), ("[1]", 0), ("", 0), ("none", 0)):
        text = WHOLE.replace("[2,5]", listed)
        assert rewards(rollout_of(text, bare), spec())["relevance"] == value, listed


def test_the_evaluation_scores_keep_the_datasets_own_normaliser() -> None:
    hyphen = rewards(rollout_of(WHOLE.replace("Ann Lee", "Ann-Lee")), spec())
    assert (hyphen["accuracy"], hyphen["em"]) == (1, 0)  # "ann lee" with a space, "annlee" without punctuation
    joined = rewards(rollout_of(WHOLE.replace("Ann Lee", "A.Lee")), spec())
    assert (joined["accuracy"], joined["em"]) == (1, 0)  # "lee", the article dropped; "alee" without punctuation


def chatty(rollout: Rollout) -> float:
    """A recipe's own reward: how many words were said."""
    return float(len(rollout.main.turns[-1].text.split()))


def test_a_recipe_brings_its_own_reward() -> None:
    own = {"words": {"function": f"{__name__}:chatty", "weight": -0.5}}
    found = rewards(rollout_of(WHOLE + " so it is"), spec(extra=own))
    assert found["words"] == 5
    assert found["reward"] == 1 + 1 - 2.5  # format is lost


def doubled(rollout: Rollout) -> float:
    """A recipe's own reward: twice the F1."""
    assert not {"reward", "twice"} & rollout.rewards.keys()
    return 2 * rollout.rewards.get("f1", -1.0)


def test_an_own_reward_sees_the_method_s_rewards_when_sampled_and_when_read_again() -> None:
    own = spec(extra={"twice": {"function": f"{__name__}:doubled", "weight": 10.0}})
    sampled = rollout_of(WHOLE)
    found = rewards(sampled, own)
    assert (found["f1"], found["twice"], found["reward"]) == (1, 2, 13 + 20)
    recorded = sampled.model_copy(update={"rewards": found})
    assert rewards(recorded, own) == found
    assert recorded.rewards == found


def not_a_number(rollout: Rollout) -> float:
    return math.nan


def infinite(rollout: Rollout) -> float:
    return -math.inf


def forgotten(rollout: Rollout) -> float | None:
    return None


def broken(rollout: Rollout) -> float:
    return 1 / len("")


def unreadable(rollout: Rollout) -> float:
    return float(json.loads("{"))


def leaving(rollout: Rollout) -> float:
    raise SystemExit(3)


BROKEN_REWARDS = [
    (not_a_number, "the reward is nan, which is not a finite number"),
    (infinite, "the reward is -inf, which is not a finite number"),
    (forgotten, "the reward is None, which is not a finite number"),
    (broken, f"the reward failed: ZeroDivisionError: .* \\({__file__}:{broken.__code__.co_firstlineno + 1}\\)"),
    (unreadable, f"the reward failed: JSONDecodeError: .* \\({__file__}:{unreadable.__code__.co_firstlineno + 1}\\)"),
    (leaving, "the reward failed: SystemExit: 3 "),
]


@pytest.mark.parametrize(("function", "message"), BROKEN_REWARDS)
@pytest.mark.parametrize("method", ["arena", "mujica", "program"])
def test_own_reward_that_gives_no_number_is_one_error(
    method: str, function: Callable[[Rollout], float], message: str
) -> None:
    name = f"{__name__}:{function.__name__}"
    rollout = rollout_of(WHOLE).model_copy(update={"attempt": 7})
    with pytest.raises(
        UserError, match=f"^{name}: question {QUESTION.id}, attempt 7: {message}.*; correct the function"
    ):
        if method == "arena":
            rewards(rollout, spec(extra={"x": {"function": name}}))
        elif method == "mujica":
            scored(MujicaSpec(reward=name), rollout)
        else:
            program_rewards(ProgramSpec(command=("true",), reward=name), rollout)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"extra": {"x": {"function": "no.such.module:f"}}}, "no.such.module:f cannot be found"),
        ({"extra": {"x": {"function": f"{__name__}:absent"}}}, "cannot be found"),
        ({"extra": {"x": {"function": f"{__name__}:WHOLE"}}}, "WHOLE is not a function"),
        ({"extra": {"x": {"function": f"{__name__}:spec"}}}, "cannot be called with a rollout alone"),
        ({"extra": {"bonus": {"function": f"{__name__}:chatty"}}}, "choose another"),
        ({"extra": {"tokens": {"function": f"{__name__}:chatty"}}}, "tokens is the name of a reward or metric"),
        ({"accuracy": "judge"}, "must be given for accuracy judge"),
        ({"judge": {"url": "http://localhost:1/v1", "model": "m"}}, "and only for it"),
    ],
)
def test_invalid_reward_settings_are_refused(reward: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        spec(**reward)


@pytest.mark.parametrize(
    ("text", "spaced", "squad"),
    [
        ("U.S.A.", "u s", "usa"),  # the last letter is an article once it stands alone
        ("a_the_b", "b", "atheb"),
        ("It’s “The End”", "it s end", "it’s “ end”"),
        ("O'Neill", "o neill", "oneill"),
        ("1,000", "1 000", "1000"),
        ("x`y´z", "x y z", "xy´z"),
        ("The the", "", ""),
    ],
)
def test_spaced_and_squad_normalisers_differ(text: str, spaced: str, squad: str) -> None:
    assert (spaced_bag(text).text, normalize_squad(text)) == (spaced, squad)


def test_scores_under_the_spaced_normaliser() -> None:
    assert spaced_exact_match("u s", ["U.S."]) == 1
    assert spaced_exact_match(None, [""]) == 0
    assert spaced_f1("U.S. Army", ["us army", "the U.S."]) == pytest.approx(0.8)  # u s army / u s: P 2/3, R 1
    assert spaced_f1("the", ["a"]) == 1
    assert spaced_f1("yes", ["no", "yes it is"]) == pytest.approx(0.5)  # no all-or-nothing rule for yes
    assert math.isclose(spaced_f1("x", []), 0)


@pytest.mark.parametrize(("tokens", "expected"), [(0, 1.0), (24, 1.0), (48, 0.5)])
def test_brevity_falls_with_the_tokens_beyond_those_that_are_free(tokens: int, expected: float) -> None:
    response = rollout_of("<answer>Ann Lee</answer>")
    said = {"token_ids": (1,) * tokens, "agent_mask": (1,) * tokens, "logprobs": (0.0,) * tokens}
    assert brevity(response.model_copy(update={"main": response.main.model_copy(update=said)})) == expected
