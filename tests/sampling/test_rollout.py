from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from platform_sdk.records import Evidence
from platform_sdk.sampling.engine import PromptTooLong, SamplingParams
from platform_sdk.sampling.rollout import (
    Call,
    Gather,
    Generate,
    RetrieverFault,
    SearchFunction,
    SearchRequest,
    ToolFault,
    look_up,
    run,
)
from platform_sdk.sampling.transformers_engine import TransformersEngine

Tree = tuple[Any, ...]


@pytest.fixture(scope="module")
def engine(tiny: Path) -> TransformersEngine:
    return TransformersEngine(tiny, live=6)


def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    return [
        [Evidence(kind="passage", id=f"{one.query}{i}", text=one.query, score=1.0) for i in range(k)]
        for one in requests
    ]


def agent(name: str, plan: Sequence[Any], search: SearchFunction = search) -> Generator[Any, Any, list[Any]]:
    """Follows a plan: a number generates that many tokens, a word searches it, a list runs children."""
    seen: list[Any] = []
    ids = [3 + len(name) % 90, 4, 5]
    for number, step in enumerate(plan):
        if isinstance(step, int):
            done = yield Generate(tuple(ids), SamplingParams(max_tokens=step, seed=number), name)
            ids += done.token_ids
            seen.append(done.token_ids)
        elif isinstance(step, str):
            [found] = yield look_up(search, [SearchRequest(step)], len(step))
            assert [one.text for one in found] == [step] * len(step)
            seen.append(step)
        else:
            answers = yield Gather(tuple(agent(f"{name}.{i}", child, search) for i, child in enumerate(step)))
            assert [answer[0] for answer in answers] == [f"{name}.{i}" for i in range(len(step))]
            seen.append(answers)
    return [name, seen]


leaf = st.one_of(st.integers(1, 5), st.sampled_from(["a", "bb", "ccc"]))
plans = st.recursive(
    st.lists(leaf, max_size=3), lambda inner: st.lists(st.one_of(leaf, st.lists(inner, max_size=3)), max_size=3)
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(plans, max_size=5), st.integers(1, 4), st.integers(1, 4))
def test_results_depend_on_the_agents_alone(engine: TransformersEngine, many: list[Any], live: int, again: int) -> None:
    def results(live: int) -> list[Any]:
        starts = [partial(agent, f"agent{i}", plan) for i, plan in enumerate(many)]
        return sorted(run(starts, engine, live=live), key=lambda result: result[0])

    first = results(live)
    assert [name for name, _ in first] == [f"agent{i}" for i in range(len(many))]
    assert results(again) == first


def test_agents_are_taken_as_places_become_free(engine: TransformersEngine) -> None:
    started: list[int] = []
    most: list[int] = []

    def starts() -> Generator[Callable[[], Any], None, None]:
        for i in range(7):
            started.append(i)
            yield partial(agent, f"agent{i}", [1 + 3 * (i % 3)])

    finished = 0
    for _ in run(starts(), engine, live=3):
        finished += 1
        most.append(len(started) - finished)
    assert finished == 7
    assert max(most) <= 2
    assert len(started) == 7


def test_searches_of_waiting_agents_go_together(engine: TransformersEngine) -> None:
    sizes: list[tuple[int, int]] = []

    def counting(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        sizes.append((len(requests), k))
        return search(requests, k)

    starts = [partial(agent, f"agent{i}", ["bb", 2], counting) for i in range(4)]
    assert len(list(run(starts, engine, live=4))) == 4
    assert sizes == [(4, 2)]


def test_function_answers_all_waiting_agents_in_one_call(engine: TransformersEngine) -> None:
    asked: list[list[int]] = []

    def squares(items: list[int]) -> list[int]:
        asked.append(items)
        return [item**2 for item in items]

    def curious(number: int) -> Generator[Any, Any, tuple[int, int]]:
        yield Generate((3, 4, 5), SamplingParams(max_tokens=2, seed=number), f"curious{number}")
        return number, *(yield Call(squares, (number,)))

    found = run([partial(curious, number) for number in range(5)], engine, live=5)
    assert sorted(found) == [(0, 0), (1, 1), (2, 4), (3, 9), (4, 16)]
    assert [sorted(items) for items in asked] == [[0, 1, 2, 3, 4]]


def test_a_retriever_fault_starts_only_its_rollout_again(engine: TransformersEngine) -> None:
    faults = Counter[str]()
    asked = Counter[str]()

    def faulty(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        asked.update(one.query for one in requests)
        if any(one.query == "bad" for one in requests) and faults["bad"] < 4:
            faults["bad"] += 1
            raise RetrieverFault("down")
        return search(requests, k)

    plans = [[1, "bad", 2], [1, "good", 2], [[["bb", 3], [40]], 1]]
    expected = sorted(run([partial(agent, f"x{i}", p) for i, p in enumerate(plans)], engine, live=3))
    found = sorted(run([partial(agent, f"x{i}", p, faulty) for i, p in enumerate(plans)], engine, live=3))
    assert found == expected
    assert faults["bad"] == 4
    assert asked["good"] <= 2


def test_a_retriever_that_stays_down_stops_the_run(engine: TransformersEngine) -> None:
    calls = 0

    def down(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        nonlocal calls
        calls += 1
        raise RetrieverFault("connection refused")

    with pytest.raises(RetrieverFault, match="3 faults; the last: connection refused"):
        list(run([partial(agent, "x", [[[20], ["a"]]], down)], engine, live=1, retries=2))
    assert calls == 6, "together and alone, three times"
    assert engine.step() == [], "nothing is left in the engine"
    with pytest.raises(ToolFault, match="0 results came back for 1 calls"):
        list(run([partial(agent, "x", ["a"], lambda requests, k: [])], engine, live=1, retries=0))


def test_leaving_the_loop_leaves_the_engine_empty(engine: TransformersEngine) -> None:
    closed: list[str] = []

    def careful(name: str) -> Generator[Any, Any, str]:
        try:
            yield from agent(name, [1 if name == "x0" else 50])
        finally:
            closed.append(name)
        return name

    results = run([partial(careful, f"x{i}") for i in range(3)], engine, live=3)
    assert next(results) == "x0"
    results.close()
    assert sorted(closed) == ["x0", "x1", "x2"]
    assert engine.step() == []


def test_overlong_prompt_raises_in_the_agent(engine: TransformersEngine) -> None:
    def talker() -> Generator[Any, Any, str]:
        ids = [5] * 630
        turns = 0
        while True:
            try:
                done = yield Generate(tuple(ids), SamplingParams(max_tokens=50, seed=turns), "talk")
            except PromptTooLong:
                return f"out of context after {turns}"
            ids += [*done.token_ids, 7]
            turns += 1

    [result] = run([talker], engine, live=1)
    assert result.startswith("out of context after")


def test_yield_of_an_unknown_request_is_an_error(engine: TransformersEngine) -> None:
    def wrong() -> Generator[Any, Any, None]:
        yield "text"

    with pytest.raises(TypeError, match="not str"):
        list(run([wrong], engine, live=1))
    with pytest.raises(ValueError, match="live"):
        run([], engine, live=0)
