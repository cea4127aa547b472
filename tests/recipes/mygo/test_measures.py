"""Measures of an evaluation, against a rollout worked through by hand."""

from __future__ import annotations

import pytest

from platform_sdk.agents.planner_rewards import measures
from platform_sdk.records import Rollout
from tests.tracking.rollouts import rollout


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


def test_what_has_no_gold_has_no_evidence_recall() -> None:
    made = scored(rollout())
    bare = made.model_copy(update={"question": made.question.model_copy(update={"gold_passages": ()})})
    with_gold, without = measures("text", made), measures("text", bare)
    assert with_gold.keys() - without.keys() == {"evidence_recall"}
    graph = measures("kg", made)  # its gold is triples, and none are named
    assert "evidence_recall" not in graph
