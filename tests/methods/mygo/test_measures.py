"""Measures of an evaluation, against a rollout worked through by hand."""

from __future__ import annotations

import pytest

from platform_sdk.agents.planner_rewards import measures, worker_reward
from platform_sdk.records import Evidence, Rollout, Triple
from tests.tracking.rollouts import agent, environment, rollout, trajectory


def scored(made: Rollout) -> Rollout:
    return made.model_copy(update={"rewards": {"em": 0.0, "f1": 0.0, "well_formed": 1.0}})


def test_measures_by_hand() -> None:
    made = scored(rollout(answer="old Lyon"))
    found = measures("text", made)
    assert found == pytest.approx(
        {
            "em": 0.0,
            "f1": 2 / 3,  # one of two words is right, and all of the answer is there
            "prec": 0.5,
            "recall": 1.0,
            "answered": 1.0,
            "well_formed": 1.0,
            "turns": 3.0,
            "searches": 3.0,  # two in the first turn, one in the second
            "tokens": float(sum(sum(t.agent_mask) for t in made.trajectories)),
            "evidence_recall": 0.5,  # Blue Harbour was seen, Anna Vey was not
        }
    )


def test_question_without_gold_evidence_has_no_evidence_recall() -> None:
    made = scored(rollout())
    bare = made.model_copy(update={"question": made.question.model_copy(update={"gold_passages": ()})})
    with_gold, without = measures("text", made), measures("text", bare)
    assert with_gold.keys() - without.keys() == {"evidence_recall"}
    graph = measures("kg", made)  # its gold is triples, and none are named
    assert "evidence_recall" not in graph


def test_a_worker_that_reads_passages_is_worth_the_gold_share_of_its_choice() -> None:
    made = rollout()  # the first chooses Blue Harbour, the second was shown no gold, the third chooses Red Harbour
    assert [worker_reward("text", made, worker) for worker in made.others] == [1.0, None, 0.0]
    both = made.others[0].model_copy(update={"selected": (0, 1)})
    assert worker_reward("text", made, both) == 0.5


@pytest.mark.parametrize(
    ("selected", "sentence", "expected"),
    [
        ((0,), "The director is Anna Vey.", 1.0),
        ((0, 1), "The director is Anna Vey.", 0.75),
        ((1,), "The director is Anna Vey.", 0.5),
        ((0,), "The director is Tom Oak.", 0.5),
        ((), None, 0.0),
    ],
)
def test_a_worker_that_reads_triples_is_worth_its_choice_and_its_sentence(
    selected: tuple[int, ...], sentence: str | None, expected: float
) -> None:
    gold = Triple(head="Blue Harbour", relation="director", tail="Anna Vey")
    made = rollout()
    made = made.model_copy(update={"question": made.question.model_copy(update={"gold_triples": (gold,)})})
    shown = [
        Evidence(kind="triple", id=str(number), title=tail, text=f"Blue Harbour, {relation}, {tail}", score=1.0)
        for number, (relation, tail) in enumerate((("director", "Anna Vey"), ("composer", "Tom Oak")))
    ]
    turns = [environment("Who directed it?", *shown), agent("…")]
    assert worker_reward("kg", made, trajectory("worker", "1.0", turns, selected=selected, answer=sentence)) == expected
