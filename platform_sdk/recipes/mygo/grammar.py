"""The message grammar of Mujica: an agent's text in, a typed action out.

Source: Mujica-MyGO, section 3.2 and the project's specification of its tags. A turn is exactly one
``<think>`` section followed by one kind of action; anything else is malformed, and the reason is told
to the agent as a short observation. White space between tags, brackets and words carries no meaning,
since word-level tokenizers put it everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Form = Literal["text", "kg"]

NOTHING_FOUND = "Nothing relevant was found."


@dataclass(frozen=True)
class SubQuestion:
    """A question for a worker; ``candidate`` is the entity to visit in the knowledge-graph form."""

    text: str
    candidate: int | None = None


@dataclass(frozen=True)
class Ask:
    """The planner sends out sub-questions that do not depend on each other."""

    sub_questions: tuple[SubQuestion, ...]


@dataclass(frozen=True)
class Answer:
    """The planner ends with an answer."""

    text: str


@dataclass(frozen=True)
class Reading:
    """A worker's reading: the indices it chose (none: nothing helped) and its one sentence."""

    selected: tuple[int, ...]
    sentence: str


@dataclass(frozen=True)
class Malformed:
    """A turn outside the grammar, and why."""

    reason: str


_TAG = re.compile(r"</?(?:think|search|answer|action|select|sentence)>")
_WORD = re.compile(r"\S")
_TURN = re.compile(r"\s*<think>(?P<think>.*?)</think>(?P<rest>.*)", re.DOTALL)
_SEARCH = re.compile(r'Search\s*\(\s*\[\s*(\d{1,4})\s*\]\s*,\s*"([^"]*)"\s*\)')
_INDEX = re.compile(r"\[\s*(-?\d{1,4})\s*\]")


def parse_planner(text: str, form: Form, *, candidates: int, most: int) -> Ask | Answer | Malformed:
    """Parse a planner's turn.

    Args:
        text: the turn as decoded from the sampled tokens, without end-of-turn tokens.
        form: ``text`` (searches by query) or ``kg`` (searches from a candidate entity).
        candidates: how many candidate entities are known (``kg`` only).
        most: how many sub-questions one turn may ask.
    """
    rest = _after_thinking(text)
    if isinstance(rest, Malformed):
        return rest
    if rest.startswith("<answer>"):
        sections = _sections(rest, "answer")
        if sections is None or len(sections) != 1:
            return Malformed("write exactly one <answer>…</answer> and nothing behind it")
        return Answer(sections[0]) if sections[0] else Malformed("the answer is empty")
    asked = _text_searches(rest) if form == "text" else _graph_searches(rest, candidates)
    if isinstance(asked, Malformed):
        return asked
    if len(asked) > most:
        return Malformed(f"ask at most {most} sub-question{'s' if most > 1 else ''} at a time")
    return Ask(asked)


def parse_worker(text: str, form: Form, *, materials: int) -> Reading | Malformed:
    """Parse a worker's turn, which chooses among ``materials`` passages or triples, numbered from 0."""
    rest = _after_thinking(text)
    if isinstance(rest, Malformed):
        return rest
    if form == "kg" and rest.startswith("<sentence>"):
        sentences = _sections(rest, "sentence")
        if sentences is None or len(sentences) != 1 or not says_nothing_found(sentences[0]):
            return Malformed(f"without a selection the sentence must be: {NOTHING_FOUND}")
        return Reading((), NOTHING_FOUND)
    selection, tag, sentence_part = rest.partition("</select>")
    if not selection.startswith("<select>") or not tag:
        return Malformed("select materials by index in <select>…</select> after thinking")
    chosen = selection.removeprefix("<select>")
    if _INDEX.sub("", chosen).strip():
        return Malformed("a selection holds nothing but indices such as [0]")
    indices = tuple(dict.fromkeys(int(index) for index in _INDEX.findall(chosen)))
    sentences = _sections(sentence_part.strip(), "sentence")
    if sentences is None or len(sentences) != 1 or not sentences[0]:
        return Malformed("write exactly one <sentence>…</sentence> behind the selection")
    if indices == (-1,) and form == "text":
        return Reading((), sentences[0])
    if not indices or any(not 0 <= index < materials for index in indices):
        return Malformed("select one or more of the numbered materials" + (", or [-1]" if form == "text" else ""))
    return Reading(indices, sentences[0])


def says_nothing_found(sentence: str) -> bool:
    """Whether a sentence is the fixed one of the knowledge-graph worker, whatever its spacing and case."""
    return re.sub(r"[\W_]+", "", sentence).lower() == re.sub(r"[\W_]+", "", NOTHING_FOUND).lower()


def _after_thinking(text: str) -> str | Malformed:
    """What follows the one ``<think>`` section."""
    turn = _TURN.fullmatch(text)
    if turn is None:
        return Malformed("begin with <think>…</think>")
    if _TAG.search(turn["think"]):
        return Malformed("another tag stands inside <think>")
    rest = turn["rest"].strip()
    return rest if rest else Malformed("an action must follow </think>")


def _sections(text: str, tag: str) -> list[str] | None:
    """The contents of the sections ``<tag>…</tag>`` that make up ``text``, or None if it is anything else."""
    contents: list[str] = []
    opening, closing = f"<{tag}>", f"</{tag}>"
    position = 0
    # By position and not by what is left of the text: copying that for every section takes quadratic time.
    while position < len(text):
        start = position + len(opening)
        end = text.find(closing, start)
        if not text.startswith(opening, position) or end < 0 or _TAG.search(text, start, end):
            return None
        contents.append(text[start:end].strip())
        position = _after_space(text, end + len(closing))
    return contents


def _after_space(text: str, position: int) -> int:
    """The position of the first character from ``position`` on that is not white space."""
    found = _WORD.search(text, position)
    return found.start() if found else len(text)


def _text_searches(rest: str) -> tuple[SubQuestion, ...] | Malformed:
    queries = _sections(rest, "search")
    if not queries:
        return Malformed("write <search>…</search> sections, or one <answer>…</answer>, and nothing else")
    if not all(queries):
        return Malformed("a search is empty")
    return tuple(SubQuestion(query) for query in queries)


def _graph_searches(rest: str, candidates: int) -> tuple[SubQuestion, ...] | Malformed:
    actions = _sections(rest, "action")
    if actions is None or len(actions) != 1:
        return Malformed('write one <action>Search([i], "question")</action>, or one <answer>…</answer>')
    searches = [SubQuestion(question.strip(), int(index)) for index, question in _SEARCH.findall(actions[0])]
    if not searches or _SEARCH.sub("", actions[0]).strip():
        return Malformed('an action holds nothing but Search([i], "question")')
    for search in searches:
        if not search.text:
            return Malformed("a search has an empty question")
        if search.candidate is not None and search.candidate >= candidates:
            return Malformed(f"there is no candidate [{search.candidate}]")
    return tuple(searches)
