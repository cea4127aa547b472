from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.sampling.awaiting import Await, Inbox
from platform_sdk.sampling.background import ThreadedCalls
from platform_sdk.sampling.engine import Completion, Request, SamplingParams
from platform_sdk.sampling.openai_engine import OpenAIEngine
from platform_sdk.sampling.rollout import Agent, Call, Gather, Generate, ToolFault, run
from platform_sdk.sampling.transformers_engine import TransformersEngine

END = object()


@pytest.fixture(scope="module")
def engine(tiny: Path) -> TransformersEngine:
    return TransformersEngine(tiny, live=4)


def slow(items: Sequence[Any]) -> list[Any]:
    time.sleep(0.02)
    return list(items)


def served(inbox: Inbox, replies: Inbox) -> Agent[list[Any]]:
    """Answer each prompt that a thread sends, until the thread ends."""
    seen = []
    while (event := (yield Await(inbox))) is not END:
        [seed] = yield Call(slow, (event,), concurrent=True)
        done = yield Generate((3, 4, 5 + seed), SamplingParams(max_tokens=4, seed=seed), "served")
        seen.append(done.token_ids)
        replies.put(done.token_ids)
    return seen


def program(inbox: Inbox, replies: Inbox, calls: int) -> None:
    for seed in range(calls):
        inbox.put(seed)
        while replies.take() is None:
            time.sleep(0.001)
    inbox.put(END)


@pytest.mark.parametrize("background", [False, True])
def test_threads_get_the_same_replies_in_any_order_of_arrival(engine: TransformersEngine, background: bool) -> None:
    def results(live: int) -> list[list[Any]]:
        pairs = [(Inbox(), Inbox()) for _ in range(5)]
        threads = [threading.Thread(target=program, args=(*pair, 3), daemon=True) for pair in pairs]
        for thread in threads:
            thread.start()
        calls = ThreadedCalls(2) if background else None
        return list(run([partial(served, *pair) for pair in pairs], engine, live=live, background=calls))

    first = results(5)
    assert len(first) == 5
    assert all(one == first[0] and len(one) == 3 for one in first)
    assert results(2) == first


def test_several_agents_that_await_one_source_share_its_events(engine: TransformersEngine) -> None:
    inbox = Inbox()

    def worker() -> Agent[list[Any]]:
        seen = []
        while (event := (yield Await(inbox))) is not END:
            yield Generate((3, event), SamplingParams(max_tokens=2), "worker")
            seen.append(event)
        inbox.put(END)
        return seen

    def agent() -> Agent[list[list[Any]]]:
        shared: list[list[Any]] = yield Gather(tuple(worker() for _ in range(3)))
        return shared

    for event in [4, 5, 6, 7, END]:
        inbox.put(event)
    [shares] = run([agent], engine, live=1)
    assert sorted(event for share in shares for event in share) == [4, 5, 6, 7]
    assert [len(share) for share in shares if share] == [2, 1, 1]


def test_loop_blocks_without_computing_while_nothing_can_proceed(engine: TransformersEngine) -> None:
    inbox = Inbox()

    def agent() -> Agent[Any]:
        return (yield Await(inbox))

    threading.Timer(0.4, inbox.put, ["late"]).start()
    before, began = time.thread_time(), time.monotonic()
    assert list(run([agent], engine, live=1)) == ["late"]
    assert time.monotonic() - began > 0.3
    assert time.thread_time() - before < 0.1


def test_waiters_of_a_restarted_rollout_are_forgotten(engine: TransformersEngine) -> None:
    inbox, starts = Inbox(), []

    def fail(items: Sequence[Any]) -> list[Any]:
        if len(starts) == 1:
            raise ToolFault("the tool is away")
        return list(items)

    def waiter() -> Agent[Any]:
        return (yield Await(inbox))

    def caller() -> Agent[Any]:
        [found] = yield Call(fail, ("found",))
        inbox.put("event")
        return found

    def agent() -> Agent[Any]:
        starts.append(1)
        return (yield Gather((waiter(), caller())))

    assert list(run([agent], engine, live=1)) == [["event", "found"]]
    assert len(starts) == 2


def test_request_to_a_server_is_not_held_by_a_long_completion() -> None:
    release, inbox = threading.Event(), Inbox()

    def complete(request: Request) -> Completion:
        if request.dialogue == "long":
            release.wait(60)
        return Completion(request.id, (1,), (0.0,), "stop")

    def long() -> Agent[str]:
        yield Generate((1,), SamplingParams(), "long")
        return "long"

    def short() -> Agent[str]:
        yield Await(inbox)
        yield Generate((1,), SamplingParams(), "short")
        release.set()
        return "short"

    server = object.__new__(OpenAIEngine)  # its requests alone, without a server
    server._pool, server._futures, server.max_model_len = ThreadPoolExecutor(2), {}, 99
    server._complete = complete  # type: ignore[method-assign]
    threading.Timer(0.2, lambda: inbox.put("asked")).start()
    assert next(iter(run([long, short], server, live=2))) == "short"
