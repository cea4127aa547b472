"""Generated worlds: facts about people, films, books, companies, cities and countries, from a seed.

A world of any size has passages, triples and 1- to 4-hop questions with gold evidence, so every recipe can be tried and
tested without a download.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from platform_sdk.config.errors import UserError
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.language import (
    COMPARISONS,
    EVENTS,
    RELATION,
    RELATIONS,
    RELATIONS_OF,
    TYPE_SHARES,
    YEARS,
    Relation,
    usable_names,
)
from platform_sdk.records import Passage, Question, Triple


@dataclass(frozen=True)
class Chain:
    """A path through the world: ``entities[i]`` --``relations[i]``--> ``entities[i + 1]``."""

    entities: tuple[str, ...]
    relations: tuple[Relation, ...]

    @property
    def answer(self) -> str:
        return self.entities[-1]


@dataclass(frozen=True)
class World:
    """``facts[(subject, relation noun)]`` is the object; the other fields are the records for recipes."""

    types: dict[str, str]
    facts: dict[tuple[str, str], str]
    passages: list[Passage]
    triples: list[Triple]
    train: list[Question]
    eval: list[Question]


def generate(spec: WorldSpec) -> World:
    """Generate the world of ``spec``.

    Raises:
        UserError: the world is too small for the requested questions or contexts.
    """
    rng = random.Random(f"world {spec.split} {spec.seed}")
    types = name_entities(spec, rng)
    facts = make_facts(types, rng)
    passages = [describe(name, types[name], facts, rng) for name in types]
    if spec.years:
        years = make_years(spec, types)
        passages = [dated(passage, types[passage.id], years) for passage in passages]
        facts |= years
    triples = [Triple(head=x, relation=noun, tail=y) for (x, noun), y in facts.items()]
    questions = make_questions(spec, types, facts, rng)
    if spec.context > len(passages):
        raise UserError(f"world.context is {spec.context}, but the world has only {len(passages)} passages; lower it")
    if spec.context:
        # A separate random stream, so that contexts do not change the world and its questions.
        draw = random.Random(f"contexts {spec.split} {spec.seed}")
        surroundings = Surroundings(passages, facts)
        questions = [q.model_copy(update={"context": surroundings.context(q, spec.context, draw)}) for q in questions]
    return World(types, facts, passages, triples, questions[: spec.train_questions], questions[spec.train_questions :])


def name_entities(spec: WorldSpec, rng: random.Random) -> dict[str, str]:
    """Name the entities: one pool word each while the pool lasts, two words in larger worlds."""
    types: dict[str, str] = {}
    for kind, share in TYPE_SHARES.items():
        pool = usable_names(kind, spec.split)
        wanted = max(2, round(spec.entities * share))
        fresh = [name for name in pool if name not in types]
        if 2 * wanted <= len(fresh):
            types |= dict.fromkeys(rng.sample(fresh, wanted), kind)
            continue
        if wanted > len(pool) ** 2 // 4:
            raise UserError(f"world.entities: {spec.entities} is more than the name pool has names for")
        named = 0
        while named < wanted:
            # The first word determines the split, so the splits are disjoint for two-word names too.
            name = f"{rng.choice(pool)} {rng.choice(pool)}"
            if name not in types:
                types[name] = kind
                named += 1
    return types


def make_facts(types: dict[str, str], rng: random.Random) -> dict[tuple[str, str], str]:
    by_type: dict[str, list[str]] = {}
    for name, kind in types.items():
        by_type.setdefault(kind, []).append(name)
    facts: dict[tuple[str, str], str] = {}
    for relation in RELATIONS:
        for subject in by_type[relation.subject]:
            if (subject, relation.noun) in facts:
                continue
            others = by_type[relation.object]
            target = rng.choice(others)
            while target == subject:
                target = rng.choice(others)
            facts[subject, relation.noun] = target
    return facts


def describe(name: str, kind: str, facts: dict[tuple[str, str], str], rng: random.Random) -> Passage:
    """Return the passage about an entity: each of its facts once, in random order and phrasing."""
    relations = list(RELATIONS_OF[kind])
    rng.shuffle(relations)
    sentences = [rng.choice(r.sentences).format(x=name, y=facts[name, r.noun]) for r in relations]
    text = " ".join([f"{name} is a {kind} .", *sentences])
    return Passage(id=name, title=name, text=text)


def make_years(spec: WorldSpec, types: dict[str, str]) -> dict[tuple[str, str], str]:
    """Draw a year for each entity whose type has one, from a separate random stream."""
    draw = random.Random(f"years {spec.split} {spec.seed}")
    return {(name, EVENTS[kind].noun): str(draw.choice(YEARS)) for name, kind in types.items() if kind in EVENTS}


def dated(passage: Passage, kind: str, years: Mapping[tuple[str, str], str]) -> Passage:
    """Return the passage, with a final sentence for its entity's year if it has one."""
    if kind not in EVENTS:
        return passage
    event = EVENTS[kind]
    sentence = event.sentence.format(x=passage.title, y=years[passage.title, event.noun])
    return passage.model_copy(update={"text": f"{passage.text} {sentence}"})


