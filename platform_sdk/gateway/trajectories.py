"""Trajectories of a session's threads: token ids, mask, log-probabilities, turns, calls of functions and searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from platform_sdk.gateway.attribution import Search, queries_of
from platform_sdk.gateway.messages import FunctionCall, Message
from platform_sdk.gateway.threads import SampledCall, Thread
from platform_sdk.records import SEARCH, Evidence, RecordedCall, Trajectory, Turn


@dataclass
class _Written:
    """Trajectory in the making."""

    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def environment(self, text: str, end: int, evidence: Sequence[Evidence]) -> None:
        start = len(self.mask)
        self.mask += [0] * (end - start)
        self.logprobs += [0.0] * (end - start)
        self.turns.append(Turn(speaker="environment", text=text, start=start, end=end, evidence=tuple(evidence)))

    def agent(self, call: SampledCall, calls: Sequence[RecordedCall]) -> None:
        assert call.completion is not None
        start = len(self.mask)
        self.mask += [1] * len(call.completion.token_ids)
        self.logprobs += call.completion.logprobs
        self.turns.append(
            Turn(speaker="agent", text=call.text, start=start, end=len(self.mask), tool_calls=tuple(calls))
        )


def trajectory(
    thread: Thread, id: str, role: str, searches: Sequence[Search], shown: Sequence[Sequence[Evidence]], *, first: bool
) -> Trajectory:
    """Return a thread as a trajectory; ``first`` gets the searches that led to no call's reply.

    ``shown`` is the evidence that each call's prompt adds, and the evidence after the last reply. A branch repeats the
    tokens of the reply that it continues; the policy is trained on them in the other thread only.
    """
    written = _Written()
    opening = [search for search in searches if search.after is None] if first else []
    position = 0
    for place, call in enumerate(thread.calls):
        said = call.messages[position:]
        texts = [message.content for message in said if message.role != "system"]
        written.environment("\n\n".join(texts), len(call.token_ids), shown[place])
        if place == 0 and opening:
            asked = tuple(_search(search) for search in opening)
            written.turns[-1] = written.turns[-1].model_copy(update={"tool_calls": asked})
        own = [search for search in searches if search.after is call]
        following = thread.calls[place + 1].messages[len(call.messages) + 1 :] if place + 1 < len(thread.calls) else ()
        written.agent(call, _calls(call, own, following))
        position = len(call.messages) + 1
    if shown[-1]:
        written.environment("", len(written.mask), shown[-1])
    last = thread.calls[-1]
    assert last.completion is not None
    return Trajectory(
        id=id, role=role, token_ids=(*last.token_ids, *last.completion.token_ids), agent_mask=tuple(written.mask),
        logprobs=tuple(written.logprobs), turns=tuple(written.turns),
    )  # fmt: skip


def _search(search: Search) -> RecordedCall:
    ids = tuple(item.id for item in search.evidence)
    return RecordedCall(tool=SEARCH, arguments={"query": search.query}, evidence=ids)


def _calls(call: SampledCall, searches: Sequence[Search], following: Sequence[Message]) -> list[RecordedCall]:
    """Return the calls of a reply with their results, and the searches; a search by a call is recorded once."""
    assert call.reply is not None
    results = {message.call_id: message.content for message in following if message.call_id}
    recorded, left = [], list(searches)
    for each in call.reply.calls:
        own = next((search for search in left if search.query in queries_of(each)), None)
        if own is None:
            recorded.append(_recorded(each, results.get(each.id, "")))
        else:
            left.remove(own)
            recorded.append(_search(own))
    return recorded + [_search(search) for search in left]


def _recorded(call: FunctionCall, text: str) -> RecordedCall:
    arguments = call.values
    if call.name == SEARCH and not isinstance(arguments.get("query"), str):
        arguments = arguments | {"query": call.arguments}  # records require a query of this tool
    return RecordedCall(tool=call.name, arguments=arguments, text=text)
