"""Searches of a session: the reply that led to one, and the prompt that shows its results to the policy."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from platform_sdk.gateway.messages import FunctionCall, Message
from platform_sdk.gateway.threads import SampledCall, Thread
from platform_sdk.records import Evidence


@dataclass(frozen=True)
class Search:
    """A search with its results; ``after``: the call that led to it, None if the program searched first."""

    query: str
    k: int
    evidence: tuple[Evidence, ...]
    after: SampledCall | None


Place = tuple[int, int]
"""Number of a thread, and of a call in it; the number of its calls for the place after the last reply."""


def evidence_shown(
    threads: Sequence[Thread], searches: Sequence[Search], given: Sequence[Evidence] = ()
) -> list[list[list[Evidence]]]:
    """Return the evidence that each call's prompt adds, by thread; the last entry of a thread is after its last reply.

    The results of a search belong to the prompt that contains their texts: the next one of the thread that led to the
    search, else the shortest, which another agent of the program may have sent. Where none contains them, since the
    program wrote them in other words, they belong after the reply that led to the search.

    Args:
        searches: in the order in which evidence is recorded.
        given: passages that the program has from the start; those that no prompt contains were not shown.
    """
    texts = {
        (number, place): "\n".join(message.content for message in _added(thread, place))
        for number, thread in enumerate(threads)
        for place in range(len(thread.calls))
    }
    places = sorted(texts, key=lambda at: (len(threads[at[0]].calls[at[1]].messages), at))
    shown: list[list[list[Evidence]]] = [[[] for _ in range(len(thread.calls) + 1)] for thread in threads]
    for item in given:
        for at in [at for at in places if item.text in texts[at]][:1]:
            shown[at[0]][at[1]].append(item)
    results = {item.text for search in searches for item in search.evidence if item.text}
    showing = {text: [at for at in places if text in texts[at]] for text in results}
    taken: set[tuple[str, Place]] = set()  # two equal searches are shown by two prompts
    for search in searches if threads else ():
        after = _after(threads, search)
        found = Counter(at for item in search.evidence for at in showing.get(item.text, ()))
        if found[after] < len(search.evidence):
            free = [at for at in places if found[at] and (search.query, at) not in taken]
            after = max(free, key=lambda at: (found[at], search.query in texts[at]), default=after)
        taken.add((search.query, after))
        shown[after[0]][after[1]] += search.evidence
    return shown


def _after(threads: Sequence[Thread], search: Search) -> Place:
    """Return the place after the reply that led to a search; the first prompt if none did."""
    for number, thread in enumerate(threads):
        if search.after in thread.calls:
            return number, thread.calls.index(search.after) + 1
    return 0, 0


def _added(thread: Thread, place: int) -> Sequence[Message]:
    """Return the messages that a call adds to the call before it in its thread."""
    earlier = len(thread.calls[place - 1].messages) + 1 if place else 0
    return thread.calls[place].messages[earlier:]


def queries_of(call: FunctionCall) -> list[str]:
    """Return the texts among the arguments of a call of a function, which may be what it searches for."""
    return [value for value in call.values.values() if isinstance(value, str)]


def led_to(query: str, calls: Sequence[SampledCall]) -> SampledCall | None:
    """Return the call whose reply contains a query, or else the call answered last. ``calls``: in order of answers."""
    for call in reversed(calls):
        if query in call.text or any(query in queries_of(each) for each in (call.reply.calls if call.reply else ())):
            return call
    return calls[-1] if calls else None


def place_in_reply(search: Search) -> int:
    """Return the position of a search's query in the reply that led to it, so that parallel searches have an order."""
    call = search.after
    if call is None:
        return sys.maxsize
    # JSON escapes quotes in a query; then find the arguments of the function call that has the query.
    calls = call.reply.calls if call.reply else ()
    parts = (search.query, *(each.arguments for each in calls if search.query in queries_of(each)))
    return next((place for part in parts if (place := call.text.find(part)) >= 0), sys.maxsize)
