"""The generated world: its facts, questions and gold evidence agree, and its splits share no fact."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.world_base.arena_documents import arena_world
from examples.world_base.practice import base_world
from platform_sdk.config.errors import UserError
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.language import RELATION
from platform_sdk.data.world import generate
from platform_sdk.record_files import digest_records

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


@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from([12, 40, 240]), st.integers(4, 9))
def test_given_passages_hold_the_gold_ones_among_some_that_mention_the_same(
    seed: int, entities: int, size: int
) -> None:
    spec = WorldSpec(seed=seed, entities=entities, train_questions=20, eval_questions=5, comparisons=0.3)
    bare, world = generate(spec), generate(spec.model_copy(update={"context": size}))
    assert world.passages == bare.passages  # the same world, with the same questions
    assert [q.model_copy(update={"context": ()}) for q in world.train + world.eval] == bare.train + bare.eval
    corpus = {p.id: p for p in world.passages}
    for question in world.train + world.eval:
        given_ids = [p.id for p in question.context]
        assert len(set(given_ids)) == len(given_ids) == size
        assert set(question.gold_passages) <= set(given_ids)
        assert [corpus[id_] for id_ in given_ids] == list(question.context)
        # A passage mentions an entity if its facts do; at least one distractor does, if the world has one.
        entities_asked = {name for t in question.gold_triples for name in (t.head, t.tail)}
        near = {
            id_
            for id_ in set(corpus) - set(question.gold_passages)
            if entities_asked & {id_, *(t.tail for t in world.triples if t.head == id_)}
        }
        others = size - len(question.gold_passages)
        assert len(near & set(given_ids)) >= min(len(near), (others + 1) // 2)


def test_the_order_of_given_passages_says_nothing() -> None:
    world = generate(WorldSpec(seed=5, entities=400, hops=(1,), comparisons=0, context=4))
    places = [[p.id for p in q.context].index(q.gold_passages[0]) for q in world.train]
    assert len(places) == 600
    assert all(110 <= places.count(place) <= 190 for place in range(4))  # 150 each, give or take 3.8 deviations


@pytest.mark.parametrize(("hops", "comparisons", "context"), [((1, 3), 0.0, 2), ((1,), 0.1, 1), ((1,), 0.0, 50)])
def test_a_context_that_cannot_hold_its_gold_passages_is_refused(
    hops: tuple[int, ...], comparisons: float, context: int
) -> None:
    with pytest.raises(ValueError, match=r"context: must be 0, or from \d \(the gold passages"):
        WorldSpec(entities=40, hops=hops, comparisons=comparisons, context=context)


@pytest.mark.parametrize(
    ("spec", "questions", "passages"),
    [
        (WorldSpec(seed=3), "fd3fd2d2", "2f86284d"),
        (
            WorldSpec(seed=1, entities=40, train_questions=60, eval_questions=20, split="base"),
            "6470e523",
            "33a72f75",
        ),
    ],
)
def test_worlds_are_those_of_earlier_versions(spec: WorldSpec, questions: str, passages: str) -> None:
    """Digests of worlds made before questions could have contexts: runs and the base model rest on them."""
    world = generate(spec)
    # Training questions were called evaluation-… too; but for their ids they are what they were.
    named = [q.model_copy(update={"id": q.id.replace("training", "evaluation")}) for q in world.train + world.eval]
    assert digest_records(named).startswith(questions)
    assert digest_records(world.passages).startswith(passages)


def test_questions_are_named_by_what_they_are_for() -> None:
    world = generate(WorldSpec(seed=3, train_questions=2, eval_questions=1))
    assert [q.id for q in world.train + world.eval] == ["training-3-00000", "training-3-00001", "evaluation-3-00002"]


def test_a_world_too_small_for_its_questions_says_so() -> None:
    with pytest.raises(UserError, match=r"raise world\.entities"):
        generate(WorldSpec(entities=12, hops=(1,), train_questions=500, eval_questions=0))


def test_the_base_models_saw_no_fact_of_any_recipes_world() -> None:
    """No (subject, relation) pair can occur in both splits: proven over all names, not sampled."""
    from platform_sdk.data.language import TYPES, usable_names

    for kind in TYPES:
        assert not set(usable_names(kind, "evaluation")) & set(usable_names(kind, "base"))
    demo = set(generate(WorldSpec()).facts)
    for seed in range(200):
        assert not demo & set(base_world(seed).facts)
        assert not demo & set(arena_world(seed).facts)
    large = generate(WorldSpec(entities=3000, train_questions=0, eval_questions=0))
    base = generate(WorldSpec(entities=3000, train_questions=0, eval_questions=0, split="base"))
    assert not set(large.facts) & set(base.facts)
