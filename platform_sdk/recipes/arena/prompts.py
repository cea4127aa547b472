"""What the generator is told. All wording is the project's own.

Two styles say the same things: ``standard`` for instruction-tuned models, ``compact`` for small models that cannot
afford long instructions. The user's message is the same in both: the question, then the passages numbered from 1 in
their original order (ARENA, section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from platform_sdk.recipes.arena.grammar import Form
from platform_sdk.records import Passage

Style = Literal["standard", "compact"]

_SHORT = "the answer alone (a name, a date, a number, yes or no), no sentence"
_STANDARD: dict[Form, str] = {
    "three_part": f"""\
You answer a question from numbered passages so that others can check how. \
Your reply consists of exactly three sections in this order, with nothing before, between or after them:
<relevance>[…]</relevance>: the numbers of the passages you need for the answer and of no others, in one pair of \
brackets and separated by commas, such as [2,7].
<analysis>…</analysis>: how the answer follows from these passages; after each claim comes the number of the passage \
that says it.
<answer>…</answer>: {_SHORT}.""",
    "think": f"""\
You answer a question from numbered passages. Your reply consists of exactly two sections in this order, with nothing \
before, between or after them:
<think>…</think>: your thoughts.
<answer>…</answer>: {_SHORT}.""",
    "direct": f"You answer a question from numbered passages. Your reply is {_SHORT}.",
}
_STANDARD_CLOSED_BOOK = f"You answer a question from your own knowledge. Your reply is {_SHORT}."
_COMPACT: dict[Form, str] = {
    "three_part": "Answer from the passages : relevance , analysis , answer .",
    "think": "Answer from the passages : think , answer .",
    "direct": "Answer from the passages .",
}
_COMPACT_CLOSED_BOOK = "Answer ."


def instruction(style: Style, form: Form) -> str:
    """The system message where passages are given."""
    return (_STANDARD if style == "standard" else _COMPACT)[form]


def closed_book_instruction(style: Style) -> str:
    """The system message where no passages are given: the answer alone is asked for."""
    return _STANDARD_CLOSED_BOOK if style == "standard" else _COMPACT_CLOSED_BOOK


def opening(question: str, passages: Sequence[Passage]) -> str:
    """The user's message; without passages it is the question."""
    return "\n".join([f"Question : {question}", *_numbered(passages)])


def _numbered(passages: Sequence[Passage]) -> list[str]:
    return [f"[{number}] {passage.title} : {passage.text}" for number, passage in enumerate(passages, start=1)]
