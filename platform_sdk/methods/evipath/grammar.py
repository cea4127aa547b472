"""The message grammar of EviPath: an agent's text in, a typed action out, and back.

A planner's turn is ``<think>…</think>`` and then ``<action>Search("…") …</action>`` (in a knowledge graph
``Search([i], "…")``) or ``<answer>…</answer>``. An executor's is ``<think>…</think><select>[i]…</select>
<answer>sentence</answer>``. White space between tags, brackets and words is not significant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from platform_sdk.agents.planner_messages import Medium
from platform_sdk.agents.planner_worker import Answer, Ask, Malformed, Reading, SubQuestion, parse_turn
from platform_sdk.agents.sections import sections

NOTHING_FOUND = "No relevant information found."

_TAG = re.compile(r"</?(?:think|action|answer|select)>")
_NO_THOUGHTS = re.compile(r"^\s*<think>\s*</think>")  # a chat template may have opened the tag
_SEARCH = {
    "text": re.compile(r'Search\s*\((?P<place>)\s*"(?P<question>[^"]*)"\s*\)'),
    "kg": re.compile(r'Search\s*\(\s*\[\s*(?P<place>\d{1,4})\s*\]\s*,\s*"(?P<question>[^"]*)"\s*\)'),
}
_INDEX = re.compile(r"\[\s*(\d{1,4})\s*\]")
_FORM = {"text": 'Search("question")', "kg": 'Search([i], "question")'}
_THINK = ("<think>", "</think>")
ASKING = (*_THINK, "<action>", "</action>")
ANSWERING = (*_THINK, "<answer>", "</answer>")
READING = (*_THINK, "<select>", "</select>", "<answer>", "</answer>")
"""Tags of a planner's turn with sub-questions, of its last turn, and of an executor's turn."""


def tags_of(text: str) -> tuple[str, ...]:
    """Return the tags of a text in order."""
    return tuple(_TAG.findall(text))


def thoughts_of(text: str) -> str:
    """Return a turn's thoughts, or an empty text for a malformed turn."""
    turn = parse_turn(text, _TAG)
    return "" if isinstance(turn, Malformed) else turn[0]


def parse_planner(text: str, medium: Medium, *, candidates: int, max_questions: int) -> Ask | Answer | Malformed:
    """Parse a planner's turn.

    Args:
        text: the turn without end-of-turn tokens.
        medium: ``text`` (searches by question) or ``kg`` (searches from a candidate entity).
        candidates: number of known candidate entities (``kg`` only).
        max_questions: most sub-questions of a turn.
    """
    turn = parse_turn(text, _TAG)
    if isinstance(turn, Malformed):
        return turn
    rest = turn[1]
    if rest.startswith("<answer>"):
        answers = sections(rest, "answer", _TAG)
        if answers is None or len(answers) != 1 or not answers[0]:
            return Malformed("write exactly one <answer>…</answer> and nothing behind it")
        return Answer(answers[0])
    actions = sections(rest, "action", _TAG)
    if actions is None or len(actions) != 1:
        return Malformed(f"write one <action>{_FORM[medium]}</action>, or one <answer>…</answer>")
    found = list(_SEARCH[medium].finditer(actions[0]))
    if not found or _SEARCH[medium].sub("", actions[0]).strip():
        return Malformed(f"an action holds nothing but {_FORM[medium]}")
    asked = tuple(
        SubQuestion(search["question"].strip(), int(search["place"]) if medium == "kg" else None) for search in found
    )
    if not all(search.text for search in asked):
        return Malformed("a search has an empty question")
    for search in asked:
        if search.candidate is not None and search.candidate >= candidates:
            return Malformed(f"there is no candidate [{search.candidate}]")
    if len(asked) > max_questions:
        return Malformed(f"ask at most {max_questions} sub-question{'s' if max_questions > 1 else ''} at a time")
    return Ask(asked)


def parse_executor(text: str, *, materials: int) -> Reading | Malformed:
    """Parse an executor's turn, which chooses among ``materials`` pieces of evidence, numbered from 0."""
    if says_nothing_found(_NO_THOUGHTS.sub("", text)):
        return Reading((), NOTHING_FOUND)
    turn = parse_turn(text, _TAG)
    if isinstance(turn, Malformed):
        return turn
    selection, tag, answer_part = turn[1].partition("</select>")
    if not selection.startswith("<select>") or not tag:
        return Malformed("select evidence by index in <select>…</select> after thinking")
    chosen = selection.removeprefix("<select>")
    if _INDEX.sub("", chosen).strip():
        return Malformed("a selection holds nothing but indices such as [0]")
    indices = tuple(dict.fromkeys(int(index) for index in _INDEX.findall(chosen)))
    if not indices or any(index >= materials for index in indices):
        return Malformed("select one or more of the numbered pieces of evidence")
    answers = sections(answer_part.strip(), "answer", _TAG)
    if answers is None or len(answers) != 1 or not answers[0]:
        return Malformed("write exactly one <answer>…</answer> behind the selection")
    return Reading(indices, answers[0])


def says_nothing_found(text: str) -> bool:
    """Return True for the fixed sentence of an executor without evidence, ignoring spacing and case."""
    return re.sub(r"[\W_]+", "", text).lower() == re.sub(r"[\W_]+", "", NOTHING_FOUND).lower()


def write_ask(thoughts: str, searches: Sequence[tuple[int | None, str]]) -> str:
    """Write a planner's turn with searches: a candidate's number (or None) and a question each."""
    calls = [
        f'Search("{question}")' if place is None else f'Search([{place}], "{question}")' for place, question in searches
    ]
    return f"<think>{thoughts}</think><action>{' '.join(calls)}</action>"


def write_answer(thoughts: str, answer: str) -> str:
    """Write a planner's last turn."""
    return f"<think>{thoughts}</think><answer>{answer}</answer>"


def write_reading(thoughts: str, selected: Sequence[int], sentence: str) -> str:
    """Write an executor's turn."""
    chosen = "".join(f"[{index}]" for index in selected)
    return f"<think>{thoughts}</think><select>{chosen}</select><answer>{sentence}</answer>"
