"""The generated world: its facts, questions and gold evidence agree, and its splits share no fact."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.config.errors import UserError
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.language import RELATION
from platform_sdk.data.world import generate
from platform_sdk.recipes.world_base.documents import Documents

seeds = st.integers(0, 2**31)


@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from([40, 240, 3000]))
def test_questions_follow_from_the_facts(seed: int, entities: int) -> None:
    world = generate(WorldSpec(seed=seed, entities=entities, train_questions=60, eval_questions=20))
    passages = {p.title: p.text for p in world.passages}
    assert len(world.train) == 60
    assert len(world.eval) == 20
    assert {(t.head, t.relation, t.tail) for t in world.triples} == {(x, r, y) for (x, r), y in world.facts.items()}
    for question in world.train + world.eval:
        assert len(question.gold_triples) == question.hops
        for triple in question.gold_triples:
            assert world.facts[triple.head, triple.relation] == triple.tail
            assert triple.tail in passages[triple.head]  # the fact stands in the gold passage
            relation = RELATION[triple.relation]
            assert (world.types[triple.head], world.types[triple.tail]) == (relation.subject, relation.object)
        assert {t.head for t in question.gold_triples} == set(question.gold_passages)
        if question.type == "chain":
            heads = [t.head for t in question.gold_triples]
            tails = [t.tail for t in question.gold_triples]
            assert heads[1:] == tails[:-1]
            assert question.answers == (tails[-1],)
            assert heads[0] in question.text
            assert not any(tail in question.text.split() for tail in tails)  # nothing is given away
        else:
            values = {t.tail for t in question.gold_triples}
            assert question.answers == ("yes" if len(values) == 1 else "no",)


def test_equal_settings_give_an_equal_world_and_texts_are_unique() -> None:
    spec = WorldSpec(seed=3)
    first, second = generate(spec), generate(spec)
    assert (first.passages, first.triples, first.train, first.eval) == (
        second.passages, second.triples, second.train, second.eval,
    )  # fmt: skip
    assert generate(WorldSpec(seed=4)).passages != first.passages
    meanings = [(q.topic_entities, tuple(t.relation for t in q.gold_triples)) for q in first.train + first.eval]
    assert len(set(meanings)) == len(meanings)  # evaluation questions are unseen ones


def test_a_world_too_small_for_its_questions_says_so() -> None:
    with pytest.raises(UserError, match=r"raise world\.entities"):
        generate(WorldSpec(entities=12, hops=(1,), train_questions=500, eval_questions=0))


def test_the_base_model_saw_no_fact_of_any_recipes_world() -> None:
    """No (subject, relation) pair can occur in both splits: proven over all names, not sampled."""
    from platform_sdk.data.language import TYPES, usable_names

    for kind in TYPES:
        assert not set(usable_names(kind, "evaluation")) & set(usable_names(kind, "base"))
    demo = set(generate(WorldSpec()).facts)
    for seed in range(200):
        assert not demo & set(Documents.world(seed).facts)
    large = generate(WorldSpec(entities=3000, train_questions=0, eval_questions=0))
    base = generate(WorldSpec(entities=3000, train_questions=0, eval_questions=0, split="base"))
    assert not set(large.facts) & set(base.facts)
