"""Worked paths in a teacher's prompt. People, films and places are invented, so no path reveals an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from platform_sdk.agents.planner_messages import Medium
from platform_sdk.methods.evipath.records import Example, Step, SubQuestion
from platform_sdk.records import Evidence

_TEXTS = (
    ("Velm", "Velm is a town in the north of Chile."),
    ("Amberfall", "Amberfall is a 1958 drama film directed by Ida Roth."),
    ("Ida Roth", "Ida Roth is a photographer and film director. She was born to Lena Roth in Velm."),
    ("Norvale", "Norvale is a port in the south of Chile."),
    ("Estermoor", "Estermoor is a village in Chile."),
)
_TRIPLES = (
    ("Amberfall", "production company", "Tall Tree"),
    ("Amberfall", "director", "Ida Roth"),
    ("Ida Roth", "mother", "Lena Roth"),
    ("Norvale", "country", "Chile"),
    ("Estermoor", "country", "Chile"),
)
_POOL: Mapping[Medium, tuple[Evidence, ...]] = {
    "text": tuple(Evidence(kind="passage", id=name, title=name, text=text, score=0.0) for name, text in _TEXTS),
    "kg": tuple(
        Evidence(kind="triple", id=", ".join(t), title=t[2], text=", ".join(t), score=0.0, entities=(t[0], t[2]))
        for t in _TRIPLES
    ),
}


def _asked(question: str, entity: str, answer: str, place: int, shown: Sequence[int], says: str) -> SubQuestion:
    index = list(shown).index(place)
    thoughts = f"The question asks for {says}. [{index}] says it."
    return SubQuestion(
        question=question, candidate=entity, answer=answer, shown=tuple(shown), selected=(index,), thoughts=thoughts
    )


def _bridge(medium: Medium) -> Example:
    return Example(
        id="bridge", dataset="hotpotqa", question="Who is the mother of the director of the film Amberfall?",
        medium=medium, answers=("Lena Roth",), candidates=("Amberfall",), pool=_POOL[medium], gold=(1, 2),
        plan=("Find the director of Amberfall.", "Find the mother of that director."),
        steps=(
            Step(
                thoughts="I begin with the director of Amberfall.",
                asked=(
                    _asked("Who directed Amberfall?", "Amberfall", "Amberfall was directed by Ida Roth.",
                           1, (0, 1, 3), "the director of Amberfall"),
                ),
            ),
            Step(
                thoughts="Ida Roth directed Amberfall. Next I need the mother of Ida Roth.",
                asked=(
                    _asked("Who is the mother of Ida Roth?", "Ida Roth", "The mother of Ida Roth is Lena Roth.",
                           2, (2, 0, 1), "the mother of Ida Roth"),
                ),
            ),
        ),
        thoughts="The mother of Ida Roth is Lena Roth. That answers the question.", answer="Lena Roth",
    )  # fmt: skip


def _comparison(medium: Medium) -> Example:
    asked = tuple(
        _asked(
            f"In which country is {town} located?",
            town,
            f"{town} is located in Chile.",
            place,
            shown,
            f"where {town} is",
        )
        for town, place, shown in (("Norvale", 3, (3, 4)), ("Estermoor", 4, (3, 4)))
    )
    return Example(
        id="comparison", dataset="hotpotqa", question="Are Norvale and Estermoor located in the same country?",
        medium=medium, answers=("yes",), candidates=("Norvale", "Estermoor"), pool=_POOL[medium], gold=(3, 4),
        plan=("Find the country of Norvale.", "Find the country of Estermoor."),
        steps=(Step(thoughts="Neither needs the other, so I ask for both.", asked=asked),),
        thoughts="Norvale and Estermoor are both in Chile, so they are in the same country.", answer="yes",
    )  # fmt: skip


def demonstrations(medium: Medium) -> tuple[Example, ...]:
    """Return the worked paths; models imitate the last one most."""
    return _comparison(medium), _bridge(medium)
