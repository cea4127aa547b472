"""Sessions whose program is a function in a thread; the rollout loop answers with a real engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from platform_sdk.gateway.events import CompletionAsked, Ended, SearchAsked
from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from platform_sdk.records import Evidence
from platform_sdk.sampling.awaiting import Await
from platform_sdk.sampling.engine import PromptTooLong, SamplingEngine
from platform_sdk.sampling.rollout import Agent, Gather, Generate, SearchRequest, look_up, run

Program = Callable[[Session], Any]


def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    return [
        [Evidence(kind="passage", id=f"{one.query}{i}", text=f"{one.query} {i}", score=1.0) for i in range(k)]
        for one in requests
    ]


def worker(session: Session) -> Agent[None]:
    """Answer the session's requests until its program ends."""
    while True:
        event = yield Await(session.inbox)
        if isinstance(event, Ended):
            session.put(event)
            return
        if isinstance(event, SearchAsked):
            [found] = yield look_up(search, [SearchRequest(event.query)], event.k)
            session.found(event, tuple(found))
            continue
        assert isinstance(event, CompletionAsked)
        try:
            completion = yield Generate(event.token_ids, event.params, event.thread)
        except PromptTooLong as error:
            session.refuse(event, error)
            continue
        session.completed(event, completion)


def attempt(session: Session, program: Program, results: dict[str, Any], workers: int = 4) -> Agent[Session]:
    def execute() -> None:
        try:
            results[session.name] = program(session)
        except BaseException as error:
            results[session.name] = error
        session.put(Ended("answered"))

    threading.Thread(target=execute, daemon=True).start()
    yield Gather(tuple(worker(session) for _ in range(workers)))
    return session


def play(gateway: Gateway, engine: SamplingEngine, *programs: Program, **options: Any) -> list[tuple[Session, Any]]:
    """Run programs, one session each; return sessions in order with what the programs returned."""
    results: dict[str, Any] = {}
    sessions = [gateway.open(seed=7, name=f"Q{i}#0", **options) for i in range(len(programs))]
    starts = [
        lambda session=session, program=program: attempt(session, program, results)
        for session, program in zip(sessions, programs, strict=True)
    ]
    list(run(starts, engine, live=8))
    for result in results.values():
        if isinstance(result, BaseException):
            raise result
    return [(session, results[session.name]) for session in sessions]
