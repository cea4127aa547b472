"""Loop of a planner that asks sub-questions and workers that read, for every method with these two roles.

The planner thinks and then answers or sends out the sub-questions that can be solved now; workers answer them side by
side, so the plan unrolls into a directed acyclic graph (Mujica-MyGO, section 2.2). The planner's dialogue holds
questions and one-sentence reports only, never raw evidence. A method's ``Language`` has its prompts and grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from platform_sdk.agents import planner_messages as messages
from platform_sdk.agents.planner_messages import Medium
from platform_sdk.agents.speaker import PolicyAgent, Speaker
from platform_sdk.errors import UserError
from platform_sdk.records import Evidence, Outcome, Question, Rollout, Trajectory
from platform_sdk.sampling.dialogue import Dialogue
from platform_sdk.sampling.rollout import Agent, Gather, SearchFunction, SearchRequest, look_up

CUT_OFF = "the turn is longer than allowed"


@dataclass(frozen=True)
class SubQuestion:
    """A question for a worker; ``candidate`` is the entity to visit where a knowledge graph is searched."""

    text: str
    candidate: int | None = None


@dataclass(frozen=True)
class Ask:
    """The planner sends out sub-questions that do not depend on each other."""

    sub_questions: tuple[SubQuestion, ...]


@dataclass(frozen=True)
class Answer:
    """The planner ends with an answer."""

    text: str


@dataclass(frozen=True)
class Reading:
    """A worker's reading: the indices it chose (none: nothing helped) and its one sentence."""

    selected: tuple[int, ...]
    sentence: str


@dataclass(frozen=True)
class Malformed:
    """A turn outside the grammar, and why."""

    reason: str


_TURN = re.compile(r"\s*<think>(?P<think>.*?)</think>(?P<rest>.*)", re.DOTALL)


def parse_turn(text: str, tags: re.Pattern[str]) -> tuple[str, str] | Malformed:
    """Return a turn's thoughts and the rest; it is malformed if the thoughts hold a tag, which ``tags`` matches."""
    turn = _TURN.fullmatch(text)
    if turn is None:
        return Malformed("begin with <think>…</think>")
    if tags.search(turn["think"]):
        return Malformed("another tag stands inside <think>")
    rest = turn["rest"].strip()
    return (turn["think"].strip(), rest) if rest else Malformed("an action must follow </think>")


class Language(Protocol):
    """A method's prompts and grammar for its planner and workers."""

    def planner(self, speaker: Speaker, question: Question, candidates: Sequence[str], role: str) -> Dialogue:
        """Open the dialogue of the planner, or of the one agent that plans and reads."""

    def worker(self, speaker: Speaker, sub_question: str, evidence: Sequence[Evidence]) -> Dialogue:
        """Open a worker's dialogue, which shows the evidence."""

    def read_planner(self, text: str, candidates: int) -> Ask | Answer | Malformed:
        """Parse a planner's turn, given the number of known candidate entities."""

    def read_worker(self, text: str, materials: int) -> Reading | Malformed:
        """Parse a worker's turn, given the number of pieces of evidence that it was shown."""

    @property
    def medium(self) -> Medium:
        """Texts or a graph, in which a search starts from an entity."""

    @property
    def unreadable(self) -> str:
        """Report in place of a worker's malformed turn."""

    @property
    def too_long(self) -> str:
        """Report of a worker that was shown more than its context holds."""


@dataclass(frozen=True)
class Limits:
    """``split``: planner and workers; else one agent plans and reads."""

    iterations: int
    planner_tokens: int
    worker_tokens: int
    top_k: int
    split: bool = True


class Entity(NamedTuple):
    """An entity of a graph. ``key`` is its id, which distinguishes namesakes, or its name if it has no id."""

    key: str
    name: str


@dataclass(frozen=True)
class Report:
    """A worker's trajectory, its sentence, and the entities that it found (in a graph)."""

    trajectory: Trajectory
    sentence: str
    found: tuple[Entity, ...] = ()


