"""Trajectories recorded for scoring only are no part of what the policy did: not trained on, not counted, not
graded.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from platform_sdk.agents.planner_rewards import measures, rewards
from platform_sdk.records import Rollout, Trajectory
from platform_sdk.training.credit import GroupAdvantage
from platform_sdk.training.examples import Example, examples_of
from tests.methods.played import played
from tests.tracking.rollouts import agent, environment, evidence, rollout, trajectory

PLAYED = played()


def probe(number: int, text: str, malformed: str | None, **fields: Any) -> Trajectory:
    shown = environment("Question", evidence(0, "Anna Vey", "Anna Vey was born in Lyon."))
    return trajectory("probe", f"probe-{number}", [shown, agent(text, malformed)], use="scoring", **fields)


probes = st.lists(st.tuples(st.text("ab <>", max_size=9), st.none() | st.just("bad")), max_size=4)


def learned_beside_a_rival(one: Rollout) -> list[Example]:
    """The examples of a group of two, whose other rollout is right where this one is wrong."""
    rival = one.model_copy(update={"attempt": 1, "rewards": {**one.rewards, "em": 1 - one.rewards["em"]}})
    return examples_of([one, rival], GroupAdvantage("em").advantages([one, rival]))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(PLAYED)), probes, st.booleans())
def test_scoring_only_trajectories_change_neither_examples_nor_rewards(name: str, said: list[Any], first: bool) -> None:
    before = PLAYED[name]
    scored = tuple(probe(number, *one) for number, one in enumerate(said))
    others = (*scored, *before.others) if first else (*before.others, *scored)
    after = Rollout.model_validate(before.model_dump(exclude={"others"}) | {"others": others})
    assert len(after.recorded) == len(before.recorded) + len(said)
    assert after.trajectories == before.trajectories
    assert after.malformed_turns == before.malformed_turns
    assert examples_of([after]) == examples_of([before])
    assert learned_beside_a_rival(after) == learned_beside_a_rival(before)
    if name.startswith("mygo"):
        assert rewards(after) == rewards(before)
        medium: Any = name.split()[1]
        assert measures(medium, after) == measures(medium, before)


def test_a_main_trajectory_for_scoring_only_is_refused() -> None:
    one = rollout()
    main = one.main.model_copy(update={"use": "scoring"})
    with pytest.raises(ValidationError, match="must have use: training"):
        Rollout.model_validate(one.model_dump() | {"main": main.model_dump()})


def test_call_of_an_unknown_trajectory_is_refused() -> None:
    one = rollout()
    with pytest.raises(ValidationError, match=r"a turn calls 3\.0, which is not a trajectory of this rollout"):
        Rollout.model_validate(one.model_dump() | {"others": [other.model_dump() for other in one.others[:2]]})


def test_two_trajectories_of_one_id_are_refused() -> None:
    one = rollout()
    with pytest.raises(ValidationError, match="same id"):
        Rollout.model_validate(one.model_dump() | {"others": [one.main.model_dump(), *one.model_dump()["others"]]})
