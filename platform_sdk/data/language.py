"""The language of generated worlds: names, typed relations and their phrasings.

Every relation is functional (one object per subject), so a chain of relations has one answer. Phrasings differ between
passages and questions, so that finding a fact requires reading instead of string matching.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import cache

TYPES = ("person", "film", "book", "company", "city", "country")

# Shares of the entity types in a world: most relations end in people.
TYPE_SHARES = {"person": 0.40, "film": 0.16, "book": 0.12, "company": 0.10, "city": 0.14, "country": 0.08}


@dataclass(frozen=True)
class Relation:
    """A typed relation. ``{x}`` stands for the subject, ``{y}`` for the object.

    ``noun`` is the relation's name in a knowledge graph; ``phrases`` are noun phrases for the object (they nest into
    chains); ``questions`` ask for it; ``sentences`` state it in passages.
    """

    noun: str
    subject: str
    object: str
    phrases: tuple[str, ...]
    questions: tuple[str, ...]
    sentences: tuple[str, ...]

    def statement(self, x: str, y: str) -> str:
        """Return the declarative form of a question about this relation."""
        return f"The {self.noun} of {x} is {y} ."


RELATIONS = (
    Relation("director", "film", "person",
             ("the director of {x}", "the one who directed {x}"),
             ("Who directed {x} ?", "Who is the director of {x} ?"),
             ("{x} was directed by {y} .", "The director of {x} is {y} .", "{y} directed {x} .")),
    Relation("composer", "film", "person",
             ("the composer of {x}", "the one who wrote the music of {x}"),
             ("Who wrote the music of {x} ?", "Who is the composer of {x} ?"),
             ("The music of {x} was written by {y} .", "Its composer is {y} .", "{y} wrote the music of {x} .")),
    Relation("studio", "film", "company",
             ("the studio of {x}", "the studio that made {x}"),
             ("Which studio made {x} ?", "What is the studio of {x} ?"),
             ("{x} was made by the studio {y} .", "Its studio is {y} .", "The studio {y} made {x} .")),
    Relation("author", "book", "person",
             ("the author of {x}", "the one who wrote {x}"),
             ("Who wrote {x} ?", "Who is the author of {x} ?"),
             ("{x} was written by {y} .", "The author of {x} is {y} .", "{y} wrote {x} .")),
    Relation("publisher", "book", "company",
             ("the publisher of {x}", "the company that published {x}"),
             ("Which company published {x} ?", "What is the publisher of {x} ?"),
             ("{x} was published by {y} .", "Its publisher is {y} .", "The company {y} published {x} .")),
    Relation("spouse", "person", "person",
             ("the spouse of {x}", "the one who married {x}"),
             ("Who married {x} ?", "Who is the spouse of {x} ?"),
             ("{x} is married to {y} .", "The spouse of {x} is {y} .", "{y} married {x} .")),
    Relation("mother", "person", "person",
             ("the mother of {x}", "the one who gave birth to {x}"),
             ("Who gave birth to {x} ?", "Who is the mother of {x} ?"),
             ("{x} is a child of the mother {y} .", "The mother of {x} is {y} .", "{y} gave birth to {x} .")),
    Relation("birthplace", "person", "city",
             ("the birthplace of {x}", "the city where {x} was born"),
             ("In which city was {x} born ?", "What is the birthplace of {x} ?"),
             ("{x} was born in {y} .", "The birthplace of {x} is {y} .", "{y} is where {x} was born .")),
    Relation("country", "city", "country",
             ("the country of {x}", "the country where {x} lies"),
             ("In which country lies {x} ?", "What is the country of {x} ?"),
             ("{x} lies in {y} .", "The country of {x} is {y} .", "{x} is a city in {y} .")),
    Relation("mayor", "city", "person",
             ("the mayor of {x}", "the one who runs {x}"),
             ("Who runs {x} ?", "Who is the mayor of {x} ?"),
             ("{x} is run by {y} .", "Its mayor is {y} .", "{y} runs {x} .")),
    Relation("founder", "company", "person",
             ("the founder of {x}", "the one who founded {x}"),
             ("Who founded {x} ?", "Who is the founder of {x} ?"),
             ("{x} was founded by {y} .", "The founder of {x} is {y} .", "{y} founded {x} .")),
    Relation("headquarters", "company", "city",
             ("the headquarters of {x}", "the city where {x} is based"),
             ("In which city is {x} based ?", "What is the headquarters of {x} ?"),
             ("{x} is based in {y} .", "Its headquarters is {y} .", "{y} is home to {x} .")),
    Relation("capital", "country", "city",
             ("the capital of {x}", "the city from which {x} is ruled"),
             ("From which city is {x} ruled ?", "What is the capital of {x} ?"),
             ("{x} is ruled from {y} .", "Its capital is {y} .", "{y} is the capital of {x} .")),
    Relation("president", "country", "person",
             ("the president of {x}", "the one who leads {x}"),
             ("Who leads {x} ?", "Who is the president of {x} ?"),
             ("{x} is led by {y} .", "Its president is {y} .", "{y} leads {x} .")),
)  # fmt: skip

RELATIONS_OF: dict[str, tuple[Relation, ...]] = {
    kind: tuple(relation for relation in RELATIONS if relation.subject == kind) for kind in TYPES
}
RELATION: dict[str, Relation] = {relation.noun: relation for relation in RELATIONS}

# Yes/no questions compare the objects of two subjects of one relation.
COMPARISONS = {
    "birthplace": ("Were {a} and {b} born in the same city ?", "Do {a} and {b} have the same birthplace ?"),
    "country": ("Are {a} and {b} in the same country ?", "Do {a} and {b} lie in the same country ?"),
    "headquarters": ("Are {a} and {b} based in the same city ?", "Do {a} and {b} have the same headquarters ?"),
}


@dataclass(frozen=True)
class Event:
    """An event that assigns a year to entities of a type. ``{x}`` stands for the entity, ``{y}`` for the year.

    ``noun`` is the relation's name in a knowledge graph; ``difference`` asks for the years from the event of ``{a}`` to
    the event of ``{b}``.
    """

    noun: str
    question: str
    sentence: str
    difference: str

    def statement(self, x: str, y: str) -> str:
        """Return the declarative form of ``question``."""
        return f"The {self.noun} of {x} is {y} ."


def _event(noun: str, verb: str) -> Event:
    return Event(
        noun,
        f"When was {{x}} {verb} ?",
        f"{{x}} was {verb} in {{y}} .",
        f"How many years after {{a}} was {{b}} {verb} ?",
    )


EVENTS = {
    "person": _event("birth year", "born"),
    "film": _event("release year", "released"),
    "book": _event("publication year", "published"),
    "company": _event("founding year", "founded"),
}
YEARS = range(1900, 2000)

POOL_SIZE = 512


def _make_pool() -> tuple[str, ...]:
    rng = random.Random("names of generated worlds")
    starts, vowels, middles, ends = "BDFGHJKLMNPRSTVZ", "aeiou", "bdfgklmnprstvz", "klmnrsx"
    pool: dict[str, str] = {}
    while len(pool) < POOL_SIZE:
        name = "".join(rng.choice(part) for part in (starts, vowels, middles, vowels, middles, vowels, ends))
        # Distinct first four letters, so that no two names look alike to an encoder or a reader.
        pool.setdefault(name[:4], name)
    return tuple(pool.values())


POOL: tuple[str, ...] = _make_pool()


@cache
def usable_names(kind: str, split: str) -> tuple[str, ...]:
    """Return the pool's names for type ``kind`` in worlds of ``split`` (half of the pool each)."""

    def half(name: str) -> str:
        return ("evaluation", "base")[hashlib.sha256(f"{kind}/{name}".encode()).digest()[0] & 1]

    return tuple(name for name in POOL if half(name) == split)
