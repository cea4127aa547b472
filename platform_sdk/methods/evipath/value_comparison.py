"""Comparison of values: dates, countries, numbers of values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_EARLY = re.compile(r"\b(?:first|earlier|earliest|older|oldest)\b")
_LATE = re.compile(r"\b(?:later|latest|younger|youngest|recently|last)\b")
_COUNTRIES = (
    "american americans us usa united_states united_states_of_america u.s. america",
    "british uk united_kingdom great_britain britain",
    "french france", "german germany", "spanish spain", "dutch netherlands", "swedish sweden",
    "danish denmark", "norwegian norway", "polish poland", "greek greece", "irish ireland", "scottish scotland",
    "welsh wales", "english england", "turkish turkey", "swiss switzerland", "chinese china people's_republic_of_china",
    "japanese japan", "finnish finland", "czech czech_republic czechia", "soviet soviet_union ussr",
    "filipino philippines philippine", "thai thailand", "portuguese portugal", "argentine argentina argentinian",
    "israeli israel", "new_zealand new_zealander new_zealanders", "south_korean south_korea korean",
    "icelandic iceland", "croatian croatia", "mexican mexico", "brazilian brazil", "russian russia", "indian india",
    "iranian iran", "iraqi iraq", "nigerian nigeria", "nigerien niger",
)  # fmt: skip
_NAMED = {line.split()[0] for line in _COUNTRIES}
"""Names exempt from the common-prefix rule: Iran and Iraq, Niger and Nigeria."""
_KEY = {name.replace("_", " "): line.split()[0] for line in _COUNTRIES for name in line.split()}


def date_of(text: str) -> tuple[int, ...] | None:
    """Return year, month and day, without the missing parts."""
    year = re.search(r"\b(\d{4})\b", text) or re.search(r"\b(\d{3})\b", text)
    if year is None:
        return None
    month = next((place for place, name in enumerate(_MONTHS, start=1) if re.search(rf"\b{name}", text.lower())), None)
    day = re.search(r"\b(\d{1,2})\b", text)
    if month is None:
        return (int(year[1]),)
    return (int(year[1]), month) if day is None else (int(year[1]), month, int(day[1]))


def same(one: str, other: str) -> bool:
    """Return True for names of the same place or people, such as Canada and Canadian."""
    a, b = (_key(text) for text in (one, other))
    if a == b or {a, b} & _NAMED:
        return a == b
    shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return min(len(a), len(b)) >= 4 and shared >= min(len(a), len(b)) - 1


def _key(text: str) -> str:
    bare = re.sub(r"^the ", "", text.lower().strip())
    return _KEY.get(bare, bare)


def compared(question: str, names: Sequence[str], values: Sequence[Mapping[str, Sequence[str]]]) -> str | None:
    """Return the result of a comparison: yes, no, or one of the names; None if undecidable.

    Args:
        question: the question's text.
        names: the compared entities.
        values: the values of each entity by relation.
    """
    if len(names) != 2:
        return None
    asked = question.lower()
    for name in names:  # words in a title such as "First Blood" do not belong to the question
        for written in (name.lower(), re.sub(r"\s*\(.*?\)", "", name).lower()):
            asked = re.sub(rf"(?<!\w){re.escape(written)}(?!\w)", " ", asked)
    if re.search(r"\bsame\b", asked) or (re.match(r"(are|is|were|was|do|does|did)\b", asked) and " or " not in asked):
        return _agreement(values)
    if "more" in asked and "recently" not in asked:
        counts = [sum(map(len, each.values())) for each in values]
        return None if counts[0] == counts[1] else names[counts.index(max(counts))]
    if "longer" in asked:
        spans = [_span(each) for each in values]
        return None if None in spans or spans[0] == spans[1] else names[spans.index(max(spans))]  # type: ignore[type-var]
    dates = [next((date_of(value) for found in each.values() for value in found), None) for each in values]
    if dates[0] is None or dates[1] is None:
        return None
    length = min(len(dates[0]), len(dates[1]))
    keys = [dates[0][:length], dates[1][:length]]
    if keys[0] == keys[1]:
        return None
    if _LATE.search(asked):
        return names[keys.index(max(keys))]
    return names[keys.index(min(keys))] if _EARLY.search(asked) else None


def _agreement(values: Sequence[Mapping[str, Sequence[str]]]) -> str:
    found = [[value for each in one.values() for value in each] for one in values]
    return "yes" if any(same(a, b) for a in found[0] for b in found[1]) else "no"


def _span(values: Mapping[str, Sequence[str]]) -> float | None:
    born, died = (date_of(values[name][0]) if values.get(name) else None for name in ("date of birth", "date of death"))
    if born is None or died is None:
        return None
    (begin, end) = ((*each, *(6, 15)[len(each) - 1 :]) for each in (born, died))
    return (end[0] - begin[0]) + (end[1] - begin[1]) / 12 + (end[2] - begin[2]) / 365
