"""Grammar of a response: its sections, and the parser's rules (ARENA, section 3.1).

A form is a sequence of sections ``<name>…</name>``. The paper does not define how a damaged response is read; these
are our rules:

* Tags are lower case without white space inside. Anything else is text.
* White space around, between and inside the sections is ignored (word-level tokenizers put it everywhere). White space
  is what ``str.strip`` removes; a zero-width space or a byte-order mark is text.
* A section is present if its opening and its closing tag each occur once in the whole response, in this order. A
  second tag anywhere, also inside another section, makes the section repeated, and a repeated section is not read.
* A section is read at any position, also inside another section or out of order; only the format score depends on the
  position.
* The relevance section holds one list of whole numbers such as ``[1,5]``: brackets, ASCII digits, commas. ``[]`` is the
  empty list. A list without brackets, with words, fractions, other separators or digits of another script cannot be
  read. Numbers outside the range of passages (0, negative, huge) are read and count as wrong.
* A blank answer does not count as an answer.
* A reasoning model's thoughts, between ``<think>`` and ``</think>``, are not part of its response; unclosed thoughts
  leave no response. Only the form ``think`` has them as a section.

The format ``compat`` is the published code's pattern: the sections from the first character on, without ``<`` inside
them and with only white space between; after the last section any text may follow on a new line, even a second answer.
It affects the format score alone, not the parsing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from platform_sdk.agents import sections
from platform_sdk.agents.sections import section

Form = Literal["three_part", "think", "direct"]
"""Form of a response: ARENA's three sections, the naive baseline's ``<think>`` and ``<answer>``, or the answer."""

SECTIONS: dict[Form, tuple[str, ...]] = {
    "three_part": ("relevance", "analysis", "answer"),
    "think": ("think", "answer"),
    "direct": (),
}

_LIST = re.compile(r"\[\s*(?:(-?[0-9]+(?:\s*,\s*-?[0-9]+)*)\s*)?\]")
_MAX_DIGITS = 18
NO_PASSAGE = 0
"""Number that no passage has, since passages are numbered from 1."""


@dataclass(frozen=True)
class Response:
    """Readable parts of a response; ``None`` where a section is missing, repeated or unreadable.

    ``relevance`` holds the numbers as the model wrote them, from 1.
    """

    relevance: frozenset[int] | None
    reasoning: str | None
    answer: str | None


def without_thoughts(text: str, form: Form) -> str:
    """Return a policy's text without a reasoning model's thoughts; the form ``think`` has them as a section."""
    return text if form == "think" else sections.without_thoughts(text)


def parse(text: str, form: Form) -> Response:
    """Read the sections of a response, whether or not they make up its form."""
    if form == "direct":
        return Response(None, None, text.strip() or None)
    listed = section(text, "relevance") if form == "three_part" else None
    answer = section(text, "answer")
    return Response(
        relevance=None if listed is None else numbers(listed),
        reasoning=section(text, "analysis" if form == "three_part" else "think"),
        answer=answer or None,
    )


def well_formed(text: str, form: Form, *, strict: bool = True) -> bool:
    """Return True if the form's sections are in order with no other text around them.

    Without ``strict`` the published pattern decides. The form ``direct`` only requires a non-blank answer.
    """
    names = SECTIONS[form]
    if not names:
        return bool(text.strip())
    if not strict:
        layout = r"\s*".join(f"<{name}>[^<]*</{name}>" for name in names)
        return re.match(layout + r"(?:\n|\Z)", text) is not None
    if any(section(text, name) is None for name in names):
        return False
    for name in names:
        # Every tag occurs once. So if a section's text contained another section, that section would be missing at
        # its own position.
        text = text.lstrip()
        if not text.startswith(f"<{name}>"):
            return False
        text = text.partition(f"</{name}>")[2]
    return not text.strip()


def numbers(text: str) -> frozenset[int] | None:
    """Return the numbers of a list such as ``[1,5]``; None if ``text`` is not such a list."""
    found = _LIST.fullmatch(text.strip())
    if found is None:
        return None
    written = found[1].split(",") if found[1] else []
    return frozenset(_number(number.strip()) for number in written)


def _number(written: str) -> int:
    # Python refuses to read thousands of digits; a number that long is not a passage's.
    return int(written) if len(written) <= _MAX_DIGITS else NO_PASSAGE


def write(relevance: Iterable[int], analysis: str, answer: str) -> str:
    """A response in ARENA's three sections; passages are numbered from 1."""
    listed = ",".join(map(str, relevance))
    return f"<relevance>[{listed}]</relevance><analysis>{analysis}</analysis><answer>{answer}</answer>"
