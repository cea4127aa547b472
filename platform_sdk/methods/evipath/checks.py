"""Checks that an example must pass before training; each is a pure function of the example.

A check returns an error, or None. The first failed check is the reason of a rejection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from platform_sdk.agents import planner_messages as messages
from platform_sdk.agents.planner_worker import Answer, Ask, Malformed
from platform_sdk.evaluation.answers import exact_match, normalize_squad
from platform_sdk.methods.evipath.dialogues import executor_turn, planner_chat, planner_turns
from platform_sdk.methods.evipath.grammar import (
    ANSWERING,
    ASKING,
    READING,
    parse_executor,
    parse_planner,
    tags_of,
)
from platform_sdk.methods.evipath.prompts import Style
from platform_sdk.methods.evipath.records import Example


@dataclass(frozen=True)
class Limits:
    """Limits and style of the trained agent."""

    style: Style
    max_questions: int
    iterations: int


Check = Callable[[Example, Limits], str | None]

# Without "that" and "one", which mostly open a relative clause or count. Names are capitalised.
_PRONOUN = re.compile(
    r"\b(?:he|she|they|him|his|her|hers|them|their|theirs|it|its|this|these|those|the former|the latter)\b"
)


def tags(example: Example, limits: Limits) -> str | None:
    """Check that the tags of every turn are well-formed and ordered, and that an executor's turn parses back equal."""
    *asking, last = planner_turns(example, limits.style)
    for parts, text in [*((ASKING, text) for text in asking), (ANSWERING, last)]:
        if tags_of(text) != parts:
            return f"has tags {' '.join(tags_of(text))}: {text}"
    for asked in example.asked():
        text = executor_turn(asked)
        reading = parse_executor(text, materials=1 + max(asked.selected, default=0))
        if tags_of(text) != READING or isinstance(reading, Malformed) or reading.sentence != asked.answer.strip():
            return f"an executor's turn cannot be read: {text}"
    return None


def action(example: Example, limits: Limits) -> str | None:
    """Check that every action parses back to its sub-questions, about entities known at that turn."""
    if not example.steps:
        return "nothing was asked"
    if len(example.steps) >= limits.iterations:
        return f"takes {len(example.steps) + 1} turns of at most {limits.iterations}"
    *steps, last = planner_turns(example, limits.style)
    for step, text, known in zip(example.steps, steps, example.known_candidates(), strict=False):
        parsed = parse_planner(text, example.medium, candidates=len(known), max_questions=limits.max_questions)
        if isinstance(parsed, Malformed):
            return parsed.reason
        if not isinstance(parsed, Ask) or [sub.text for sub in parsed.sub_questions] != [
            asked.question.strip() for asked in step.asked
        ]:
            return f"reads otherwise: {text}"
    end = parse_planner(last, example.medium, candidates=0, max_questions=1)
    return None if isinstance(end, Answer) else f"the last turn gives no answer: {last}"


def answer(example: Example, limits: Limits) -> str | None:
    """Check that the final answer is an exact match in the dataset's convention."""
    if exact_match(example.answer, example.answers, example.dataset):
        return None
    return f"{example.answer!r} is not {example.answers[0]!r}"


def selection(example: Example, limits: Limits) -> str | None:
    """Check that evidence is selected, and that every selected index is among the shown evidence."""
    for asked in example.asked():
        if not asked.selected:
            return f"nothing is selected for: {asked.question}"
        if wrong := [index for index in asked.selected if not 0 <= index < len(asked.shown)]:
            return f"[{wrong[0]}] is selected among {len(asked.shown)}"
    return None


def leak(example: Example, limits: Limits) -> str | None:
    """Check that no thought, plan or sub-question contains an answer before an observation or the question does.

    This includes answers of sub-questions known to the teacher. ``yes`` and ``no`` are exempt.
    """
    secrets = [group for group in ((*example.answers,), *((secret,) for secret in example.secrets)) if _telling(group)]
    seen = [example.question, *example.candidates]
    for place, step in enumerate(example.steps):
        plan = example.plan if place == 0 else ()
        said = (*plan, step.thoughts, *(asked.question for asked in step.asked))
        if (found := _early(secrets, said, seen)) is not None:
            return f"turn {place + 1} says {found!r} before it was observed"
        seen += [asked.answer for asked in step.asked]
        seen += example.known_candidates()[place + 1] if example.medium == "kg" else []
    if (found := _early(secrets, (example.thoughts,), seen)) is not None:
        return f"the last turn says {found!r}, which no observation says"
    return None


def pronoun(example: Example, limits: Limits) -> str | None:
    """Check that sub-questions have no pronouns, except within names in the evidence."""
    names = sorted({*example.secrets, *example.candidates, *(item.title for item in example.pool)}, key=len)
    for asked in example.asked():
        text = asked.question
        for name in reversed(names):
            text = text.replace(name, "") if name else text
        if (found := _PRONOUN.search(text)) is not None:
            return f"{found[0]!r} in: {asked.question}"
    return None


def prompt(example: Example, limits: Limits) -> str | None:
    """Check that the planner's prompt has only the question, and the answer only if the question contains it."""
    chat = planner_chat(example, limits.style, limits.max_questions)
    if chat.turns[0] != messages.planner_opening(example.question, example.candidates, example.medium):
        return f"the planner is shown more than the question: {chat.turns[0]}"
    if _telling(example.answers) and not in_question(example):
        said = next((word for word in example.answers if _says(chat.system + " " + chat.turns[0], word)), None)
        return None if said is None else f"the planner's prompt says {said!r}"
    return None


CHECKS: Mapping[str, Check] = {
    check.__name__: check for check in (selection, tags, action, prompt, pronoun, leak, answer)
}


def judged(example: Example, limits: Limits) -> Example:
    """Return the example with the name and finding of the first failed check; a rejected example is unchanged."""
    if example.rejected:
        return example
    for name, check in CHECKS.items():
        if (found := check(example, limits)) is not None:
            return example.model_copy(update={"rejected": name, "detail": found})
    return example


def in_question(example: Example) -> bool:
    """Return True if the question, or its start entity in a graph, contains the answer."""
    return _telling(example.answers) and any(
        _says(text, word) for text in (example.question, *example.candidates) for word in example.answers
    )


def _telling(answers: Iterable[str]) -> bool:
    return not {"yes", "no", "noanswer", ""} & {normalize_squad(word) for word in answers}


def _early(secrets: Iterable[tuple[str, ...]], said: Iterable[str], seen: Iterable[str]) -> str | None:
    """Return an answer that is stated before it was seen; seeing one of its names makes all of them known."""
    said, seen = list(said), list(seen)
    for group in secrets:
        if any(_says(text, name) for text in seen for name in group):
            continue
        if found := [name for name in group for text in said if _says(text, name)]:
            return found[0]
    return None


def _says(text: str, name: str) -> bool:
    return f" {normalize_squad(name)} " in f" {normalize_squad(text)} "
