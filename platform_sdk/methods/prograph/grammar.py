"""The grammar of a turn: ``<think>…</think>``, then one ``<query>…</query>`` or one ``<answer>…</answer>``.

Anything else is malformed, and the agent gets the reason. White space between tags is not significant, since word-level
tokenizers insert it everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from platform_sdk.agents.planner_worker import Answer, Malformed
from platform_sdk.agents.sections import sections

_TAG = re.compile(r"</?(?:think|query|answer|knowledge)>")


@dataclass(frozen=True)
class Query:
    """A search for ``text``."""

    text: str


def parse(text: str) -> Query | Answer | Malformed:
    """Parse a turn, decoded from the sampled tokens without end-of-turn tokens."""
    thought, closing, action = text.strip().partition("</think>")
    if not thought.startswith("<think>") or not closing:
        return Malformed("begin with <think>…</think>")
    if _TAG.search(thought, len("<think>")):
        return Malformed("another tag is inside <think>")
    action = action.strip()
    tag = "answer" if action.startswith("<answer>") else "query"
    found = sections(action, tag, _TAG)
    if not found:
        return Malformed("after </think> write one <query>…</query> or one <answer>…</answer>, and nothing else")
    if len(found) > 1:
        return Malformed(f"write only one <{tag}>…</{tag}>")
    if not found[0]:
        return Malformed(f"the {tag} is empty")
    return Answer(found[0]) if tag == "answer" else Query(found[0])
