"""The grammar, the dialogue and what a rollout is worth, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from platform_sdk.agents.planner_worker import Answer, Malformed
from platform_sdk.config.credit import GroupCreditSpec
from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import SamplingSpec
from platform_sdk.errors import UserError
from platform_sdk.methods.method import RunContext
from platform_sdk.methods.prograph import prompts
from platform_sdk.methods.prograph.grammar import Query, parse
from platform_sdk.methods.prograph.measures import measures
from platform_sdk.methods.prograph.method import METHOD
from platform_sdk.methods.prograph.rewards import rewards
from platform_sdk.methods.prograph.settings import AgentSpec, CreditSpec
from platform_sdk.methods.prograph.structure import with_structure
from platform_sdk.records import Evidence, Turn
from tests.methods.contexts import plain
from tests.methods.prograph.saying import ASK, ASK_MOTHER, RIGHT, WRONG, play


def turn(text: str, **changes: Any) -> Turn:
    return Turn(speaker=changes.pop("speaker", "agent"), text=text, start=0, end=0, **changes)


def shown(*titles: str) -> Turn:
    evidence = tuple(Evidence(kind="passage", id=name, title=name, text="-", score=0.0) for name in titles)
    return turn("found", speaker="environment", evidence=evidence)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (" <think> t </think>\n<query> who ? </query> ", Query("who ?")),
        ("<think></think><answer>Lena\nRoth</answer>", Answer("Lena\nRoth")),
        ("<query>who</query>", "begin with"),
        ("x <think>t</think><query>who</query>", "begin with"),
        ("<think>t<query>who</query>", "begin with"),
        ("<think><think>t</think><query>who</query>", "another tag"),
        ("<think>t</think>", "write one <query>"),
        ("<think>t</think><query>who", "write one <query>"),
        ("<think>t</think><query>who</query> so", "write one <query>"),
        ("<think>t</think><query>who</query><answer>a</answer>", "write one <query>"),
        ("<think>t</think><query><answer>a</answer></query>", "write one <query>"),
        ("<think>t</think><query>a</query> <query>b</query>", "only one <query>"),
        ("<think>t</think><answer> </answer>", "answer is empty"),
        ("<think>t</think><Answer>a</Answer>", "write one <query>"),
        ("", "begin with"),
    ],
)
def test_turn_is_parsed_or_refused_with_its_reason(text: str, action: Any) -> None:
    found = parse(text)
    if isinstance(action, str):
        assert isinstance(found, Malformed)
        assert action in found.reason
    else:
        assert found == action


@pytest.mark.parametrize("style", ["standard", "compact"])
def test_worked_example_keeps_to_the_grammar(style: Any) -> None:
    turns = prompts.example(style)[1::2]
    assert [type(parse(turn)) for turn in turns] == [Query, Query, Answer]


def test_dialogue_records_queries_evidence_and_rewards_of_each_turn() -> None:
    rollout = play([ASK, "what?", ASK_MOTHER, RIGHT])
    first, malformed, second, answer = rollout.main.agent_turns
    # Amberfall is in the question; Ida Roth is new. Neither is the answer.
    assert (first.queries, first.rewards) == (("director",), {"con": 1 / 2, "ans": 0.0, "struct": 1 / 2})
    assert malformed.malformed is not None
    # Of Ida Roth, Lena Roth and Velm the first is known, the second the answer.
    assert second.rewards == pytest.approx({"con": 1 / 3, "ans": 1 / 3, "struct": 2 / 3})
    assert (malformed.rewards, answer.rewards, answer.queries) == ({}, {}, ())
    told = [turn.text for turn in rollout.main.turns if turn.speaker == "environment"][1:]
    assert told[0] == "<knowledge>\nIda Roth directed Amberfall.\n</knowledge>"
    assert told[1].startswith("Error : begin with")
    assert [item.id for item in rollout.main.evidence] == ["e1", "e2"]
    # Every sampled token is the agent's, and no other is.
    spans = [place for turn in rollout.main.agent_turns for place in range(turn.start, turn.end)]
    assert [place for place, mask in enumerate(rollout.main.agent_mask) if mask] == spans
    assert (rollout.outcome, rollout.main.answer) == ("answered", "Lena Roth")
    assert rollout.rewards == rewards(rollout)
    expected = {"turns": 4.0, "searches": 2.0, "answered": 1.0, "well_formed": 0.0, "em": 1.0}
    assert {name: measures(rollout)[name] for name in expected} == expected


def test_evidence_recall_after_each_turn_counts_what_was_shown_by_then() -> None:
    def recalls(*turns: str) -> list[float]:
        found = measures(play(list(turns)))
        return [found[f"evidence_recall{turn}"] for turn in ("_1", "_2", "_3", "")]

    assert recalls(ASK, "what?", ASK_MOTHER, RIGHT) == [0.5, 0.5, 1.0, 1.0]  # the second turn is malformed
    assert recalls(ASK, ASK_MOTHER, RIGHT) == [0.5, 1.0, 1.0, 1.0]
    assert recalls(ASK, RIGHT) == [0.5] * 4  # an ended dialogue keeps its share
    assert recalls(RIGHT) == [0.0] * 4
    assert recalls("what?", "what?", "what?", ASK, RIGHT) == [0.0, 0.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("turns", "parts"),
    [
        ([RIGHT], (0.5, 0.0, -0.5)),  # right, but without any search: no accuracy
        ([ASK, RIGHT], (1.0, 1.0, 1.0)),
        ([ASK, WRONG], (1.0, 0.0, 0.0)),
        ([ASK, ASK, RIGHT], (1.0, 1.0, 1.0)),
        (["?", RIGHT], (0.5, 0.0, -0.5)),  # the malformed turn does not count
        (["?", ASK, RIGHT], (1.0, 1.0, 1.0)),
        ([ASK, "<think>t</think><answer>Lena</answer>"], (1.0, 2 / 3, 2 / 3)),
        ([ASK, ASK, ASK], (1.0, 0.0, 0.0)),
        (["?", "?", "?"], (0.0, 0.0, -1.0)),
    ],
)
def test_outcome_reward_by_hand(turns: list[str], parts: tuple[float, float, float]) -> None:
    found = play(turns, max_turns=3).rewards
    assert (found["format"], found["accuracy"], found["reward"]) == pytest.approx(parts)


def test_limits_end_the_dialogue() -> None:
    used_up = play([ASK, ASK, RIGHT], max_turns=2)
    assert (used_up.outcome, used_up.main.answer, len(used_up.main.evidence)) == ("iteration_limit", None, 1)
    assert used_up.main.turns[-1].speaker == "agent"  # what could follow the last query is not searched
    opening = used_up.main.turns[0].end
    full = play([ASK, RIGHT], max_model_len=opening + 80, max_turns=2)
    assert (full.outcome, full.rewards["reward"], len(full.main.agent_turns)) == ("context_limit", -0.5, 1)
    assert play([], max_model_len=opening).rewards["reward"] == -1.0


def test_empty_retrieval_has_no_structure_and_a_passage_counts_as_its_title() -> None:
    nothing = play(["<think>t</think><query>else</query>", RIGHT])
    assert nothing.main.agent_turns[0].rewards == {"con": 0.0, "ans": 0.0, "struct": 0.0}
    assert "nothing found" in nothing.main.turns[2].text

    turns = [
        turn("Where is the Red House, not Redhouse or Hill?", speaker="environment"),
        turn("a", queries=("x",)),
        shown("Red House!", "Redh", "The", "Paris"),  # "The" names nothing
        turn("b", queries=("y",)),
        shown("the Paris", "House not", "RED HOUSE", "Rome"),
    ]
    scored = with_structure(("Paris, France", "Rome"), turns)
    assert scored[1].rewards == pytest.approx({"con": 1 / 3, "ans": 1 / 3, "struct": 2 / 3})
    # Paris and the Red House were found before; "House not" runs over the comma, which is no word.
    assert scored[3].rewards == pytest.approx({"con": 3 / 4, "ans": 2 / 4, "struct": 5 / 4})


def test_repeated_evidence_counts_once_if_asked_for() -> None:
    """The second search finds what the first found, and Rome: Paris counts again, or not."""
    turns = [
        turn("Where is the Red House?", speaker="environment"),
        turn("a", queries=("x",)),
        shown("Red House", "Paris"),
        turn("b", queries=("y",)),
        shown("Red House", "Paris", "Rome", "Oslo"),
    ]
    paper = with_structure(("Paris", "Rome"), turns)
    once = with_structure(("Paris", "Rome"), turns, count_repeats=False)
    assert once[1].rewards == paper[1].rewards == {"con": 1 / 2, "ans": 1 / 2, "struct": 1.0}
    assert paper[3].rewards == {"con": 2 / 4, "ans": 2 / 4, "struct": 1.0}
    assert once[3].rewards == {"con": 0.0, "ans": 1 / 4, "struct": 1 / 4}
    repeated = play([ASK, ASK, RIGHT], count_repeats=False)
    assert [one.rewards.get("struct") for one in repeated.main.agent_turns] == [1 / 2, 0.0, None]


def test_namesakes_are_two_entities_that_texts_call_alike() -> None:
    turns = [
        turn("question: where is Oslo ?", speaker="environment"),
        turn("a", queries=("x",)),
        shown("Oslo (city)", "Oslo (band)", "Bergen (city)", "(1999)"),
    ]
    scored = with_structure(("Bergen",), turns)
    assert scored[1].rewards == pytest.approx({"con": 2 / 4, "ans": 1 / 4, "struct": 3 / 4})


def test_of_equal_names_the_last_decides_how_texts_call_the_entity() -> None:
    """``N (film)`` and ``N film`` are one entity, called N or N film: the same in every process."""
    names = [f"N{number}" for number in range(30)]
    question = turn("question", speaker="environment")
    for last, worth in (("{} film", 0.0), ("{} (film)", 1.0)):
        first = "{} (film)" if last == "{} film" else "{} film"
        found = shown(*(form.format(name) for name in names for form in (first, last)))
        scored = with_structure(names, [question, turn("a", queries=("x",)), found])
        assert scored[1].rewards["ans"] == worth


def test_retrieval_that_needs_more_than_a_query_is_refused() -> None:
    agent, sampling = {}, {}
    with pytest.raises(UserError, match="triples: a search there must name its head"):
        METHOD.context(plain(Path("run"), "world-kg", agent, sampling, {}))


def test_credit_of_steps_and_of_trajectories_exclude_each_other() -> None:
    online = OnlineSpec(updates=1, credit=GroupCreditSpec(scale="none"))
    stepwise, plain = (
        RunContext(Path("run"), "world-text", AgentSpec(credit=own), SamplingSpec(), RetrievalSpec(), "c", 0)
        for own in (CreditSpec(baseline="step", progress_weight=0, structure_weight=0), None)
    )
    assert METHOD.credit(plain, online).spec == online.credit  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"set one of them"):
        METHOD.credit(stepwise, online)
    with pytest.raises(UserError, match=r"no rewards for called trajectories; set it to shared or none"):
        METHOD.credit(plain, OnlineSpec(updates=1, credit=GroupCreditSpec(others="own")))
