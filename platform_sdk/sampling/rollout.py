"""The rollout loop: many agents at once against one engine and one retriever.

An agent is a generator. It yields what it needs (text to be generated, a search, an expert's opinion,
other agents to run side by side) and is sent the answer; its return value is the rollout. So an agent
reads like a dialogue from top to bottom, and knows nothing of batching: the loop gathers the needs of
all live agents, hands every generation to the engine as it arises, and what experts and the retriever
are asked together.

    def worker(question):
        [found] = yield Search((SearchRequest(question),), k=5)
        completion = yield Generate(prompt(question, found), params, dialogue=question)
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
from platform_sdk.sampling.engine import PromptTooLong, Request, SamplingEngine, SamplingParams
from platform_sdk.sampling.searches import Searches

T = TypeVar("T")


class RetrieverFault(RuntimeError):
    """The retriever failed (not: found nothing). The rollout that asked is started again."""

    def __init__(self, message: str) -> None:
        super().__init__(without_credentials(message))


@dataclass(frozen=True)
class SearchRequest:
    """One query. ``scope`` says what else a retrieval method must know, e.g. ``head``, the entity to start from."""

    query: str
    scope: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.query, frozenset(self.scope.items())))


@dataclass(frozen=True)
class Generate:
    """Sample a continuation of ``token_ids``, spoken by ``role``; answered with a ``Completion``.

    ``PromptTooLong`` is thrown into the agent where the tokens leave no room for a new one.
    """

    token_ids: Sequence[int]
    params: SamplingParams
    dialogue: str
    role: str = ""


@dataclass(frozen=True)
class Search:
    """Look up ``requests``; answered with one list of at most ``k`` evidence per request."""

    requests: tuple[SearchRequest, ...]
    k: int


@dataclass(frozen=True)
class Consult:
    """Ask ``expert`` about ``item``; answered with what it says. It is asked about the items of all agents together."""

    expert: Callable[[list[Any]], Sequence[Any]]
    item: Any


@dataclass(frozen=True)
class Together:
    """Run agents side by side; answered with the list of their return values, in this order."""

    agents: tuple[Agent[Any], ...]


Agent = Generator[Generate | Search | Consult | Together, Any, T]
SearchFunction = Callable[[Sequence[SearchRequest], int], list[list[Evidence]]]


@dataclass
class _Rollout(Generic[T]):
    """A top-level agent. ``start`` creates it, again after a retriever fault."""

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


Found = list[tuple[_Task, Any]]
"""Tasks with what was found for them, or the fault of the retriever that their rollout met."""


def run(
    agents: Iterable[Callable[[], Agent[T]]],
    engine: SamplingEngine,
    search: SearchFunction,
    *,
    live: int,
    retries: int = 3,
    searches: Searches[Found] | None = None,
) -> Iterator[T]:
    """Run agents and yield their results as they finish.

    Args:
        agents: functions that start an agent (``functools.partial(my_agent, question)``). Read
            lazily: the next is taken when a place is free, so it may depend on earlier results.
        search: ``retriever.search``; called with the requests of all agents that wait.
        live: maximum number of top-level agents at once; a finished one's place is filled at once.
        retries: how often a rollout is started again after a ``RetrieverFault``.
        searches: does searches while others are sampled, as they arise; None: the loop does them itself, those of many
            rollouts together, so that which are asked together repeats from run to run.

    Raises:
        RetrieverFault: a rollout met a retriever fault in each of its ``1 + retries`` attempts.
    """
    if live < 1:
        raise ValueError(f"live must be 1 or more, not {live}")
    return _Loop(iter(agents), engine, search, live, retries, searches).run()


class _Loop(Generic[T]):
    def __init__(
        self,
        source: Iterator[Callable[[], Agent[T]]],
        engine: SamplingEngine,
        search: SearchFunction,
        live: int,
        retries: int,
        searches: Searches[Found] | None,
    ) -> None:
        self.source, self.engine, self.search, self.searches = source, engine, search, searches
        self.live, self.retries = live, retries
        self.open: dict[int, _Rollout[T]] = {}
        self.ready: deque[tuple[_Task, Any]] = deque()
        self.generating: dict[str, _Task] = {}
        self.searching: list[tuple[_Task, Search]] = []
        self.away = 0  # searches that were begun beside the sampling
        self.consulting: list[tuple[_Task, Consult]] = []
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
                if self.searches is not None and (self.searching or self.away):
                    self._search_beside(self.searches)
                    if self.ready:
                        continue
                # A search or a consultation costs much the same for one item as for many: wait until as many
                # agents need one as generate.
                waiting = len(self.searching) + len(self.consulting)
                if waiting and waiting >= len(self.generating):
                    self._search()
                    self._consult()
                elif self.generating:
                    self._generate()
        finally:
            if self.searches is not None:
                self.searches.close()
            for rollout in list(self.open.values()):
                self._discard(rollout)

    def _start(self, rollout: _Rollout[T]) -> None:
        self.open[id(rollout)] = rollout
        task = _Task(rollout.start(), rollout)
        rollout.tasks = [task]
        self.ready.append((task, None))

    def _advance(self, task: _Task, answer: Any) -> None:
        """Send ``answer`` to the agent and note what it asks for next."""
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
        elif isinstance(need, Search):
            self.searching.append((task, need))
        elif isinstance(need, Consult):
            self.consulting.append((task, need))
        elif isinstance(need, Together):
            self._spawn(task, need.agents)
        else:
            raise TypeError(f"an agent yields Generate, Search, Consult or Together, not {type(need).__name__}")

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

    def _search(self) -> None:
        """Answer all waiting searches."""
        waiting, self.searching = self.searching, []
        self._take(self._look_up(waiting))

    def _search_beside(self, searches: Searches[Found]) -> None:
        """Begin the waiting searches, and take what has ended; wait for it where nothing else is to be done."""
        if self.searching:
            waiting, self.searching = self.searching, []
            self.away += 1
            searches.begin(partial(self._look_up, waiting))
        for found in searches.finished(wait=not self.generating and not self.consulting):
            self.away -= 1
            self._take(found)

    def _take(self, found: Found) -> None:
        for task, answer in found:
            if not isinstance(answer, RetrieverFault):
                self.ready.append((task, answer))
            elif not task.cancelled:
                self._again(task.rollout, answer)

    def _look_up(self, waiting: list[tuple[_Task, Search]]) -> Found:
        """Search for all together, and if that fails, rollout by rollout. Changes nothing of the loop."""
        try:
            return self._answer(waiting)
        except RetrieverFault:
            groups: dict[int, list[tuple[_Task, Search]]] = {}
            for task, need in waiting:
                groups.setdefault(id(task.rollout), []).append((task, need))
            found: Found = []
            for group in groups.values():
                try:
                    found += self._answer(group)
                except RetrieverFault as fault:
                    found.append((group[0][0], fault))
            return found

    def _consult(self) -> None:
        """Ask each expert about all that waits for it; what it raises ends the run."""
        waiting, self.consulting = self.consulting, []
        for expert in dict.fromkeys(need.expert for _, need in waiting):
            part = [(task, need.item) for task, need in waiting if need.expert == expert]
            said = expert([item for _, item in part])
            self.ready.extend((task, answer) for (task, _), answer in zip(part, said, strict=True))

    def _answer(self, waiting: list[tuple[_Task, Search]]) -> Found:
        answers: Found = []
        for k in sorted({need.k for _, need in waiting}):
            part = [(task, need) for task, need in waiting if need.k == k]
            requests = [request for _, need in part for request in need.requests]
            found = self.search(requests, k) if requests else []
            if len(found) != len(requests):
                raise RetrieverFault(f"the retriever gave {len(found)} results for {len(requests)} queries")
            results = iter(found)
            answers += [(task, [next(results) for _ in need.requests]) for task, need in part]
        return answers

    def _again(self, rollout: _Rollout[T], fault: RetrieverFault) -> None:
        """Restart a rollout: without the search's result its turns so far are worthless."""
        self._discard(rollout)
        rollout.faults += 1
        if rollout.faults > self.retries:
            raise RetrieverFault(
                f"gave up a rollout after {rollout.faults} retriever faults; the last: {fault}"
            ) from fault
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
        self.searching = [(task, need) for task, need in self.searching if not task.cancelled]
        self.consulting = [(task, need) for task, need in self.consulting if not task.cancelled]
