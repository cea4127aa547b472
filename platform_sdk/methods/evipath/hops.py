"""Facts needed for a question, from the dataset's triples or its decomposition.

A need is a fact that answers one sub-question; a need that depends on another one comes after it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from platform_sdk.evaluation.answers import exact_match
from platform_sdk.methods.evipath.phrases import Tongue, declared, drawn, joined, phrasing, question_of
from platform_sdk.methods.evipath.proxy import Facts
from platform_sdk.methods.evipath.value_comparison import compared
from platform_sdk.records import Question, Triple

_REFERENCE = re.compile(r"#\s?(\d+)")


@dataclass(frozen=True)
class Need:
    """A fact that a question needs.

    Attributes:
        planned: wording in the plan, before earlier answers are known.
        named: wording in thoughts, with full names.
        subject: the subject entity.
        values: the answers; several if the dataset gives several.
        after: the needs on whose answers it depends.
        evidence: indices in the pool, if the dataset gives them.
    """

    planned: str
    named: str
    question: str
    sentence: str
    subject: str
    values: tuple[str, ...]
    after: tuple[int, ...]
    evidence: tuple[int, ...]


@dataclass(frozen=True)
class Solution:
    """The needs of a question and its answer; ``by_comparison`` if the answer compares values."""

    needs: tuple[Need, ...]
    answer: str
    by_comparison: bool = False

    def levels(self) -> list[list[Need]]:
        """Return the needs in topological order as steps: each as early as possible."""
        depth: list[int] = []
        for need in self.needs:
            depth.append(1 + max((depth[place] for place in need.after), default=-1))
        return [[n for n, at in zip(self.needs, depth, strict=True) if at == level] for level in range(max(depth) + 1)]


@dataclass(frozen=True)
class Refusal:
    """Reason why the rules cannot write a path for a question."""

    reason: str
    detail: str


def solve(question: Question, facts: Facts, rng: random.Random) -> Solution | Refusal:
    """Return the needs of a question, or a refusal."""
    if not facts.gold:
        return Refusal("no-evidence", "the record names no gold evidence that is in its context")
    if question.decomposition:
        return _decomposed(question, facts, rng)
    if question.gold_triples:
        return _of_triples(question, facts, rng)
    return Refusal("no-decomposition", "the record has neither evidence triples nor a decomposition")


def tongue_of(question: Question) -> Tongue:
    """Return the language of a dataset's questions."""
    return "world" if question.dataset == "world" else "english"


# Decompositions ---------------------------------------------------------------------------------------------------


def _decomposed(question: Question, facts: Facts, rng: random.Random) -> Solution | Refusal:
    hops, needs = question.decomposition, []
    ids = [item.id for item in facts.pool]
    for place, hop in enumerate(hops):
        after = tuple(dict.fromkeys(int(number) - 1 for number in _REFERENCE.findall(hop.question)))
        if any(not 0 <= earlier < place for earlier in after):
            return Refusal("decomposition", f"step {place + 1} rests on a step that does not come before it")
        bound = _REFERENCE.sub(lambda found: hops[int(found[1]) - 1].answer, hop.question)
        planned = _REFERENCE.sub(lambda found: f"the answer to step {found[1]}", hop.question)
        evidence = (ids.index(hop.passage),) if hop.passage in ids else ()
        subject, _, relation = bound.partition(">>")
        value = _value(hop.answer)
        if relation:
            words = phrasing(relation.strip(), "english")
            subject, unknown = subject.strip(), planned.partition(">>")[0].strip()
            asked = question_of(drawn(words.questions, rng).format(x=subject))
            sentence = drawn(words.sentences, rng).format(x=subject, y=value)
            need = (words.need.format(x=unknown), words.need.format(x=subject))
        else:
            asked = question_of(bound)
            sentence = declared(asked, value, rng)
            need = (question_of(planned), f"the answer to '{asked}'")
        needs.append(Need(*need, asked, sentence, subject, (hop.answer,), after, evidence))
    return Solution(tuple(needs), hops[-1].answer)


# Triples ----------------------------------------------------------------------------------------------------------


