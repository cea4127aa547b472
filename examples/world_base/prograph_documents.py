"""The documents that make the base model one for ProGraph-R1: questions answered by queries, turn by turn.

An unending stream from a seed, of dialogues between copying and reading. First by an agent that makes no mistake, which
teaches to look facts up one after the other; then by one that breaks the grammar, queries without a name, asks for the
wrong relation, stops early or goes on too far at the rates of ``Mistakes``, so that a group of attempts holds good and
bad ones and training has something to tell apart. What a query finds is drawn here, not searched: sentences that name
its subject, the needed one mostly among them, at times with others.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from examples.world_base.documents import Document
from examples.world_base.practice import copying, reading
from platform_sdk.agents.planner_worker import Malformed
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.language import RELATION, RELATIONS_OF
from platform_sdk.data.world import World, generate
from platform_sdk.methods.mygo.prompts import Message
from platform_sdk.methods.prograph.grammar import parse
from platform_sdk.methods.prograph.prompts import error, instruction, knowledge, opening
from platform_sdk.records import Evidence, Question

QUESTIONS = 16  # of each world
MAX_TURNS = 10


@dataclass(frozen=True)
class Mistakes:
    """Error rates of the simulated agent; each decision is drawn by itself."""

    form: float = 0.0  # per turn: a tag is missing or one too many
    vague: float = 0.0  # per query: it does not name its subject, so that nothing useful is found
    relation: float = 0.0  # per fact: another relation of the right entity is asked for
    read: float = 0.0  # per fact: another name of the knowledge is taken for it
    direct: float = 0.0  # before the first query: an answer without any
    early: float = 0.0  # between two hops: the first one's object is taken for the answer
    more: float = 0.0  # behind the last hop: one further fact is looked up and taken for the answer
    answer: float = 0.0  # some other name of the dialogue, or no instead of yes


FAULTLESS = Mistakes()
ERRS = Mistakes(form=0.14, vague=0.12, relation=0.10, read=0.06, direct=0.08, early=0.30, more=0.10, answer=0.06)


class PrographDocuments:
    """An endless iterator of documents, equal for equal seeds.

    Args:
        mistakes: how often the agent errs.
    """

    def __init__(self, seed: int, mistakes: Mistakes) -> None:
        self._rng = random.Random(f"prograph documents {seed}")
        self._mistakes = mistakes

    def __iter__(self) -> Iterator[Document]:
        while True:
            world = prograph_world(self._rng.randrange(2**60))
            sentences = _sentences(world)
            for question in world.train:
                draw = self._rng.random()
                if draw < 0.05:
                    yield copying(self._rng)
                elif draw < 0.12:
                    yield reading(world, self._rng)
                else:
                    yield _Dialogue(world, sentences, question, self._mistakes, self._rng).played()


class _Sentence(NamedTuple):
    """A sentence of a passage as a graph made by rules shows it, and the entities that it or its title names."""

    evidence: Evidence
    names: tuple[str, ...]


class _Dialogue:
    """One attempt of the simulated agent at a question."""

    def __init__(
        self, world: World, sentences: Sequence[_Sentence], question: Question, mistakes: Mistakes, rng: random.Random
    ) -> None:
        self._world, self._sentences, self._question = world, sentences, question
        self._mistakes, self._rng = mistakes, rng
        self._messages: list[Message] = [
            {"role": "system", "content": instruction("compact", MAX_TURNS)},
            {"role": "user", "content": opening(question.text)},
        ]
        self._seen = list(question.topic_entities)

    def played(self) -> list[Message]:
        rng, mistakes = self._rng, self._mistakes
        if self._errs(mistakes.direct):
            self._answer("", rng.choice(self._seen))
            return self._messages
        wanted = [(triple.head, triple.relation) for triple in self._question.gold_triples]
        chain = self._question.type == "chain"
        claim, found = "", list[str]()
        for hop, (head, noun) in enumerate(wanted):
            if hop and chain and self._errs(mistakes.early):
                break
            subject = found[-1] if hop and chain else head
            if (subject, noun) not in self._world.facts:
                break  # a mistake led to a thing of another kind
            claim, value = self._looked_up(claim, subject, noun)
            found.append(value)
        if not chain:
            answer = "yes" if len(found) == 2 and found[0] == found[1] else "no"
            if self._errs(mistakes.answer):
                answer = "no" if answer == "yes" else "yes"
        else:
            if self._errs(mistakes.more) and found[-1] in self._world.types:
                claim, value = self._looked_up(claim, found[-1], self._relation_of(found[-1]))
                found.append(value)
            answer = rng.choice(self._seen) if self._errs(mistakes.answer) else found[-1]
        self._answer(claim, answer)
        return self._messages

    def _looked_up(self, claim: str, subject: str, noun: str) -> tuple[str, str]:
        """Query for a fact until it is found, at most twice; return what the agent then claims, and the object."""
        rng = self._rng
        if self._errs(self._mistakes.relation):
            noun = self._relation_of(subject)
        value = self._world.facts[subject, noun]
        for _ in range(2):
            vague = self._errs(self._mistakes.vague)
            asked = rng.choice(RELATION[noun].questions).format(x="it" if vague else subject)
            need = f"{'Next ' if claim else ''}I need the {noun} of {subject} ."
            self._say(f"{claim} {need}".strip(), "query", asked)
            shown = self._found(subject, value, vague=vague)
            self._messages.append({"role": "user", "content": knowledge([sentence.evidence for sentence in shown])})
            names = [name for sentence in shown for name in sentence.names]
            self._seen += names
            if any(subject in sentence.names and value in sentence.names for sentence in shown):
                break
            claim = f"The {noun} of {subject} is not here ."
        else:
            value = rng.choice(names)
        if self._errs(self._mistakes.read):
            value = rng.choice(names)
        return RELATION[noun].statement(subject, value), value

    def _found(self, subject: str, value: str, *, vague: bool) -> list[_Sentence]:
        """Return what a retriever would show: sentences that name the subject, seldom without the needed one."""
        rng, everything = self._rng, self._sentences
        count = rng.randint(5, 10)
        if vague:
            return rng.sample(everything, count)
        own = [sentence for sentence in everything if subject in sentence.names]
        neighbours = {name for sentence in own for name in sentence.names} - {subject}
        near = [each for each in everything if subject not in each.names and not neighbours.isdisjoint(each.names)]
        needed = [each for each in own if each.evidence.title == subject and value in each.names]
        beside = [each for each in own if each not in needed]
        shown = needed if rng.random() < 0.95 else []
        shown = [*shown, *rng.sample(beside, min(len(beside), rng.randint(2, 8)))]
        shown = [*shown, *rng.sample(near, min(len(near), 6)), *rng.sample(everything, 4)]
        shown = list({each.evidence.id: each for each in shown}.values())[:count]
        rng.shuffle(shown)
        return shown

    def _relation_of(self, subject: str) -> str:
        return self._rng.choice(RELATIONS_OF[self._world.types[subject]]).noun

    def _answer(self, claim: str, answer: str) -> None:
        self._say(f"{claim} I know enough .".strip(), "answer", answer)

    def _say(self, thought: str, tag: str, content: str) -> None:
        """Say a turn; before it, at times, one that breaks the grammar, and why it was refused."""
        action = f"<{tag}>{content}</{tag}>"
        while self._errs(self._mistakes.form):
            broken = self._rng.choice(
                (
                    action,
                    f"<think>{thought}{action}",
                    f"<think>{thought}</think>{content}",
                    f"<think>{thought}</think><{tag}>{content}",
                    f"<think>{thought}</think>{action}{action}",
                )
            )
            refused = parse(broken)
            assert isinstance(refused, Malformed)
            self._messages += [
                {"role": "assistant", "content": broken},
                {"role": "user", "content": error(refused.reason)},
            ]
        self._messages.append({"role": "assistant", "content": f"<think>{thought}</think>{action}"})

    def _errs(self, rate: float) -> bool:
        return self._rng.random() < rate


def _sentences(world: World) -> list[_Sentence]:
    return [
        _Sentence(
            Evidence(kind="hyperedge", id=f"{passage.title} {place}", title=passage.title, text=text, score=0.0),
            tuple(word for word in dict.fromkeys((passage.title, *text.split())) if word in world.types),
        )
        for passage in world.passages
        for place, text in enumerate(re.findall(r"[^. ][^.]*\.", passage.text))
    ]


def prograph_world(seed: int) -> World:
    """One of the small worlds that these documents ask about: questions of one or two hops."""
    return generate(
        WorldSpec(
            seed=seed, entities=30, train_questions=QUESTIONS, eval_questions=0, hops=(1, 2), comparisons=0.1,
            split="base",
        )
    )  # fmt: skip
