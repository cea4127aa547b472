"""Phrasings of relations and thoughts, several of each, drawn by a seed.

``{x}`` stands for the subject, ``{y}`` for the object. Phrasings for the generated world use its language, in the
vocabulary of the shipped base models.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from platform_sdk.data.language import RELATIONS

VERSION = 2
Tongue = Literal["world", "english"]


@dataclass(frozen=True)
class Phrasing:
    """A relation in words: ``need`` names its object, ``questions`` ask for it, ``sentences`` state it."""

    need: str
    questions: tuple[str, ...]
    sentences: tuple[str, ...]


def _english(need: str, *rest: str) -> Phrasing:
    """Add the questions and sentences common to all relations to a relation's own."""
    asks = tuple(text for text in rest if text.endswith("?"))
    states = tuple(text for text in rest if text.endswith("."))
    return Phrasing(need, (f"What is {need}?", *asks), (f"{need[0].upper()}{need[1:]} is {{y}}.", *states))


_ENGLISH: dict[str, Phrasing] = {
    noun: _english(f"the {noun} of {{x}}", *rest)
    for noun, *rest in (
        ("director", "Who directed {x}?", "{x} was directed by {y}."),
        ("date of birth", "When was {x} born?", "{x} was born on {y}."),
        ("date of death", "When did {x} die?", "{x} died on {y}."),
        ("place of birth", "Where was {x} born?", "{x} was born in {y}."),
        ("place of death", "Where did {x} die?", "{x} died in {y}."),
        ("place of burial", "Where is {x} buried?", "{x} is buried in {y}."),
        ("publication date", "When was {x} released?", "{x} was released in {y}."),
        ("father", "Who is the father of {x}?", "{y} is the father of {x}."),
        ("mother", "Who is the mother of {x}?", "{y} is the mother of {x}."),
        ("spouse", "Who is {x} married to?", "{x} is married to {y}."),
        ("sibling", "Who is a sibling of {x}?", "{y} is a sibling of {x}."),
        ("child", "Who is a child of {x}?", "{y} is a child of {x}."),
        ("country of citizenship", "What nationality does {x} have?", "{x} has the nationality {y}."),
        ("country", "In which country is {x} located?", "{x} is located in {y}."),
        ("country of origin", "Which country does {x} come from?", "{x} comes from {y}."),
        ("performer", "Who performed {x}?", "{x} was performed by {y}."),
        ("composer", "Who composed the music of {x}?", "The music of {x} was composed by {y}."),
        ("publisher", "Who published {x}?", "{x} was published by {y}."),
        ("producer", "Who produced {x}?", "{x} was produced by {y}."),
        ("creator", "Who created {x}?", "{x} was created by {y}."),
        ("editor", "Who edited {x}?", "{x} was edited by {y}."),
        ("author", "Who wrote {x}?", "{x} was written by {y}."),
        ("inception", "When was {x} founded?", "{x} was founded in {y}."),
        ("employer", "Who employed {x}?", "{x} was employed by {y}."),
        ("occupation", "What is {x} by profession?", "{x} works as {y}."),
        ("cause of death", "What did {x} die of?", "{x} died of {y}."),
        ("headquarters location", "Where are the headquarters of {x}?", "{x} has its headquarters in {y}."),
        ("record label", "Which record label published {x}?", "{x} was published by the record label {y}."),
    )
}
_ENGLISH |= {
    "educated at": Phrasing(
        "where {x} was educated",
        ("Where was {x} educated?", "Which school did {x} attend?"),
        ("{x} was educated at {y}.", "{x} studied at {y}."),
    ),
    "award received": Phrasing(
        "the award that {x} received",
        ("Which award did {x} receive?", "What award was given to {x}?"),
        ("{x} received {y}.", "The award that {x} received is {y}."),
    ),
    "founded by": Phrasing(
        "the founder of {x}",
        ("Who founded {x}?", "Who is the founder of {x}?"),
        ("{x} was founded by {y}.", "The founder of {x} is {y}."),
    ),
}
_WORLD: dict[str, Phrasing] = {
    relation.noun: Phrasing(
        f"the {relation.noun} of {{x}}",
        relation.questions,
        (f"The {relation.noun} of {{x}} is {{y}} .", *(s for s in relation.sentences if "{x}" in s)),
    )
    for relation in RELATIONS
}


