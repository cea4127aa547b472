"""The message grammar of Mujica: an agent's text in, a typed action out.

Source: Mujica-MyGO, section 2.2 and the project's specification of its tags. A turn is exactly one
``<think>`` section followed by one kind of action; anything else is malformed, and the agent gets the
reason as a short observation. White space between tags, brackets and words is ignored, since
word-level tokenizers add it everywhere.
"""

from __future__ import annotations

import re

from platform_sdk.agents.planner_messages import Medium
from platform_sdk.agents.planner_worker import Answer, Ask, Malformed, Reading, SubQuestion, parse_turn
from platform_sdk.agents.sections import sections

NOTHING_FOUND = "Nothing relevant was found."


_TAG = re.compile(r"</?(?:think|search|answer|action|select|sentence)>")
_SEARCH = re.compile(r'Search\s*\(\s*\[\s*(\d{1,4})\s*\]\s*,\s*"([^"]*)"\s*\)')
_INDEX = re.compile(r"\[\s*(-?\d{1,4})\s*\]")


def parse_planner(text: str, medium: Medium, *, candidates: int, max_questions: int) -> Ask | Answer | Malformed:
    """Parse a planner's turn.

    Args:
        text: the turn as decoded from the sampled tokens, without end-of-turn tokens.
        medium: ``text`` (searches by query) or ``kg`` (searches from a candidate entity).
        candidates: how many candidate entities are known (``kg`` only).
        max_questions: how many sub-questions one turn may ask.
    """
    turn = parse_turn(text, _TAG)
    if isinstance(turn, Malformed):
        return turn
    rest = turn[1]
    if rest.startswith("<answer>"):
        answers = sections(rest, "answer", _TAG)
        if answers is None or len(answers) != 1:
            return Malformed("write exactly one <answer>…</answer> and nothing behind it")
        return Answer(answers[0]) if answers[0] else Malformed("the answer is empty")
    asked = _text_searches(rest) if medium == "text" else _graph_searches(rest, candidates)
    if isinstance(asked, Malformed):
        return asked
    if len(asked) > max_questions:
        return Malformed(f"ask at most {max_questions} sub-question{'s' if max_questions > 1 else ''} at a time")
    return Ask(asked)


def parse_worker(text: str, medium: Medium, *, materials: int) -> Reading | Malformed:
    """Parse a worker's turn, which chooses among ``materials`` passages or triples, numbered from 0."""
    turn = parse_turn(text, _TAG)
    if isinstance(turn, Malformed):
        return turn
    rest = turn[1]
    if medium == "kg" and rest.startswith("<sentence>"):
        sentences = sections(rest, "sentence", _TAG)
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
    sentences = sections(sentence_part.strip(), "sentence", _TAG)
    if sentences is None or len(sentences) != 1 or not sentences[0]:
        return Malformed("write exactly one <sentence>…</sentence> behind the selection")
    if indices == (-1,) and medium == "text":
        return Reading((), sentences[0])
    if not indices or any(not 0 <= index < materials for index in indices):
        return Malformed("select one or more of the numbered materials" + (", or [-1]" if medium == "text" else ""))
    return Reading(indices, sentences[0])


def says_nothing_found(sentence: str) -> bool:
    """Return whether a sentence is the fixed one of the knowledge-graph worker, ignoring spacing and case."""
    return re.sub(r"[\W_]+", "", sentence).lower() == re.sub(r"[\W_]+", "", NOTHING_FOUND).lower()


def _text_searches(rest: str) -> tuple[SubQuestion, ...] | Malformed:
    queries = sections(rest, "search", _TAG)
    if not queries:
        return Malformed("write <search>…</search> sections, or one <answer>…</answer>, and nothing else")
    if not all(queries):
        return Malformed("a search is empty")
    return tuple(SubQuestion(query) for query in queries)


def _graph_searches(rest: str, candidates: int) -> tuple[SubQuestion, ...] | Malformed:
    actions = sections(rest, "action", _TAG)
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