class Surroundings:
    """Passages by mentioned entity, for distractors similar to a question's gold passages."""

    def __init__(self, passages: Sequence[Passage], facts: Mapping[tuple[str, str], str]) -> None:
        self._passages = {passage.id: passage for passage in passages}
        self._mentioning: dict[str, dict[str, None]] = {name: {name: None} for name in self._passages}
        for (subject, _), target in facts.items():
            if target in self._mentioning:  # no year
                self._mentioning[target][subject] = None

    def context(self, question: Question, size: int, rng: random.Random) -> tuple[Passage, ...]:
        """Return ``size`` passages in random order: the gold ones and distractors.

        Up to half of the distractors (rounded up) mention an entity of the question's facts.
        """
        gold = dict.fromkeys(question.gold_passages)
        entities = dict.fromkeys(name for triple in question.gold_triples for name in (triple.head, triple.tail))
        near = list(dict.fromkeys(n for entity in entities for n in self._mentioning.get(entity, ()) if n not in gold))
        others = size - len(gold)
        beside = rng.sample(near, min(len(near), (others + 1) // 2))
        rest = [name for name in self._passages if name not in gold and name not in beside]
        chosen = [*gold, *beside, *rng.sample(rest, others - len(beside))]
        rng.shuffle(chosen)
        return tuple(self._passages[name] for name in chosen)


def random_chain(
    start: str, hops: int, types: dict[str, str], facts: dict[tuple[str, str], str], rng: random.Random
) -> Chain | None:
    """Return a random walk of ``hops`` relations, or None if it reaches an entity twice."""
    entities, relations = [start], []
    for _ in range(hops):
        relation = rng.choice(RELATIONS_OF[types[entities[-1]]])
        target = facts[entities[-1], relation.noun]
        if target in entities:
            return None
        entities.append(target)
        relations.append(relation)
    return Chain(tuple(entities), tuple(relations))


def phrase_chain(chain: Chain, rng: random.Random) -> str:
    """Return the question answered by a chain: noun phrases nested around the first entity."""
    subject = chain.entities[0]
    for relation in chain.relations[:-1]:
        subject = rng.choice(relation.phrases).format(x=subject)
    return rng.choice(chain.relations[-1].questions).format(x=subject)


def make_questions(
    spec: WorldSpec, types: dict[str, str], facts: dict[tuple[str, str], str], rng: random.Random
) -> list[Question]:
    """Return questions in random order, all of different meaning, so that evaluation questions are unseen."""
    names, wanted = list(types), spec.train_questions + spec.eval_questions
    seen: set[tuple[str, ...]] = set()
    questions: list[Question] = []
    misses = 0
    while len(questions) < wanted:
        if spec.years and rng.random() < spec.years:
            drawn = _difference(names, types, facts, rng)
        elif rng.random() < spec.comparisons:
            drawn = _comparison(names, types, facts, rng)
        else:
            chain = random_chain(rng.choice(names), rng.choice(spec.hops), types, facts, rng)
            drawn = None if chain is None else _chain_question(chain, rng)
        if drawn is None or drawn[0] in seen:
            misses += 1
            if misses > 1000 + 100 * wanted:
                raise UserError(
                    f"world: {wanted} different questions cannot be asked of {spec.entities} entities with hops "
                    f"{list(spec.hops)}; raise world.entities or ask fewer questions"
                )
            continue
        seen.add(drawn[0])
        training = spec.split == "evaluation" and len(questions) < spec.train_questions
        name = "training" if training else spec.split
        questions.append(drawn[1].model_copy(update={"id": f"{name}-{spec.seed}-{len(questions):05d}"}))
    return questions


def _chain_question(chain: Chain, rng: random.Random) -> tuple[tuple[str, ...], Question]:
    steps = list(zip(chain.entities, chain.relations, chain.entities[1:], strict=False))
    question = Question(
        id="-",
        text=phrase_chain(chain, rng),
        answers=(chain.answer,),
        dataset="world",
        type="chain",
        hops=len(chain.relations),
        gold_passages=tuple(x for x, _, _ in steps),
        gold_triples=tuple(Triple(head=x, relation=r.noun, tail=y) for x, r, y in steps),
        topic_entities=(chain.entities[0],),
    )
    return (chain.entities[0], *(r.noun for r in chain.relations)), question


def _comparison(
    names: list[str], types: dict[str, str], facts: dict[tuple[str, str], str], rng: random.Random
) -> tuple[tuple[str, ...], Question] | None:
    relation = RELATION[rng.choice(list(COMPARISONS))]
    subjects = [name for name in names if types[name] == relation.subject]
    same = Counter(facts[name, relation.noun] for name in subjects)
    a = rng.choice(subjects)
    value = facts[a, relation.noun]
    agree = rng.random() < 0.5 and same[value] > 1  # half of the answers are yes
    fitting = [b for b in subjects if b != a and (facts[b, relation.noun] == value) is agree]
    if not fitting:
        return None
    b = rng.choice(fitting)
    question = Question(
        id="-",
        text=rng.choice(COMPARISONS[relation.noun]).format(a=a, b=b),
        answers=("yes" if agree else "no",),
        dataset="world",
        type="comparison",
        hops=2,
        gold_passages=(a, b),
        gold_triples=tuple(Triple(head=x, relation=relation.noun, tail=facts[x, relation.noun]) for x in (a, b)),
        topic_entities=(a, b),
    )
    return ("comparison", relation.noun, *sorted((a, b))), question


def _difference(
    names: list[str], types: dict[str, str], facts: dict[tuple[str, str], str], rng: random.Random
) -> tuple[tuple[str, ...], Question] | None:
    """Draw a question for the years between the events of two entities of one type."""
    kind = rng.choice(list(EVENTS))
    event = EVENTS[kind]
    subjects = [name for name in names if types[name] == kind]
    a, b = sorted(rng.sample(subjects, 2), key=lambda name: int(facts[name, event.noun]))
    years = int(facts[b, event.noun]) - int(facts[a, event.noun])
    if not years:
        return None
    question = Question(
        id="-",
        text=event.difference.format(a=a, b=b),
        answers=(str(years),),
        dataset="world",
        type="years",
        hops=2,
        gold_passages=(a, b),
        gold_triples=tuple(Triple(head=x, relation=event.noun, tail=facts[x, event.noun]) for x in (b, a)),
        topic_entities=(a, b),
    )
    return ("years", event.noun, a, b), question
