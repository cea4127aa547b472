"""Joining concurrent searches: by a search function that says how it was called."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from platform_sdk.records import Evidence
from platform_sdk.retrieval.service.batching import Batcher, BatcherClosed, QueueFull
from platform_sdk.sampling.rollout import RetrieverFault, SearchFunction, SearchRequest


class Recorder:
    """Answers a query with its own text; waits while ``gate`` is closed, and notes every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fault: Exception | None = None

    def __call__(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        self.gate.wait(10)
        self.calls.append((len(requests), k))
        if self.fault is not None:
            raise self.fault
        return [[Evidence(kind="passage", id=r.query, text=r.query, score=float(k))] for r in requests]


def with_batcher(
    recorder: Recorder,
    work: Callable[[Batcher], Awaitable[Any]],
    search: SearchFunction | None = None,
    **limits: int,
) -> Any:
    async def main() -> Any:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(search or recorder, executor, **({"queue": 100, "batch": 10} | limits))
            running = asyncio.create_task(batcher.run())
            try:
                return await work(batcher)
            finally:
                recorder.gate.set()
                batcher.close()
                await running

    # In a thread of its own: the browser of other tests leaves an event loop running in the main one.
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(lambda: asyncio.run(main())).result()


def requests(*names: str) -> list[SearchRequest]:
    return [SearchRequest(name) for name in names]


async def settled() -> None:
    """Let everything that can go on go on."""
    for _ in range(20):
        await asyncio.sleep(0.002)


def test_waiting_requests_are_batched_and_answered_individually() -> None:
    recorder = Recorder()

    async def work(batcher: Batcher) -> list[list[list[Evidence]]]:
        recorder.gate.clear()
        first = asyncio.create_task(batcher.search(requests("first"), 3, 10))
        await settled()
        others = [asyncio.create_task(batcher.search(requests(f"a{i}", f"b{i}"), 3, 10)) for i in range(3)]
        odd = asyncio.create_task(batcher.search(requests("odd"), 4, 10))
        others += [asyncio.create_task(batcher.search(requests(f"a{i}", f"b{i}"), 3, 10)) for i in range(3, 7)]
        await settled()
        recorder.gate.set()
        return [await task for task in (first, *others, odd)]

    answers = with_batcher(recorder, work)
    # One call at rest; then five pairs fill a batch of ten; another k between them is a call of its own, in its turn.
    assert recorder.calls == [(1, 3), (10, 3), (1, 4), (4, 3)]
    texts = [[found[0].text for found in answer] for answer in answers]
    assert texts == [["first"], *([f"a{i}", f"b{i}"] for i in range(7)), ["odd"]]


def test_the_queue_is_bounded_and_recovers() -> None:
    recorder = Recorder()

    async def work(batcher: Batcher) -> None:
        recorder.gate.clear()
        tasks = [asyncio.create_task(batcher.search(requests("x"), 1, 10))]
        await settled()  # it is being answered, so it waits no longer
        tasks += [asyncio.create_task(batcher.search(requests("y", "z"), 1, 10)) for _ in range(2)]
        await settled()
        assert batcher.queries == 4
        with pytest.raises(QueueFull) as full:
            await batcher.search(requests("one more"), 1, 10)
        assert full.value.retry_after >= 1
        recorder.gate.set()
        await asyncio.gather(*tasks)
        assert (await batcher.search(requests("now"), 1, 10))[0][0].text == "now"

    with_batcher(recorder, work, queue=4)


def test_late_answer_times_out_and_abandoned_queries_are_not_searched() -> None:
    recorder = Recorder()

    async def work(batcher: Batcher) -> None:
        recorder.gate.clear()
        slow = asyncio.create_task(batcher.search(requests("slow"), 1, 0.05))
        await settled()
        with pytest.raises(TimeoutError):
            await batcher.search(requests("given up"), 1, 0.01)
        with pytest.raises(TimeoutError):
            await slow
        recorder.gate.set()
        assert (await batcher.search(requests("next"), 1, 10))[0][0].text == "next"

    with_batcher(recorder, work)
    assert recorder.calls == [(1, 1), (1, 1)]  # "slow" was under way; "given up" never was


def test_a_fault_reaches_all_of_its_callers_and_no_others() -> None:
    recorder = Recorder()

    async def work(batcher: Batcher) -> None:
        recorder.fault = RetrieverFault("Milvus is unavailable")
        failed = await asyncio.gather(
            *(batcher.search(requests(str(i)), 1, 10) for i in range(3)), return_exceptions=True
        )
        assert all(isinstance(error, RetrieverFault) for error in failed)
        recorder.fault = None
        assert (await batcher.search(requests("back"), 1, 10))[0][0].text == "back"

    with_batcher(recorder, work)


def test_failing_request_does_not_affect_others_in_its_batch() -> None:
    recorder = Recorder()
    answer = recorder.__call__

    def search(asked: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        if any(request.query == "poison" for request in asked):
            recorder.gate.wait(10)
            raise ValueError("poison")
        return answer(asked, k)

    async def work(batcher: Batcher) -> None:
        recorder.gate.clear()
        first = asyncio.create_task(batcher.search(requests("first"), 1, 10))
        await settled()
        tasks = [asyncio.create_task(batcher.search(requests(name), 1, 10)) for name in ("a", "poison", "b")]
        await settled()
        recorder.gate.set()
        await first
        found, fault, other = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(fault, ValueError)
        assert [[[one.text for one in each] for each in answers] for answers in (found, other)] == [[["a"]], [["b"]]]

    with_batcher(recorder, work, search=search)


def test_closed_batcher_answers_waiting_requests_and_refuses_new_ones() -> None:
    recorder = Recorder()

    async def work(batcher: Batcher) -> None:
        recorder.gate.clear()
        tasks = [asyncio.create_task(batcher.search(requests(str(i)), 1, 10)) for i in range(4)]
        await settled()
        batcher.close()
        with pytest.raises(BatcherClosed):
            await batcher.search(requests("late"), 1, 10)
        recorder.gate.set()
        began = time.monotonic()
        assert [(await task)[0][0].text for task in tasks] == ["0", "1", "2", "3"]
        assert time.monotonic() - began < 5

    with_batcher(recorder, work)
