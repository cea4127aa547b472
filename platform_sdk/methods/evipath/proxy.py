"""Proxy environment: a question's supporting facts with distractors, in place of live retrieval."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from platform_sdk.agents.planner_messages import Medium, piece
from platform_sdk.data.dataset import read_corpus, read_triples
from platform_sdk.data.sentences import sentences
from platform_sdk.errors import UserError
from platform_sdk.methods.evipath.settings import NO_SENTENCES, SynthesisSpec
from platform_sdk.records import Evidence, Passage, Question, Triple, given_evidence


@dataclass(frozen=True)
class Facts:
    """Supporting facts F of a question, and the indices of the gold evidence among them."""

    pool: tuple[Evidence, ...]
    gold: tuple[int, ...]
    medium: Medium

    def gold_texts(self) -> tuple[str, ...]:
        """Return the texts of the gold evidence as shown to an executor."""
        return tuple(piece(self.pool[place], self.medium) for place in self.gold)

    def shown(self, selected: Sequence[int], head: str, maximum: int | None, rng: random.Random) -> tuple[int, ...]:
        """Draw the evidence shown to an executor, in the pool's order: the selected pieces among others.

        Args:
            selected: indices in the pool.
            head: the entity whose triples come first, since a search from it returns them.
            maximum: most pieces; None for the whole pool.
        """
        if maximum is None:
            return tuple(range(len(self.pool)))
        others = [place for place in range(len(self.pool)) if place not in selected]
        rng.shuffle(others)
        others.sort(key=lambda place: self.pool[place].entities[:1] != (head,))
        return tuple(sorted([*selected, *others[: max(0, maximum - len(selected))]]))


@dataclass(frozen=True)
class Proxy:
    """Source of questions' facts. ``distractors`` passages are drawn for a question without passages."""

    medium: Medium
    by_head: Mapping[str, Sequence[Triple]]
    passages: Sequence[Passage]
    distractors: int
    seed: int
    unit: Literal["passage", "sentence"] = "passage"

    @cached_property
    def by_title(self) -> Mapping[str, Sequence[Passage]]:
        """The corpus's passages by their titles."""
        found: defaultdict[str, list[Passage]] = defaultdict(list)
        for passage in self.passages:
            found[passage.title].append(passage)
        return dict(found)

    def facts(self, question: Question) -> Facts:
        """Return a question's facts; without gold evidence if the dataset gives none."""
        rng = random.Random(f"facts {self.seed} {question.id}")
        if self.medium == "kg":
            heads = dict.fromkeys(triple.head for triple in question.gold_triples)
            around = (triple for head in heads for triple in self.by_head.get(head, ()))
            triples = list(dict.fromkeys([*question.gold_triples, *around]))
            rng.shuffle(triples)
            gold = tuple(triples.index(triple) for triple in dict.fromkeys(question.gold_triples))
            return Facts(tuple(map(triple_evidence, triples)), gold, self.medium)
        if self.unit == "sentence":
            return Facts(*sentences(question), self.medium)
        if question.context:
            return Facts(given_evidence(question.context), question.gold_positions, self.medium)
        wanted = dict.fromkeys(question.gold_passages)
        named = [passage for title in wanted for passage in self.by_title.get(title, ())]
        others = rng.sample(self.passages, min(len(self.passages), self.distractors))
        chosen = list(dict.fromkeys([*named, *others]))
        rng.shuffle(chosen)
        gold = tuple(place for place, passage in enumerate(chosen) if passage.title in wanted)
        return Facts(given_evidence(chosen), gold, self.medium)


def check_unit(unit: str, medium: Medium, questions: Iterable[Question]) -> None:
    """Raise a UserError if sentences are the unit of evidence and a question has no annotated ones."""
    if unit == "passage":
        return
    if medium == "kg":
        raise UserError(f"synthesis.unit sentence: {NO_SENTENCES}")
    for question in questions:
        if not question.context_sentences or not question.supporting_facts:
            raise UserError(
                f"synthesis.unit sentence: question {question.id} of {question.dataset} has no annotated sentences; "
                "use passage"
            )


def triple_evidence(triple: Triple) -> Evidence:
    """Return a triple as evidence of a graph search."""
    entities = (triple.head, triple.tail)
    return Evidence(
        kind="triple", id=triple.text, title=triple.tail, text=triple.text, score=0.0, entities=entities
    )  # fmt: skip


def open_proxy(run_dir: Path, medium: Medium, spec: SynthesisSpec, seed: int) -> Proxy:
    """Return the proxy environment over a run's corpus."""
    by_head = grouped(read_triples(run_dir).triples) if medium == "kg" else {}
    passages = read_corpus(run_dir).passages if medium == "text" else ()
    return Proxy(medium, by_head, passages, spec.distractors, seed, spec.unit)


def grouped(triples: Iterable[Triple]) -> dict[str, list[Triple]]:
    """Return triples by their head."""
    found: defaultdict[str, list[Triple]] = defaultdict(list)
    for triple in triples:
        found[triple.head].append(triple)
    return dict(found)
