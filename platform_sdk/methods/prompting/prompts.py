"""Prompts of the baselines. All wording is the project's own; the worked example is about made-up films and people."""

from __future__ import annotations

from collections.abc import Sequence

from platform_sdk.methods.prompting.settings import Strategy
from platform_sdk.records import Evidence

FINAL = "Answer:"
"""Marker of the answer after a chain of thought, as prompts show it."""
FINAL_READ = "Answer :"
"""The marker for ``agents.sections.marked``: white space before the colon is ignored."""
_SHORT = "only the short answer (a name, a date, a number, yes or no), no sentence"
_INSTRUCTIONS: dict[Strategy, str] = {
    "closed_book": f"Answer the question. Write {_SHORT}.",
    "chain_of_thought": (
        "Answer the question step by step. First write a few short sentences of reasoning. Then write one last line "
        f"that begins with {FINAL} and has {_SHORT}."
    ),
    "retrieve_read": (
        f"Answer the question from the numbered passages. Write {_SHORT}. If the passages do not contain the answer, "
        "give the most likely one."
    ),
    "ircot": (
        "Answer the question step by step from the numbered passages. First write a few short sentences of reasoning, "
        f"one fact each. Then write one last line that begins with {FINAL} and has {_SHORT}."
    ),
}
NEXT_SENTENCE = (
    "You answer a question step by step from numbered passages. Write the next sentence of the reasoning and nothing "
    "else: one fact that the passages give, or one that is still missing. When the reasoning is complete, write "
    f"{FINAL} and the short answer instead."
)

_QUESTION = "Who is the mother of the director of the film Amberfall?"
_PASSAGES = (
    Evidence(kind="passage", id="", title="Amberfall", text="Amberfall is a 1958 film directed by Ida Roth.", score=1),
    Evidence(kind="passage", id="", title="Ida Roth", text="Ida Roth was born to Lena Roth in Velm.", score=1),
)
_THOUGHTS = ("Amberfall was directed by Ida Roth.", "The mother of Ida Roth is Lena Roth.")
_ANSWER = "Lena Roth"


def instruction(strategy: Strategy) -> str:
    """Return the system message of the answering dialogue."""
    return _INSTRUCTIONS[strategy]


def opening(question: str, passages: Sequence[Evidence] = (), thoughts: Sequence[str] = ()) -> str:
    """Return the first message: the passages, numbered from 1, the question, and the reasoning so far."""
    lines = [
        f"[{number}] {item.title}: {item.text}" if item.title else f"[{number}] {item.text}"
        for number, item in enumerate(passages, start=1)
    ]
    lines.append(f"Question: {question}")
    if thoughts:
        lines.append(f"Reasoning so far: {' '.join(thoughts)}")
    return "\n".join(lines)


def example(strategy: Strategy) -> tuple[str, str]:
    """Return the worked example of the answering dialogue: the first message, and the reply."""
    reply = _ANSWER if strategy in ("closed_book", "retrieve_read") else f"{' '.join(_THOUGHTS)}\n{FINAL} {_ANSWER}"
    return opening(_QUESTION, _PASSAGES if strategy in ("retrieve_read", "ircot") else ()), reply


def step_example() -> tuple[str, ...]:
    """Return the worked example of the next sentence: first messages and replies in turns."""
    return (
        opening(_QUESTION, _PASSAGES[:1]), _THOUGHTS[0],
        opening(_QUESTION, _PASSAGES, _THOUGHTS[:1]), _THOUGHTS[1],
        opening(_QUESTION, _PASSAGES, _THOUGHTS), f"{FINAL} {_ANSWER}",
    )  # fmt: skip