def _of_triples(question: Question, facts: Facts, rng: random.Random) -> Solution | Refusal:
    tongue, compares = tongue_of(question), "comparison" in question.type
    groups: dict[tuple[str, str], list[Triple]] = {}
    for triple in dict.fromkeys(question.gold_triples):
        groups.setdefault((triple.head, triple.relation), []).append(triple)
    needs: list[Need] = []
    triples = list(groups.values())
    for place, group in enumerate(triples):
        head, relation = group[0].head, group[0].relation
        link = None if question.type == "comparison" else _link(group[0], triples[:place])
        if link is None and place and question.type in ("compositional", "inference", "chain"):
            link = (place - 1, needs[-1].values[0])
        if link is None and question.type != "comparison" and place and not _mentions(question.text, head):
            link = _by_position(place, triples)
            if link is None:
                return Refusal("unlinked", f"{head!r} is neither in the question nor found before")
        # Text search uses the found name; a graph search uses the name in its triples.
        subject = head if link is None or facts.medium == "kg" else link[1]
        words = phrasing(relation, tongue)
        parent = None if link is None else needs[link[0]]
        values = tuple(triple.tail for triple in group)
        needs.append(
            Need(
                planned=relation if tongue == "world" else words.need.format(x=parent.planned if parent else head),
                named=words.need.format(x=subject),
                question=question_of(drawn(words.questions, rng).format(x=subject), tongue),
                sentence=drawn(words.sentences, rng).format(x=subject, y=joined([*map(_value, values)], tongue)),
                subject=subject,
                values=values,
                after=() if link is None else (link[0],),
                evidence=_places(group, facts),
            )
        )
    if not compares:
        values = needs[-1].values
        right = (value for value in values if exact_match(value, question.answers, question.dataset))
        return Solution(tuple(needs), next(right, values[0]))
    answer = _compared(question, triples, needs)
    if answer is None:
        return Refusal("comparison", f"what was found cannot be compared: {question.text}")
    return Solution(tuple(needs), answer, by_comparison=True)


def _value(text: str) -> str:
    """Return a value without its full stop, for the end of a sentence."""
    return text.rstrip(".") or text


def _link(triple: Triple, earlier: Sequence[Sequence[Triple]]) -> tuple[int, str] | None:
    """Return the earlier group with the triple's head, and the head's name there."""
    for alike in (_equal_names, _equal_ids, _one_name):  # ids of some records are in another order
        for place, group in enumerate(earlier):
            for other in group:
                if alike(triple, other):
                    return place, other.tail
    return None


def _equal_names(triple: Triple, other: Triple) -> bool:
    return triple.head == other.tail


def _equal_ids(triple: Triple, other: Triple) -> bool:
    return bool(triple.head_id) and triple.head_id == other.tail_id


def _one_name(triple: Triple, other: Triple) -> bool:
    head, tail = _words(triple.head), _words(other.tail)
    return bool(head and tail) and (head <= tail or tail <= head)


def _by_position(place: int, triples: Sequence[Sequence[Triple]]) -> tuple[int, str] | None:
    """Return the link by the order of the dataset, if each of several entities has one bridge and one attribute."""
    half = len(triples) // 2
    if len(triples) % 2 or place < half:
        return None
    return place - half, triples[place - half][0].tail


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", re.sub(r"\(.*?\)", " ", name).lower()))


def _mentions(text: str, name: str) -> bool:
    return _words(name) <= frozenset(re.findall(r"\w+", text.lower()))


def _places(group: Sequence[Triple], facts: Facts) -> tuple[int, ...]:
    """Return the indices of the evidence for triples: the triples, or the gold passage titled with their head."""
    if facts.medium == "kg":
        texts = {triple.text for triple in group}
        return tuple(place for place in facts.gold if facts.pool[place].text in texts)
    head = _words(group[0].head)
    titled = [place for place in facts.gold if _words(facts.pool[place].title) == head]
    return tuple(titled[:1])


def _compared(question: Question, triples: Sequence[Sequence[Triple]], needs: Sequence[Need]) -> str | None:
    """Return the answer of a comparison, from the last need of each entity named in the question."""
    followed = {earlier for need in needs for earlier in need.after}
    values: dict[str, dict[str, Sequence[str]]] = {}
    for place, (group, need) in enumerate(zip(triples, needs, strict=True)):
        if place not in followed:
            root = place
            while needs[root].after:
                root = needs[root].after[0]
            values.setdefault(triples[root][0].head, {})[group[0].relation] = need.values
    found: Sequence[Mapping[str, Sequence[str]]] = list(values.values())
    return compared(question.text, list(values), found)