@dataclass(frozen=True)
class PlannerWorker(PolicyAgent):
    """The planner with its workers, or one agent that plans and reads."""

    language: Language
    limits: Limits
    search: SearchFunction
    score: Callable[[Rollout], Mapping[str, float]]

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        """One attempt at a question; returns the scored rollout.

        Raises:
            UserError: the search in a knowledge graph has no entity to start with.
        """
        speaker = self.speaker(question, attempt, self.limits.planner_tokens)
        medium = self.language.medium
        candidates = topics(question) if medium == "kg" else []
        names = [entity.name for entity in candidates]
        role = "planner" if self.limits.split else "agent"
        planner = self.language.planner(speaker, question, names, role)
        workers: list[Trajectory] = []
        answer: str | None = None
        outcome: Outcome = "iteration_limit"
        for iteration in range(self.limits.iterations):
            reply = yield from speaker.reply(planner, iteration, role=role, thread="")
            if reply is None:
                outcome = "context_limit"
                break
            action = Malformed(CUT_OFF) if reply.cut else self.language.read_planner(reply.text, len(candidates))
            if isinstance(action, Malformed):
                planner.note_malformed(action.reason)
                planner.tell(messages.error_observation(action.reason))
                continue
            if isinstance(action, Answer):
                answer, outcome = action.text, "answered"
                break
            queries = [sub.text for sub in action.sub_questions]
            requests = [_request(sub, candidates, question) for sub in action.sub_questions]
            evidence: list[Evidence] = []
            if self.limits.split:
                calls = [f"{iteration}.{n}" for n in range(len(queries))]
                planner.note_asked(queries, calls)
                reports: list[Report] = yield Gather(
                    tuple(map(self._worker, [speaker] * len(calls), calls, queries, requests))
                )
                workers += [report.trajectory for report in reports]
                seen = [report.sentence for report in reports]
                found = [entity for report in reports for entity in report.found]
            else:
                planner.note_asked(queries)
                lists: list[list[Evidence]] = yield look_up(self.search, requests, self.limits.top_k)
                evidence = [item for items in lists for item in items]
                seen = [messages.materials(evidence, medium)]
                found = [leads_to(item) for item in evidence] if medium == "kg" else []
            new = new_entities(found, candidates)
            planner.tell(messages.observation(seen, [entity.name for entity in new], len(candidates)), evidence)
            candidates += new
        main = planner.trajectory(role, role, answer=answer)
        rollout = self.recorded(question, attempt, speaker.seed, main, workers, outcome)
        return rollout.model_copy(update={"rewards": dict(self.score(rollout))})

    def _worker(self, speaker: Speaker, id: str, sub_question: str, request: SearchRequest) -> Agent[Report]:
        """A mini-RAG: retrieve, choose by index, answer in one sentence."""
        [evidence] = yield look_up(self.search, [request], self.limits.top_k)
        speaker = replace(speaker, max_tokens=self.limits.worker_tokens)
        worker = self.language.worker(speaker, sub_question, evidence)
        reply = yield from speaker.reply(worker, id, role="worker")
        if reply is None:
            return Report(worker.trajectory(id, "worker"), self.language.too_long)
        reading = Malformed(CUT_OFF) if reply.cut else self.language.read_worker(reply.text, len(evidence))
        if isinstance(reading, Malformed):
            worker.note_malformed(reading.reason)
            return Report(worker.trajectory(id, "worker"), self.language.unreadable)
        trajectory = worker.trajectory(id, "worker", selected=reading.selected, answer=reading.sentence)
        found = tuple(leads_to(evidence[i]) for i in reading.selected) if self.language.medium == "kg" else ()
        return Report(trajectory, reading.sentence, found)


def new_entities(found: Sequence[Entity], candidates: Sequence[Entity]) -> list[Entity]:
    """Return each found entity that is no candidate, in the order and by the name in which it was first found."""
    first: dict[str, Entity] = {}
    for entity in found:
        first.setdefault(entity.key, entity)
    known = {entity.key for entity in candidates}
    return [entity for entity in first.values() if entity.key not in known]


def topics(question: Question) -> list[Entity]:
    """Return the entities that a question about a graph begins with.

    Raises:
        UserError: the question has none, so a search has no start.
    """
    if not question.topic_entities:
        raise UserError(
            f"question {question.id} has no topic_entities, with which a search in a knowledge graph starts: give "
            "them in the file of questions (for qald10: dataset.labels), or choose an environment of passages"
        )
    ids = question.topic_ids or [""] * len(question.topic_entities)
    return [Entity(id or name, name) for id, name in zip(ids, question.topic_entities, strict=True)]


def leads_to(triple: Evidence) -> Entity:
    """Return the entity that a triple leads to; graph evidence carries its name as its title."""
    return Entity(triple.entities[-1] if triple.entities else triple.title, triple.title)


def _request(sub: SubQuestion, candidates: Sequence[Entity], question: Question) -> SearchRequest:
    scope = {"question_id": question.id}
    if sub.candidate is not None:
        key, name = candidates[sub.candidate]
        scope |= {"head": key} if key == name else {"head": key, "head_name": name}
    return SearchRequest(sub.text, scope)
