"""Calls in the background, on a clock that is moved by hand: no place of the engine stays empty for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from platform_sdk.records import Evidence
from platform_sdk.sampling.background import ThreadedCalls
from platform_sdk.sampling.engine import Completion, Request, SamplingParams
from platform_sdk.sampling.rollout import (
    Agent,
    Answers,
    Generate,
    RetrieverFault,
    SearchFunction,
    SearchRequest,
    look_up,
    run,
)

SLOTS, SEARCH = 2, 1.0


class Clock:
    """An engine of two places, where a completion takes a second, and a retriever that takes another."""

    def __init__(self) -> None:
        self.now, self.completions = 0.0, 0
        self.queue: list[Request] = []
        self.searches: list[tuple[float, Callable[[], Answers]]] = []

    def submit(self, request: Request) -> None:
        self.queue.append(request)

    def step(self) -> list[Completion]:
        self.now += 1.0
        done, self.queue = self.queue[:SLOTS], self.queue[SLOTS:]
        self.completions += len(done)
        return [Completion(request.id, (1,), (0.0,), "stop") for request in done]

    def cancel(self, request_id: str) -> None:
        self.queue = [request for request in self.queue if request.id != request_id]

    def release(self, dialogue: str) -> None: ...

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        self.now += SEARCH
        return self.answer(requests, k)

    def answer(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        return [[Evidence(kind="passage", id=one.query, text=one.query, score=1.0)] for one in requests]

    def begin(self, work: Callable[[], Answers]) -> None:
        self.searches.append((self.now + SEARCH, work))

    def finished(self, wait: bool) -> list[Answers]:
        if wait:
            self.now = max(self.now, min(end for end, _ in self.searches))
        due = [work for end, work in self.searches if end <= self.now]
        self.searches = [(end, work) for end, work in self.searches if end > self.now]
        return [work() for work in due]

    def close(self) -> None: ...


def dialogue(search: SearchFunction, number: int, turns: int) -> Agent[list[Any]]:
    """Speak, and between that search."""
    seen: list[Any] = [number]
    for turn in range(turns):
        done = yield Generate((number, turn), SamplingParams(), str(number))
        seen.append(done.token_ids)
        if turn < turns - 1:
            [found] = yield look_up(search, [SearchRequest(f"{number}.{turn}")], 1)
            seen.append(found[0].text)
    return seen


def test_searches_overlap_completions_with_more_rollouts_than_slots() -> None:
    """Four dialogues of two completions: two seconds of work for each place, twice. Waiting, each pair takes three."""
    waiting, beside = Clock(), Clock()
    starts = [partial(dialogue, waiting.search, number, 2) for number in range(4)]
    one = sorted(run(starts, waiting, live=SLOTS))  # type: ignore[arg-type]
    starts = [partial(dialogue, beside.answer, number, 2) for number in range(4)]
    other = sorted(run(starts, beside, live=2 * SLOTS, background=beside))  # type: ignore[arg-type]
    assert one == other == [[n, (1,), f"{n}.0", (1,)] for n in range(4)]
    assert (waiting.now, beside.now) == (6.0, 4.0)
    assert waiting.completions == beside.completions == 8


def test_slot_without_spare_rollouts_waits_only_for_its_own_search() -> None:
    clock = Clock()
    starts = [partial(dialogue, clock.answer, number, turns) for number, turns in ((0, 3), (1, 1), (2, 1), (3, 1))]
    found = list(run(starts, clock, live=SLOTS, background=clock))  # type: ignore[arg-type]
    assert len(found) == 4
    assert clock.now == 5.0  # three completions and two searches of the first; the others beside it


def test_a_fault_starts_its_rollout_again_and_no_other() -> None:
    faults = Counter({"1.0": 2})

    def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        for one in requests:
            if faults[one.query]:
                faults[one.query] -= 1
                raise RetrieverFault("away")
        return Clock().answer(requests, k)

    clock = Clock()
    starts = [partial(dialogue, search, number, 2) for number in range(3)]
    found = sorted(run(starts, clock, live=3, background=clock))  # type: ignore[arg-type]
    assert found == [[n, (1,), f"{n}.0", (1,)] for n in range(3)]
    # Both faults of 1.0 are met in one search: together with others, and when it is asked alone.
    assert clock.completions == 3 + 1 + 3
    faults["1.0"] = 99
    with pytest.raises(RetrieverFault, match="gave up a rollout after 4 faults"):
        list(run(starts, clock, live=3, background=clock))  # type: ignore[arg-type]


def test_threads_call_in_the_background() -> None:
    clock = Clock()
    starts = [partial(dialogue, clock.answer, number, 3) for number in range(6)]
    found = sorted(run(starts, clock, live=4, background=ThreadedCalls(2)))  # type: ignore[arg-type]
    assert found == sorted(run(starts, Clock(), live=1))  # type: ignore[arg-type]