def phrasing(relation: str, tongue: Tongue) -> Phrasing:
    """Return a relation's phrasings; for an unlisted relation they are made from its name."""
    known = _WORLD if tongue == "world" else _ENGLISH
    return known.get(relation) or _english(f"the {relation} of {{x}}")


@dataclass(frozen=True)
class Thoughts:
    """Sentences of thoughts; ``{needs}``, ``{known}``, ``{answer}``, ``{need}``, ``{index}`` and ``{sentence}``."""

    first: tuple[str, ...]
    next: tuple[str, ...]
    last: tuple[str, ...]
    executor: tuple[str, ...]
    compared: tuple[str, ...]


THOUGHTS: Mapping[Tongue, Thoughts] = {
    "world": Thoughts(
        first=("I do not know {needs} yet .", "I need {needs} ."),
        next=("Next I need {needs} .", "I do not know {needs} yet ."),
        last=("I know enough .",),
        executor=("{Need} stands in {index} .", "It stands in {index} ."),
        compared=("I know enough .",),
    ),
    "english": Thoughts(
        first=("First I look for {needs}.", "I begin with {needs}.", "What I need to know now is {needs}."),
        next=(
            "{known} Now I need {needs}.",
            "I have learned: {known} Next I look for {needs}.",
            "{known} The next thing to find out is {needs}.",
        ),
        last=(
            "{known} Now I have all that the question asks for.",
            "I have learned: {known} That answers the question.",
            "{known} This is enough to answer the question.",
        ),
        executor=(
            "The question asks for {need}. {index} says it: {sentence}",
            "I look for {need}. According to {index}: {sentence}",
            "What is asked is {need}. I find it in {index}. {sentence}",
        ),
        compared=(
            "{known} Comparing these, the answer is {answer}.",
            "I have learned: {known} So the answer is {answer}.",
        ),
    ),
}


def drawn(options: Sequence[str], rng: random.Random) -> str:
    """Draw one of several phrasings."""
    return options[rng.randrange(len(options))]


def joined(parts: Sequence[str], tongue: Tongue) -> str:
    """Join phrases with commas and a final *and*."""
    distinct = list(dict.fromkeys(parts))
    if tongue == "world" or len(distinct) == 1:
        return " and ".join(distinct)
    return f"{', '.join(distinct[:-1])} and {distinct[-1]}"


def question_of(text: str, tongue: Tongue = "english") -> str:
    """Return a question with a capital, one question mark, and no double quotation marks."""
    if tongue == "world":
        return text
    bare = re.sub(r"\s+", " ", text.replace('"', "'")).strip().rstrip("?. ")
    return f"{bare[:1].upper()}{bare[1:]}?"


_DECLARATIVE = (
    (re.compile(r"(?i)who (?:is|was|were|are) (.+)"), "{0} is {y}."),
    (
        re.compile(r"(?i)who (?!did |does |do |is |was |were |are |has |have |will |would |can )(\w+) (.+)"),
        "{y} {0} {1}.",
    ),
    (re.compile(r"(?i)what (is|was|are|were) the (.+)"), "The {1} {0} {y}."),
    (re.compile(r"(?i)where (?:is|was) (.+?) (located|born|held|buried|filmed|based)"), "{0} was {1} in {y}."),
)
_PLAIN = ('The answer to the question "{q}" is {y}.', 'Asked "{q}", the evidence says {y}.')


def declared(question: str, answer: str, rng: random.Random) -> str:
    """Return a declarative sentence that answers a question."""
    bare = question.rstrip("? ")
    for pattern, sentence in _DECLARATIVE:
        if (found := pattern.fullmatch(bare)) is not None:
            text = sentence.format(*found.groups(), y=answer)
            return f"{text[0].upper()}{text[1:]}"
    return drawn(_PLAIN, rng).format(q=question, y=answer)
