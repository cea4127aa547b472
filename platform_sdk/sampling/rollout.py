"""The rollout loop: many agents at once against one engine and one set of tools.

An agent is a generator. It yields a request (``Generate`` text, ``Call`` a tool or another batched function,
``Gather`` the results of several agents, ``Await`` an event) and is sent the answer; its return value is the rollout.
So an agent reads like a dialogue from top to bottom and needs no batching: the loop collects the requests of all live
agents, submits each generation to the engine at once, and calls each function for all waiting agents together.

    def worker(question):
        [found] = yield call_tool(search, ToolCall(tool="search", arguments={"query": question}))
        completion = yield Generate(prompt(question, found.evidence), params, dialogue=question)
        return parse(completion)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from platform_sdk.credentials import without_credentials
from platform_sdk.records import Evidence
from platform_sdk.sampling.awaiting import Arrivals, Await
from platform_sdk.sampling.background import BackgroundCalls
from platform_sdk.sampling.engine import PromptTooLong, Request, SamplingEngine, SamplingParams

T = TypeVar("T")


class ToolFault(RuntimeError):
    """A tool is unavailable (not: has no result). The rollout that called it starts again."""

    def __init__(self, message: str) -> None:
        super().__init__(without_credentials(message))


class RetrieverFault(ToolFault):
    """The retriever is unavailable."""


@dataclass(frozen=True)
class SearchRequest:
    """One query. ``scope`` has what else a retrieval method must know, e.g. ``head``, the entity to start from."""

    query: str
    scope: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.query, frozenset(self.scope.items())))


@dataclass(frozen=True)
class Generate:
    """Sample a continuation of ``token_ids``, spoken by ``role``; answered with a ``Completion``.

    ``PromptTooLong`` is thrown into the agent if the tokens leave no room for a new one.
    """

    token_ids: Sequence[int]
    params: SamplingParams
    dialogue: str
    role: str = ""


Batched = Callable[[list[Any]], Sequence[Any]]
"""Function of several items that returns one result each."""


@dataclass(frozen=True)
class Call:
    """Call ``function`` with ``items``; answered with the list of their results.

    One call of the function answers the items of all agents that wait for it. ``concurrent``: the function may run in a
    thread while the engine samples, as tools do; a function that computes with the engine's model may not.
    """

    function: Batched
    items: tuple[Any, ...]
    concurrent: bool = False


@dataclass(frozen=True)
class Gather:
    """Run agents concurrently; answered with the list of their return values, in this order."""

    agents: tuple[Agent[Any], ...]


Agent = Generator[Generate | Call | Gather | Await, Any, T]
SearchFunction = Callable[[Sequence[SearchRequest], int], list[list[Evidence]]]


def no_search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    """Stand in for the search of agents that search nothing."""
    raise AssertionError("this agent searches nothing")


@dataclass(frozen=True)
class BoundSearch:
    """A search for the best ``k`` pieces of evidence, as a batched function. Equal ones are called together."""

    search: SearchFunction
    k: int

    def __call__(self, requests: Sequence[SearchRequest]) -> list[list[Evidence]]:
        return self.search(requests, self.k)


def look_up(search: SearchFunction, requests: Sequence[SearchRequest], k: int) -> Call:
    """Return the call of a search; its answer is one list of at most ``k`` pieces of evidence for each request."""
    return Call(BoundSearch(search, k), tuple(requests), concurrent=True)


@dataclass
class _Rollout(Generic[T]):
    """A top-level agent. ``start`` creates it, again after a fault of a tool."""

    start: Callable[[], Agent[T]]
    faults: int = 0
    tasks: list[_Task] = field(default_factory=list)


@dataclass(eq=False)
class _Task:
    """One generator of a rollout: the agent itself, or one that it runs together with others."""

    agent: Agent[Any]
    rollout: _Rollout[Any]
    parent: _Task | None = None
    place: int = 0
    request: str | None = None
    dialogues: set[str] = field(default_factory=set)
    cancelled: bool = False
    results: list[Any] = field(default_factory=list)
    open_children: int = 0


Answers = list[tuple[_Task, Any]]
"""Tasks with the answers to their calls, or with the fault of a tool that their rollout called."""


def run(
    agents: Iterable[Callable[[], Agent[T]]],
    engine: SamplingEngine,
    *,
    live: int,
    retries: int = 3,
    background: BackgroundCalls[Answers] | None = None,
) -> Iterator[T]:
    """Run agents and yield their results as they finish.

    Args:
        agents: functions that start an agent (``functools.partial(my_agent, question)``). Read
            lazily: the next is taken when a place is free, so it may depend on earlier results.
        live: maximum number of top-level agents at once; a finished one's place is filled at once.
        retries: how often a rollout is started again after a ``ToolFault``.
        background: makes concurrent calls at once while the engine samples. None: the loop makes them itself, many
            rollouts' together, so that the batches repeat from run to run.

    Raises:
        ToolFault: a rollout met a fault in each of its ``1 + retries`` attempts.
    """
    if live < 1:
        raise ValueError(f"live must be 1 or more, not {live}")
    return _Loop(iter(agents), engine, live, retries, background).run()


class _Loop(Generic[T]):
    def __init__(
        self,
        source: Iterator[Callable[[], Agent[T]]],
        engine: SamplingEngine,
        live: int,
        retries: int,
        background: BackgroundCalls[Answers] | None,
    ) -> None:
        self.source, self.engine, self.background = source, engine, background
        self.live, self.retries = live, retries
        self.open: dict[int, _Rollout[T]] = {}
        self.ready: deque[tuple[_Task, Any]] = deque()
        self.generating: dict[str, _Task] = {}
        self.calling: list[tuple[_Task, Call]] = []
        self.away = 0  # batches of calls in the background
        self.arrivals: Arrivals[_Task] = Arrivals()
        self.done: deque[T] = deque()
        self.requests = 0

    def run(self) -> Iterator[T]:
        exhausted = False
        try:
            while True:
                while not exhausted and len(self.open) < self.live:
                    start = next(self.source, None)
                    if start is None:
                        exhausted = True
                    else:
                        self._start(_Rollout(start))
                while self.ready:
                    self._advance(*self.ready.popleft())
                if self.done:
                    while self.done:
                        yield self.done.popleft()
                    continue
                if not self.open:
                    return
                if self.arrivals.awaited and self._receive():
                    continue
                if self.background is not None and self._call_in_background(self.background):
                    continue
                # A call costs much the same for one item as for many: wait until as many agents call as generate.
                if self.calling and len(self.calling) >= len(self.generating):
                    waiting, self.calling = self.calling, []
                    self._take(_answered(waiting))
                elif self.generating:
                    self._generate()
        finally:
            if self.background is not None:
                self.background.close()
            self.arrivals.close()
            for rollout in list(self.open.values()):
                self._discard(rollout)

    def _start(self, rollout: _Rollout[T]) -> None:
        self.open[id(rollout)] = rollout
        task = _Task(rollout.start(), rollout)
        rollout.tasks = [task]
        self.ready.append((task, None))

    def _advance(self, task: _Task, answer: Any) -> None:
        """Send ``answer`` to the agent and register its next request."""
        if task.cancelled:
            return
        try:
            need = task.agent.throw(answer) if isinstance(answer, PromptTooLong) else task.agent.send(answer)
        except StopIteration as stop:
            self._return(task, stop.value)
            return
        if isinstance(need, Generate):
            self.requests += 1
            request = Request(f"{need.dialogue}@{self.requests}", need.token_ids, need.params, need.dialogue, need.role)
            try:
                self.engine.submit(request)
            except PromptTooLong as error:
                self.ready.append((task, error))
                return
            task.request = request.id
            task.dialogues.add(need.dialogue)
            self.generating[request.id] = task
        elif isinstance(need, Call):
            self.calling.append((task, need))
        elif isinstance(need, Gather):
            self._spawn(task, need.agents)
        elif isinstance(need, Await):
            self.arrivals.add(need.source, task)
        else:
            raise TypeError(f"an agent yields Generate, Call, Gather or Await, not {type(need).__name__}")

    def _spawn(self, parent: _Task, agents: tuple[Agent[Any], ...]) -> None:
        parent.results, parent.open_children = [None] * len(agents), len(agents)
        if not agents:
            self.ready.append((parent, []))
        for place, agent in enumerate(agents):
            child = _Task(agent, parent.rollout, parent, place)
            parent.rollout.tasks.append(child)
            self.ready.append((child, None))

    def _return(self, task: _Task, value: Any) -> None:
        task.rollout.tasks.remove(task)
        for dialogue in task.dialogues:
            self.engine.release(dialogue)
        parent = task.parent
        if parent is None:
            del self.open[id(task.rollout)]
            self.done.append(value)
            return
        parent.results[task.place] = value
        parent.open_children -= 1
        if not parent.open_children:
            self.ready.append((parent, parent.results))

    def _generate(self) -> None:
        for completion in self.engine.step():
            task = self.generating.pop(completion.id, None)
            if task is not None:
                task.request = None
                self.ready.append((task, completion))

    def _receive(self) -> bool:
        """Take events that agents wait for; wait for an event if nothing else can proceed.

        Return True if an agent can go on.
        """
        idle = not self.generating and not self.calling
        self.ready.extend(self.arrivals.take(wait=idle))
        return bool(self.ready)

    def _call_in_background(self, background: BackgroundCalls[Answers]) -> bool:
        """Begin the waiting concurrent calls, and take finished ones; wait for one if nothing else can proceed.

        Return True if an agent can go on.
        """
        waiting = [(task, call) for task, call in self.calling if call.concurrent]
        if waiting:
            self.calling = [(task, call) for task, call in self.calling if not call.concurrent]
            self.away += 1
            background.begin(self.arrivals.announced(partial(_answered, waiting)))
        if self.away:
            # An awaited event may come before the end of a call: then wait only for calls that announced their end.
            idle = not self.generating and not self.calling
            for answers in background.finished(wait=idle and (not self.arrivals.awaited or self.arrivals.ended > 0)):
                self.away -= 1
                self.arrivals.ended -= 1
                self._take(answers)
        return bool(self.ready)

    def _take(self, answers: Answers) -> None:
        for task, answer in answers:
            if not isinstance(answer, ToolFault):
                self.ready.append((task, answer))
            elif not task.cancelled:
                self._again(task.rollout, answer)

    def _again(self, rollout: _Rollout[T], fault: ToolFault) -> None:
        """Restart a rollout: without the tool's result its turns so far are worthless."""
        self._discard(rollout)
        rollout.faults += 1
        if rollout.faults > self.retries:
            raise type(fault)(f"gave up a rollout after {rollout.faults} faults; the last: {fault}") from fault
        self._start(rollout)

    def _discard(self, rollout: _Rollout[T]) -> None:
        self.open.pop(id(rollout), None)
        for task in reversed(rollout.tasks):
            task.cancelled = True
            if task.request is not None:
                self.generating.pop(task.request, None)
                self.engine.cancel(task.request)
            task.agent.close()
        rollout.tasks = []
        self.calling = [(task, call) for task, call in self.calling if not task.cancelled]
        self.arrivals.forget(lambda task: task.cancelled)


def _answered(waiting: list[tuple[_Task, Call]]) -> Answers:
    """Answer calls, all of a function together; after a fault, rollout by rollout. Changes nothing of the loop."""
    answers: Answers = []
    for function in dict.fromkeys(call.function for _, call in waiting):
        part = [(task, call) for task, call in waiting if call.function == function]
        try:
            answers += _results(function, part)
        except ToolFault:
            groups: dict[int, list[tuple[_Task, Call]]] = {}
            for task, call in part:
                groups.setdefault(id(task.rollout), []).append((task, call))
            for group in groups.values():
                try:
                    answers += _results(function, group)
                except ToolFault as fault:
                    answers.append((group[0][0], fault))
    return answers


def _results(function: Batched, part: list[tuple[_Task, Call]]) -> Answers:
    items = [item for _, call in part for item in call.items]
    found = function(items) if items else []
    if len(found) != len(items):
        raise ToolFault(f"{len(found)} results came back for {len(items)} calls")
    results = iter(found)
    return [(task, [next(results) for _ in call.items]) for task, call in part]
