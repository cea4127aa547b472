"""Prompts of the agent. All wording is the project's own.

``standard`` is for instruction-tuned models, ``compact`` for small models with short contexts. The worked example,
about invented films and people, is shown as previous turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from platform_sdk.records import Evidence

Style = Literal["standard", "compact"]

_STANDARD = """\
You answer a question by searching a knowledge base step by step.
Every turn starts with your thoughts in <think>…</think>: what is known so far, and what is still missing.
If something is missing, search for it: write <query>…</query> behind your thoughts. One query asks for one fact and \
names its subject. What is found comes back in <knowledge>…</knowledge>.
If you know enough, write <answer>…</answer> instead: only the short answer (a name, a date, a number, yes or no), no \
sentence.
Write nothing outside the tags, and one query or one answer per turn. You have at most {turns} turns."""
_COMPACT = "Think , then write one query or the answer ."

_EXAMPLE = (
    "Question : Who is the mother of the director of the film Amberfall?",
    "<think>I need the director of Amberfall first.</think><query>director of the film Amberfall</query>",
    "<knowledge>\nAmberfall : Amberfall is a 1958 drama film directed by Ida Roth.\n</knowledge>",
    "<think>Ida Roth directed Amberfall. Next I need her mother.</think><query>mother of Ida Roth</query>",
    "<knowledge>\nIda Roth : Ida Roth is a film director. She was born to Lena Roth in Velm.\n</knowledge>",
    "<think>The mother of Ida Roth is Lena Roth. I know enough.</think><answer>Lena Roth</answer>",
)
_COMPACT_EXAMPLE = (
    "Question : Who is the mother of the director of Amberfall ?",
    "<think>I do not know the director yet .</think><query>Who directed Amberfall ?</query>",
    "<knowledge>\nAmberfall : Amberfall is a film . It was directed by Ida Roth .\n</knowledge>",
    "<think>Next I need the mother of Ida Roth .</think><query>Who is the mother of Ida Roth ?</query>",
    "<knowledge>\nIda Roth : Ida Roth is a person . Lena Roth gave birth to Ida Roth .\n</knowledge>",
    "<think>I know enough .</think><answer>Lena Roth</answer>",
)


def instruction(style: Style, turns: int) -> str:
    """Return the system message."""
    return _COMPACT if style == "compact" else _STANDARD.format(turns=turns)


def example(style: Style) -> tuple[str, ...]:
    """Return the worked example: alternating texts of environment and agent."""
    return _COMPACT_EXAMPLE if style == "compact" else _EXAMPLE


def opening(question: str) -> str:
    """Return the first message."""
    return f"Question : {question}"


def knowledge(evidence: Sequence[Evidence]) -> str:
    """Return the message with a query's results.

    A passage has its title, and a fact the title of its passage unless the fact contains it: "It was directed by Ida
    Roth" is not understandable alone.
    """
    lines = [
        f"{item.title} : {item.text}" if item.kind == "passage" or item.title not in item.text else item.text
        for item in evidence
    ]
    return "\n".join(("<knowledge>", *(lines or ["( nothing found )"]), "</knowledge>"))


def error(reason: str) -> str:
    """Return the reply to a malformed turn."""
    return f"Error : {reason} ."
