"""Prompts of an LLM teacher, which include the answer and the gold evidence, unlike the trained agent's."""

from __future__ import annotations

from collections.abc import Sequence

from platform_sdk.agents import planner_messages as messages
from platform_sdk.agents.planner_messages import Medium
from platform_sdk.methods.evipath import prompts
from platform_sdk.methods.evipath.demonstrations import demonstrations
from platform_sdk.methods.evipath.dialogues import planner_chat
from platform_sdk.methods.evipath.records import Example, SubQuestion
from platform_sdk.tracking.outcomes import digest_of

_PLANNER = """\
You write a model solution to a complex question. You are told its answer and the evidence behind it, but you write as \
someone who finds them out step by step: never say the answer, or a fact of the evidence, before an observation says it.
Reason backwards from the answer and the evidence to the fewest sub-questions that lead there. In your first thoughts \
list them as numbered lines.
{form}"""
ANSWERER = """\
You answer a simple question from evidence. Write one complete declarative sentence that repeats the question's words \
and names things in full. Write nothing else."""
THINKER = """\
You explain how the answer to a simple question is found among numbered pieces of evidence. You are told the answer \
and the indices of the evidence that gives it. Say what is asked, and what that evidence says, citing indices such as \
[0]; consider no other evidence. Write only <think>your explanation</think>."""


def planner_system(medium: Medium, max_questions: int) -> str:
    """Return the planner's instruction: to reason backwards, in the format of the trained agent."""
    form = prompts.instruction("standard", "planner", medium, max_questions=max_questions)
    return _PLANNER.format(form=form)


def planner_opening(question: str, candidates: Sequence[str], answer: str, gold: Sequence[str], medium: Medium) -> str:
    """Write the planner's first message."""
    evidence = "\n".join(gold)
    return f"{messages.planner_opening(question, candidates, medium)}\nAnswer : {answer}\nEvidence :\n{evidence}"


def planner_examples(medium: Medium, max_questions: int) -> tuple[str, ...]:
    """Return worked solutions as previous turns."""
    turns: list[str] = []
    for example in demonstrations(medium):
        _, *rest = planner_chat(example, "standard", max_questions).turns
        gold = [messages.piece(example.pool[place], medium) for place in example.gold]
        opening = planner_opening(example.question, example.candidates, example.answer, gold, medium)
        turns += [opening, *rest]
    return tuple(turns)


def answerer_opening(question: str, gold: Sequence[str]) -> str:
    """Write the first message for answering a sub-question from evidence."""
    return f"Question : {question}\nEvidence :\n" + "\n".join(gold)


def thinker_opening(question: str, evidence: str, answer: str, selected: Sequence[int]) -> str:
    """Write the first message for an executor's thoughts."""
    indices = " ".join(f"[{index}]" for index in selected)
    return f"Question : {question}\n{evidence}\nAnswer : {answer}\nGiven by : {indices}"


def answerer_examples(medium: Medium) -> tuple[str, ...]:
    """Return worked sub-answers."""
    turns: list[str] = []
    for example, asked in _worked(medium):
        gold = [messages.piece(example.pool[place], medium) for place in example.gold]
        turns += [answerer_opening(asked.question, gold), asked.answer]
    return tuple(turns)


def thinker_examples(medium: Medium) -> tuple[str, ...]:
    """Return worked explanations."""
    turns: list[str] = []
    for example, asked in _worked(medium):
        evidence = messages.materials(example.evidence(asked), medium)
        turns += [
            thinker_opening(asked.question, evidence, asked.answer, asked.selected),
            f"<think>{asked.thoughts}</think>",
        ]
    return tuple(turns)


def _worked(medium: Medium) -> list[tuple[Example, SubQuestion]]:
    return [(example, asked) for example in demonstrations(medium) for asked in example.asked()][-2:]


def digest(medium: Medium, max_questions: int) -> str:
    """Digest all parts of a teacher's prompts except the question."""
    return digest_of(
        planner_system(medium, max_questions), planner_examples(medium, max_questions), ANSWERER,
        answerer_examples(medium), THINKER, thinker_examples(medium),
    )  # fmt: skip
