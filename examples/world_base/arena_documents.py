"""The documents that make the base model one for ARENA: questions with passages, answered in three sections
(and, at times, in the forms of ARENA's baselines).

An unending stream from a seed, of dialogues between copying and reading. First by an agent that makes no mistake,
which teaches to read; then by one that chooses the wrong passages, follows the wrong relation, stops early or leaves
a section out at the rates of ``Mistakes``, so that a group of attempts holds good and bad ones and training has
something to tell apart.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from examples.world_base.documents import Document
from examples.world_base.practice import copying, reading
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.language import RELATIONS_OF
from platform_sdk.data.world import World, generate, phrase_chain, random_chain
from platform_sdk.methods.arena.grammar import Form, write
from platform_sdk.methods.arena.prompts import instruction, opening
from platform_sdk.methods.mygo.prompts import Message
from platform_sdk.records import Passage, Question

QUESTIONS = 16  # of each world
FORMS: dict[Form, float] = {"three_part": 0.82, "think": 0.10, "direct": 0.08}  # shares of the dialogues


@dataclass(frozen=True)
class Mistakes:
    """Error rates of the simulated agent; each decision is drawn by itself."""

    choice: float = 0.0  # a gold passage is left out or replaced, or another one added
    relation: float = 0.0  # per claim: another relation of the right entity
    passage: float = 0.0  # per claim: a fact of some other passage
    early: float = 0.0  # between two hops: the first one's object is taken for the answer
    answer: float = 0.0  # some other entity of the passages, or no instead of yes
    form: float = 0.0  # a section is missing, unclosed or out of its place


FAULTLESS = Mistakes()
ERRS = Mistakes(choice=0.45, relation=0.20, passage=0.08, early=0.50, answer=0.15, form=0.35)


class ArenaDocuments:
    """An endless iterator of documents, equal for equal seeds."""

    def __init__(self, seed: int, mistakes: Mistakes, brief: float = 0.0, pointing: float = 0.0) -> None:
        """Begin the stream of ``seed``.

        Args:
            mistakes: how often the agent errs.
            brief: share of the questions whose passages say little beside what is asked; quick to learn from.
            pointing: share of the other questions of which only the relevant passages are asked, with some more
                questions on the same passages; each reply is a lesson in finding a passage by what it is about.
        """
        self._rng = random.Random(f"arena documents {seed}")
        self._mistakes = mistakes
        self._brief = brief
        self._pointing_share = pointing

    def __iter__(self) -> Iterator[Document]:
        while True:
            world = arena_world(self._rng.randrange(2**60))
            for question in world.train:
                draw = self._rng.random()
                if draw < 0.05:
                    yield copying(self._rng)
                elif draw < 0.15:
                    yield reading(world, self._rng)
                else:
                    yield self._dialogue(world, question)

    def _dialogue(self, world: World, question: Question) -> Document:
        if self._rng.random() < self._brief:
            question = question.model_copy(update={"context": tuple(self._cut(p, question) for p in question.context)})
        elif self._rng.random() < self._pointing_share:
            return self._pointing(world, question)
        form = self._rng.choices(list(FORMS), list(FORMS.values()))[0]
        return [
            {"role": "system", "content": instruction("compact", form)},
            {"role": "user", "content": opening(question.text, question.context, "compact")},
            {"role": "assistant", "content": self._response(world, question, form)},
        ]

    def _pointing(self, world: World, question: Question) -> Document:
        """Several questions on the same passages, of which nothing is asked but where their answers stand."""
        rng = self._rng
        number = {passage.id: i for i, passage in enumerate(question.context, start=1)}
        system = {"role": "system", "content": "Answer from the passages : relevance ."}
        messages = [
            system,
            *self._pointed(opening(question.text, question.context, "compact"), question.gold_passages, number),
        ]
        for start in rng.choices(list(number), k=8):
            chain = random_chain(start, rng.choice((1, 2)), world.types, world.facts, rng)
            if chain is not None and all(entity in number for entity in chain.entities[:-1]):
                messages += self._pointed(opening(phrase_chain(chain, rng), ()), chain.entities[:-1], number)
        return messages

    def _pointed(self, asked: str, gold: Sequence[str], number: Mapping[str, int]) -> list[Message]:
        listed = ",".join(str(number[id_]) for id_ in gold)
        return [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": f"<relevance>[{listed}]</relevance>"},
        ]

    def _cut(self, passage: Passage, question: Question) -> Passage:
        """Return the passage with its first sentence and one more: the sentence that the question needs, or any."""
        first, *facts = re.findall(r"[^.]+\.", passage.text)
        needed = {triple.tail for triple in question.gold_triples if triple.head == passage.id}
        telling = [fact for fact in facts if needed & set(fact.split())]
        return passage.model_copy(update={"text": first + self._rng.choice(telling or facts)})

    def _response(self, world: World, question: Question, form: Form) -> str:
        rng = self._rng
        claims, answer = self._claims(world, question)
        answered = f"<answer>{answer}</answer>"
        if form == "direct":
            return answer
        if form == "think":
            thought = " ".join(claims)
            broken = rng.choice((answered, f"<think>{thought}{answered}", f"<think>{thought}</think>{answer}"))
            return broken if self._errs(self._mistakes.form) else f"<think>{thought}</think>{answered}"
        choice, thought = self._choice(question), " ".join(claims)
        if not self._errs(self._mistakes.form):
            return write(choice, thought, answer)
        relevance = f"<relevance>[{','.join(map(str, choice))}]</relevance>"
        analysis = f"<analysis>{thought}</analysis>"
        return rng.choice(
            (
                f"{relevance}{answered}",
                f"{analysis}{answered}",
                f"{analysis}{relevance}{answered}",
                f"{relevance}{analysis}{answer}",
                f"{relevance}{analysis}<answer>{answer}",
                f"{relevance}{analysis}{answered}{answered}",
            )
        )

    def _choice(self, question: Question) -> list[int]:
        """The numbers of the passages that the agent calls relevant, in the order of the reasoning."""
        rng = self._rng
        number = {passage.id: i for i, passage in enumerate(question.context, start=1)}
        gold = [number[id_] for id_ in question.gold_passages]
        others = [i for i in number.values() if i not in gold]
        if not self._errs(self._mistakes.choice):
            return gold
        draw = rng.random()
        if draw < 0.4 and len(gold) > 1:
            return gold[:1]
        if draw < 0.7:
            return [*gold, rng.choice(others)]
        place = rng.randrange(len(gold))
        return [*gold[:place], rng.choice(others), *gold[place + 1 :]]

    def _claims(self, world: World, question: Question) -> tuple[list[str], str]:
        """Return the agent's claims, each with its reference, and its answer."""
        rng, mistakes = self._rng, self._mistakes
        number = {passage.id: i for i, passage in enumerate(question.context, start=1)}
        claims, objects = [], []
        for hop, triple in enumerate(question.gold_triples):
            if hop and question.type == "chain" and self._errs(mistakes.early):
                break
            subject, noun = triple.head, triple.relation
            if self._errs(mistakes.passage):
                subject = rng.choice(question.context).id
                noun = rng.choice(RELATIONS_OF[world.types[subject]]).noun
            elif self._errs(mistakes.relation):
                noun = rng.choice(RELATIONS_OF[world.types[subject]]).noun
            found = world.facts[subject, noun]
            claims.append(f"The {noun} of {subject} is {found} [{number[subject]}] .")
            objects.append(found)
            if question.type == "chain" and found != triple.tail:
                break
        if question.type == "chain":
            answer = objects[-1]
            wrong = [x for p in question.context for x in (p.id, *world_objects(world, p.id)) if x != answer]
        else:
            answer = "yes" if objects[0] == objects[1] else "no"
            wrong = ["no" if answer == "yes" else "yes"]
        return claims, rng.choice(wrong) if self._errs(mistakes.answer) else answer

    def _errs(self, rate: float) -> bool:
        return self._rng.random() < rate


def arena_world(seed: int) -> World:
    """One of the small worlds that these documents ask about: questions of one or two hops, with 3 to 5 passages."""
    size = random.Random(f"context {seed}").randint(3, 5)
    return generate(
        WorldSpec(
            seed=seed, entities=30, train_questions=QUESTIONS, eval_questions=0, hops=(1, 2), comparisons=0.25,
            context=size, split="base",
        )
    )  # fmt: skip


def world_objects(world: World, subject: str) -> list[str]:
    """The objects of all facts about ``subject``."""
    return [world.facts[subject, relation.noun] for relation in RELATIONS_OF[world.types[subject]]]
