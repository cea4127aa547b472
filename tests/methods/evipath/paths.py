"""A correct reasoning path by hand, to be changed in one place, and what writes paths without an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from platform_sdk.methods.evipath.checks import Limits
from platform_sdk.methods.evipath.records import Example, Step, SubQuestion
from platform_sdk.records import Evidence, Question
from platform_sdk.sampling.rollout import Agent

LIMITS = Limits("standard", max_questions=2, iterations=4)


def passage(title: str, text: str) -> Evidence:
    return Evidence(kind="passage", id=title, title=title, text=text, score=0.0)


POOL = (
    passage("Velm", "Velm is a town."),
    passage("Amberfall", "Amberfall is a film by Ida Roth."),
    passage("Ida Roth", "Ida Roth is a daughter of Lena Roth."),
)
FIRST = SubQuestion(
    question="Who directed Amberfall?", answer="Amberfall was directed by Ida Roth.", shown=(0, 1), selected=(1,),
    similarities=(0.8, 0.3), thoughts="[1] says it.",
)  # fmt: skip
SECOND = SubQuestion(
    question="Who is the mother of Ida Roth?", answer="The mother of Ida Roth is Lena Roth.", shown=(2, 0),
    selected=(0,), similarities=(0.4, 0.9), thoughts="[0] says it.",
)  # fmt: skip
PATH = Example(
    id="q", dataset="hotpotqa", question="Who is the mother of the director of Amberfall?", medium="text",
    answers=("Lena Roth", "Magdalena Roth"), secrets=("Ida Roth", "Lena Roth"), pool=POOL, gold=(1, 2),
    plan=("the director of Amberfall", "the mother of that director"),
    steps=(
        Step(thoughts="First the director.", asked=(FIRST,)),
        Step(thoughts="It is Ida Roth. Now her mother.", asked=(SECOND,)),
    ),
    thoughts="Her mother is Lena Roth.", answer="Lena Roth",
)  # fmt: skip


def with_sub_question(example: Example, place: int, **changes: Any) -> Example:
    """Return the path with one sub-question changed."""
    steps = list(example.steps)
    asked = steps[place].asked[0].model_copy(update=changes)
    steps[place] = steps[place].model_copy(update={"asked": (asked,)})
    return example.model_copy(update={"steps": tuple(steps)})


def with_step(example: Example, place: int, **changes: Any) -> Example:
    """Return the path with one step changed."""
    steps = list(example.steps)
    steps[place] = steps[place].model_copy(update=changes)
    return example.model_copy(update={"steps": tuple(steps)})


class LetterEncoder:
    """Vectors that a reader can compute: how often a, b and c stand in a text."""

    digest = "letters"

    def encode(self, texts: Sequence[str], *, kind: str) -> np.ndarray:
        assert kind == "passage"
        counts = np.array([[text.count(letter) for letter in "abc"] for text in texts], dtype=float)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


def played(agent: Agent[Example]) -> Example:
    """Run a teacher that asks for similarities alone."""
    try:
        need: Any = next(agent)
        while True:
            need = agent.send(need.function(list(need.items)))
    except StopIteration as stop:
        return stop.value


def question(**fields: Any) -> Question:
    return Question(**{"id": "q", "text": "?", "answers": ("x",), "dataset": "world"} | fields)
