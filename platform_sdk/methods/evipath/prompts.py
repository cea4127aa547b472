"""Prompts of the trained agent. All wording is the project's own.

Two styles have the same meaning: ``standard`` for instruction-tuned models, ``compact`` for very small ones, in the
vocabulary of the shipped base model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from platform_sdk.agents.planner_messages import Medium
from platform_sdk.methods.evipath.grammar import NOTHING_FOUND
from platform_sdk.methods.evipath.settings import Role

Style = Literal["standard", "compact"]

_PLANNER = """\
You answer a complex question step by step. Executors look things up for you and report one sentence for each \
sub-question.
Every turn starts with your thoughts in <think>…</think>. First list the sub-questions of your plan; later say what \
you know by now and what comes next.
{act}
Ask sub-questions together only if none needs another's answer; ask {max_questions} at most in one turn. Each must be \
understandable alone: use full names, no pronouns.
When you know enough, end with <answer>…</answer>: only the short answer (a name, a date, a number, yes or no)."""
_ACT: dict[Medium, str] = {
    "text": 'To ask, write <action>Search("sub-question")</action>.',
    "kg": 'To ask, write <action>Search([i], "sub-question")</action>, where [i] is the numbered candidate entity '
    "whose facts answer the sub-question. Entities that are found become new candidates.",
}
_EXECUTOR = f"""\
You answer a question from numbered pieces of evidence, most of which have nothing to do with it.
First think in <think>…</think>: what is asked, and which evidence says it.
Then write the indices of that evidence, e.g. <select>[0]</select>, and answer in one complete declarative sentence: \
<answer>…</answer>.
If no evidence answers the question, write only: {NOTHING_FOUND}"""
_COMPACT: dict[tuple[Role, Medium], str] = {
    ("planner", "text"): "Plan : search or answer .",
    ("planner", "kg"): "Plan : visit a candidate or answer .",
    ("executor", "text"): "Read : select passages and answer .",
    ("executor", "kg"): "Read : select facts and answer .",
}


def instruction(style: Style, role: Role, medium: Medium, *, max_questions: int) -> str:
    """Return a role's instruction."""
    if style == "compact":
        return _COMPACT[role, medium]
    return _EXECUTOR if role == "executor" else _PLANNER.format(act=_ACT[medium], max_questions=max_questions)


def first_thoughts(plan: Sequence[str], thoughts: str, style: Style) -> str:
    """Write the first turn's thoughts: the plan, then the current sub-question."""
    if not plan:
        return thoughts
    if style == "compact":
        return f"Plan : {' , '.join(plan)} . {thoughts}"
    steps = "\n".join(f"{place}. {step}" for place, step in enumerate(plan, start=1))
    return f"To answer this question, I need to find out:\n{steps}\n{thoughts}"
