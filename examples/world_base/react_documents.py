"""The documents that make the base model one for ReAct with tools: questions answered by search and calculator.

An unending stream from a seed, of dialogues between copying and reading. First by a faultless agent; then by one that
errs at the rates of ``Mistakes`` and answers most questions about years without the calculator, so that training has
the use of the second tool to learn. Search results are drawn here, not searched: passages, the needed one mostly among
them.

In the style ``search_r1`` the dialogues have Search-R1's format: search alone, and no questions about years.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from examples.world_base.documents import Document
from examples.world_base.practice import copying, reading
from platform_sdk.agents.planner_worker import Malformed
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.language import EVENTS, RELATION, RELATIONS_OF, YEARS, Event, Relation
from platform_sdk.data.world import World, generate
from platform_sdk.methods.mygo.prompts import Message
from platform_sdk.methods.react.grammar import parse, parse_search_r1
from platform_sdk.methods.react.prompts import Style, error, instruction, opening, result
from platform_sdk.records import Evidence, Question, ToolResult
from platform_sdk.tools.calculator import Calculator, evaluate
from platform_sdk.tools.search import SearchTool

QUESTIONS = 16  # of each world
TURNS = 10
YEAR_WORDS = frozenset(map(str, YEARS))
TOOLS = {tool.name: tool for tool in (SearchTool(), Calculator())}


@dataclass(frozen=True)
class Mistakes:
    """Error rates of the simulated agent; the decisions are independent."""

    form: float = 0.0  # per turn: a tag is missing or one too many
    relation: float = 0.0  # per fact: a question for another relation of the right entity
    read: float = 0.0  # per fact: another name or year of the result is taken for it
    direct: float = 0.0  # before the first search: an answer without any
    early: float = 0.0  # between two hops: the first object is taken for the answer
    guess: float = 0.0  # years: a number is guessed instead of computed
    order: float = 0.0  # years: subtracted the wrong way round
    answer: float = 0.0  # some other name of the dialogue, or no instead of yes


FAULTLESS = Mistakes()
ERRS = Mistakes(form=0.05, relation=0.05, read=0.03, direct=0.02, early=0.12, guess=0.75, order=0.10, answer=0.03)


class ReactDocuments:
    """An endless iterator of documents, equal for equal seeds."""

    def __init__(self, seed: int, mistakes: Mistakes, style: Style = "compact") -> None:
        self._rng = random.Random(f"react documents {seed}")
        self._mistakes = mistakes
        self._style: Style = style

    def __iter__(self) -> Iterator[Document]:
        while True:
            world = react_world(self._rng.randrange(2**60), years=0.0 if self._style == "search_r1" else 0.45)
            for question in world.train:
                draw = self._rng.random()
                if draw < 0.04:
                    yield copying(self._rng)
                elif draw < 0.10:
                    yield reading(world, self._rng)
                else:
                    yield _Dialogue(world, question, self._mistakes, self._style, self._rng).played()


class _Dialogue:
    """One attempt of the simulated agent at a question."""

    def __init__(self, world: World, question: Question, mistakes: Mistakes, style: Style, rng: random.Random) -> None:
        self._world, self._question, self._mistakes, self._rng = world, question, mistakes, rng
        self._style: Style = style
        # Search-R1's instruction states the limit, so dialogues differ in it.
        turns = rng.randint(4, TURNS) if style == "search_r1" else TURNS
        self._messages: list[Message] = [
            {"role": "system", "content": instruction(style, turns, TOOLS.values())},
            {"role": "user", "content": opening(question.text)},
        ]
        self._seen = list(question.topic_entities)

    def played(self) -> list[Message]:
        rng, mistakes, kind = self._rng, self._mistakes, self._question.type
        if self._errs(mistakes.direct):
            self._answer("", rng.choice(self._seen))
            return self._messages
        claim, found = "", list[str]()
        for hop, triple in enumerate(self._question.gold_triples):
            if hop and kind == "chain" and self._errs(mistakes.early):
                break
            subject = found[-1] if hop and kind == "chain" else triple.head
            if (subject, triple.relation) not in self._world.facts:
                break  # a mistake led to an entity of another type
            claim, value = self._look_up(claim, subject, triple.relation)
            found.append(value)
        if kind == "years":
            self._end_years(claim, found)
        elif kind == "comparison":
            answer = "yes" if len(found) == 2 and found[0] == found[1] else "no"
            if self._errs(mistakes.answer):
                answer = "no" if answer == "yes" else "yes"
            self._answer(claim, answer)
        else:
            self._answer(claim, rng.choice(self._seen) if self._errs(mistakes.answer) else found[-1])
        return self._messages

    def _end_years(self, claim: str, found: list[str]) -> None:
        """Compute the years between the two events, or guess them."""
        if self._errs(self._mistakes.guess):
            self._answer(claim, str(self._rng.randint(1, 99)))
            return
        later, earlier = found if not self._errs(self._mistakes.order) else reversed(found)
        expression = f"{later} - {earlier}"
        try:
            value = str(evaluate(expression))
        except ArithmeticError:  # a mistake took a name for a year
            value = "Error : not an arithmetic expression"
        self._say(f"{claim} I need the difference .", "calculator", expression)
        self._append_user(result(self._style, ToolResult(text=value)))
        self._answer(f"The difference is {value} .", value)

    def _look_up(self, claim: str, subject: str, noun: str) -> tuple[str, str]:
        """Search for a fact until the result holds it, at most twice; return the agent's claim, and the object."""
        rng = self._rng
        relation = self._relation(noun, subject)
        value = self._world.facts[subject, relation.noun]
        questions = relation.questions if isinstance(relation, Relation) else (relation.question,)
        names: list[str] = []
        for _ in range(2):
            need = f"{'Next ' if claim else ''}I need the {relation.noun} of {subject} ."
            self._say(f"{claim} {need}".strip(), "search", rng.choice(questions).format(x=subject))
            shown = self._results(subject)
            self._append_user(result(self._style, ToolResult(evidence=tuple(shown))))
            names = [name for item in shown for name in self._names(item)]
            self._seen += [name for name in names if name in self._world.types]
            if any(item.title == subject for item in shown):
                break
            claim = f"The {relation.noun} of {subject} is not here ."
        else:
            value = rng.choice(names)
        if self._errs(self._mistakes.read):
            value = rng.choice(names)
        return relation.statement(subject, value), value

    def _relation(self, noun: str, subject: str) -> Relation | Event:
        kind = self._world.types[subject]
        if self._errs(self._mistakes.relation):
            relations: list[Relation | Event] = [*RELATIONS_OF[kind], *(EVENTS[k] for k in (kind,) if k in EVENTS)]
            # A world without questions about years has no events.
            return self._rng.choice([each for each in relations if (subject, each.noun) in self._world.facts])
        return RELATION[noun] if noun in RELATION else EVENTS[kind]

    def _results(self, subject: str) -> list[Evidence]:
        """Return what a retriever would find: the subject's passage, seldom without it, and one or two others."""
        rng, passages = self._rng, self._world.passages
        own = [p for p in passages if p.title == subject]
        mentioning = [p for p in passages if p.title != subject and subject in p.text.split()]
        others = rng.sample(mentioning, min(len(mentioning), 2)) + rng.sample(passages, 2)
        chosen = {p.id: p for p in [*(own if rng.random() < 0.95 else []), *others]}
        shown = list(chosen.values())[: rng.randint(2, 3)]
        rng.shuffle(shown)
        return [Evidence(kind="passage", id=p.id, title=p.title, text=p.text, score=0.0) for p in shown]

    def _names(self, item: Evidence) -> list[str]:
        words = dict.fromkeys((item.title, *item.text.split()))
        return [word for word in words if word in self._world.types or word in YEAR_WORDS]

    def _answer(self, claim: str, answer: str) -> None:
        self._say(f"{claim} I know enough .".strip(), "answer", answer)

    def _say(self, thought: str, tag: str, content: str) -> None:
        """Append a turn; before it, at times, one that breaks the grammar, and the reason of its refusal."""
        action = f"<{tag}>{content}</{tag}>"
        while self._errs(self._mistakes.form):
            broken = self._rng.choice(self._broken(thought, tag, content))
            refused = (parse_search_r1 if self._style == "search_r1" else parse)(broken, TOOLS)
            assert isinstance(refused, Malformed)
            self._messages.append({"role": "assistant", "content": broken})
            self._append_user(error(self._style, refused.reason))
        self._messages.append({"role": "assistant", "content": f"<think>{thought}</think>{action}"})

    def _broken(self, thought: str, tag: str, content: str) -> tuple[str, ...]:
        """Return forms of a turn that the grammar of the style refuses."""
        untagged, unclosed = f"<think>{thought}</think>{content}", f"<think>{thought}</think><{tag}>{content}"
        if self._style == "search_r1":
            return untagged, unclosed
        action = f"<{tag}>{content}</{tag}>"
        return action, f"<think>{thought}{action}", untagged, unclosed, f"<think>{thought}</think>{action}{action}"

    def _append_user(self, content: str) -> None:
        self._messages.append({"role": "user", "content": content})

    def _errs(self, rate: float) -> bool:
        return self._rng.random() < rate


def react_world(seed: int, years: float) -> World:
    """Return one of the small worlds that these documents are about: one or two hops, and a share of years."""
    return generate(
        WorldSpec(
            seed=seed, entities=30, train_questions=QUESTIONS, eval_questions=0, hops=(1, 2), comparisons=0.1,
            years=years, split="base",
        )
    )  # fmt: skip
