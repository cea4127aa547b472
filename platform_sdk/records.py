"""The shared vocabulary of hopforge as typed records.

Every package exchanges these records: loaders make questions, passages and triples;
retrieval returns evidence; agents leave rollouts of trajectories; scoring adds named rewards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)


class Record(BaseModel):
    """Base of all records: immutable, and no field but the declared ones. ``SCHEMA`` is the version of its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    KIND: ClassVar[str]
    SCHEMA: ClassVar[int] = 1


class Passage(Record):
    """A text unit of a corpus. ``id`` is unique in its corpus."""

    KIND: ClassVar[str] = "passage"
    id: str
    title: str
    text: str


class Triple(Record):
    """One fact of a knowledge graph. Ids are empty where the source gives none."""

    KIND: ClassVar[str] = "triple"
    head: str
    relation: str
    tail: str
    head_id: str = ""
    tail_id: str = ""

    @property
    def text(self) -> str:
        return f"{self.head}, {self.relation}, {self.tail}"


class Hop(BaseModel):
    """A step of a question's decomposition: its own question, in which ``#1`` is the first step's answer.

    ``passage`` is the id of the passage in the context that answers it; empty where the dataset names none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    question: str
    answer: str
    passage: str = ""


class Question(Record):
    """A question with everything that is known about it.

    ``answers`` are the accepted answers (the first is the canonical one). ``gold_passages`` name the
    passages a correct answer rests on; ``supporting_facts`` are ``(title, sentence index)`` pairs;
    ``topic_entities`` are the gold entry points of the knowledge-graph environments, ``topic_ids`` their Wikidata ids
    in the same order (none where the dataset gives none); ``context`` holds the question's own passages where the
    dataset gives them, gold ones among distractors.
    ``gold_passages`` are titles; ``gold_context`` are ids in the context, for datasets whose titles repeat there.
    ``decomposition`` are the dataset's own sub-questions.
    """

    KIND: ClassVar[str] = "question"
    id: str
    text: str
    answers: tuple[str, ...] = Field(min_length=1)
    dataset: str
    type: str = ""
    hops: int | None = None
    gold_passages: tuple[str, ...] = ()
    supporting_facts: tuple[tuple[str, int], ...] = ()
    gold_triples: tuple[Triple, ...] = ()
    topic_entities: tuple[str, ...] = ()
    context: tuple[Passage, ...] = ()
    # Left out where it is empty, so that the records of all other datasets keep their digests.
    gold_context: tuple[str, ...] = Field(default=(), exclude_if=lambda ids: not ids)
    decomposition: tuple[Hop, ...] = Field(default=(), exclude_if=lambda hops: not hops)
    topic_ids: tuple[str, ...] = Field(default=(), exclude_if=lambda ids: not ids)

    @property
    def gold_positions(self) -> tuple[int, ...]:
        """Zero-based positions of gold passages in ``context``; absent ones are omitted."""
        if self.gold_context:
            return tuple(i for i, passage in enumerate(self.context) if passage.id in self.gold_context)
        return tuple(i for i, passage in enumerate(self.context) if passage.title in self.gold_passages)


def _is_empty(value: Any) -> bool:
    return not value


class Source(BaseModel):
    """The passage that a piece of evidence was taken from: its id, and the characters ``[start, end)`` of its text."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    passage: str
    start: int | None = None
    end: int | None = None


class Evidence(Record):
    """Piece of evidence that a retrieval returned or a question gave: a passage, triple or hyperedge with its score and
    id.

    ``title`` is a passage's title, also that of the passage of a hyperedge; of a triple it is the tail, the entity that
    the triple leads to. ``parts`` are what the score is made of, by name, where several entities have such parts by
    entity; ``entities`` are those that it joins (of a triple its head and its tail), by their ids where there are any:
    ``entity_names`` are their names then. ``query_entities`` are those of the query that the search started from: None
    where the method links no entities, empty where the query has none.
    """

    KIND: ClassVar[str] = "evidence"
    kind: Literal["passage", "triple", "hyperedge"]
    id: str
    title: str = ""
    text: str
    score: float
    # Left out of files and answers where they are empty: most methods have no such thing.
    parts: dict[str, float | dict[str, dict[str, float]]] = Field(default_factory=dict, exclude_if=_is_empty)
    entities: tuple[str, ...] = Field(default=(), exclude_if=_is_empty)
    entity_names: tuple[str, ...] = Field(default=(), exclude_if=_is_empty)
    source: Source | None = Field(default=None, exclude_if=_is_empty)
    query_entities: tuple[str, ...] | None = Field(default=None, exclude_if=lambda entities: entities is None)


def given_evidence(passages: Iterable[Passage]) -> tuple[Evidence, ...]:
    """Return passages that were given with a question, not found: they have no score."""
    return tuple(Evidence(kind="passage", id=p.id, title=p.title, text=p.text, score=0.0) for p in passages)


SEARCH = "search"
"""Name of the tool that searches the run's corpus; its argument ``query`` is the text searched for."""


class ToolCall(BaseModel):
    """Call of a tool by its name, with arguments that its model accepts."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    tool: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)


class ToolResult(BaseModel):
    """Result of a call: a text, evidence and named figures, each possibly empty. ``error``: the call failed."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    text: str = ""
    evidence: tuple[Evidence, ...] = ()
    figures: dict[str, float] = Field(default_factory=dict)
    error: bool = False


class RecordedCall(ToolCall):
    """Call with its result, as a turn records it. ``evidence`` are ids: the message that shows the evidence has it."""

    text: str = Field(default="", exclude_if=_is_empty)
    evidence: tuple[str, ...] = Field(default=(), exclude_if=_is_empty)
    figures: dict[str, float] = Field(default_factory=dict, exclude_if=_is_empty)
    error: bool = Field(default=False, exclude_if=_is_empty)


def call_text(call: ToolCall) -> str:
    """Return a call as people read it: the argument if there is one, else all with their names."""
    if len(call.arguments) == 1:
        return " ".join(str(next(iter(call.arguments.values()))).split())
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.arguments.items())


def recorded_call(call: ToolCall, result: ToolResult) -> RecordedCall:
    """Return a call with its result."""
    return RecordedCall(
        tool=call.tool, arguments=call.arguments, text=result.text, evidence=tuple(item.id for item in result.evidence),
        figures=result.figures, error=result.error,
    )  # fmt: skip


def search_call(query: str) -> RecordedCall:
    """Return a search of which nothing but the query is recorded."""
    return RecordedCall(tool=SEARCH, arguments={"query": query})


class Turn(Record):
    """One message of a dialogue: the token span ``[start, end)`` of its trajectory, and its text.

    ``evidence`` is on the environment's messages: what the message shows, in its order. The other fields are on the
    agent's: ``malformed`` is the reason why a turn broke the grammar (``None``: it is well-formed), ``tool_calls`` are
    the turn's calls with their results, ``calls`` the ids of the trajectories that it called, ``rewards`` its own named
    rewards. Searches of which nothing but the query was recorded are written as ``queries``, a list of texts.
    """

    KIND: ClassVar[str] = "turn"
    speaker: Literal["agent", "environment"]
    text: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    malformed: str | None = None
    tool_calls: tuple[RecordedCall, ...] = Field(default=(), exclude_if=_is_empty)
    evidence: tuple[Evidence, ...] = Field(default=(), exclude_if=_is_empty)
    calls: tuple[str, ...] = Field(default=(), exclude_if=_is_empty)
    rewards: dict[str, float] = Field(default_factory=dict, exclude_if=_is_empty)

    @model_validator(mode="before")
    @classmethod
    def _read_queries(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "queries" not in value:
            return value
        rest = {name: field for name, field in value.items() if name != "queries"}
        queries = value["queries"]
        if (
            "tool_calls" in rest
            or not isinstance(queries, list | tuple)
            or not all(isinstance(q, str) for q in queries)
        ):
            raise ValueError("queries must be a list of texts, without tool_calls")
        return rest | {"tool_calls": [search_call(query) for query in queries]}

    @model_serializer(mode="wrap")
    def _write_queries(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if not self.tool_calls or any(
            call != search_call(str(call.arguments.get("query"))) for call in self.tool_calls
        ):
            return written
        return {
            "queries" if name == "tool_calls" else name: list(self.queries) if name == "tool_calls" else value
            for name, value in written.items()
        }

    @property
    def queries(self) -> tuple[str, ...]:
        """Texts that the turn searched for."""
        return tuple(str(call.arguments["query"]) for call in self.tool_calls if call.tool == SEARCH)


class Trajectory(Record):
    """One agent dialogue, token for token as it was sampled.

    ``token_ids``, ``agent_mask`` and ``logprobs`` have one entry per token; the mask is 1 exactly on
    tokens the policy sampled, and ``logprobs`` (natural logarithm, of the distribution that was
    sampled from at temperature 1) is 0.0 elsewhere; it is empty where no policy sampled the tokens (a demonstration).
    ``selected`` are the indices into ``evidence`` that the agent chose.

    ``use`` is ``training`` for what the policy did as an agent; ``scoring`` for what is recorded only to judge or to be
    judged (completions of a probe, a teacher's drafts), which is never trained on.
    """

    KIND: ClassVar[str] = "trajectory"
    role: str = Field(min_length=1)
    id: str = Field(min_length=1)
    token_ids: tuple[int, ...]
    agent_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    turns: tuple[Turn, ...]
    selected: tuple[int, ...] = ()
    answer: str | None = None
    use: Literal["training", "scoring"] = Field(default="training", exclude_if=lambda use: use == "training")

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        if len(self.agent_mask) != len(self.token_ids) or len(self.logprobs) not in (0, len(self.token_ids)):
            raise ValueError("token_ids, agent_mask and logprobs must have one entry per token (logprobs: or none)")
        if any(not 0 <= turn.start <= turn.end <= len(self.token_ids) for turn in self.turns):
            raise ValueError("a turn's span lies outside the trajectory's tokens")
        return self

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Everything that the dialogue showed the agent, in order."""
        return tuple(item for turn in self.turns for item in turn.evidence)


Outcome = Literal["answered", "iteration_limit", "context_limit"]


class Rollout(Record):
    """One attempt at a question: the main trajectory, whose answer is the attempt's, and the others that it called.

    ``rewards`` are named (``em``, ``f1``, …); ``outcome`` says how the dialogue ended: with an answer,
    at the iteration limit, or out of context. ``weights`` is the policy's weight digest and ``corpus``
    the digest of what was searched. Which turn called which trajectory is in the turn's ``calls``.
    """

    KIND: ClassVar[str] = "rollout"
    SCHEMA: ClassVar[int] = 2
    question: Question
    attempt: int = Field(ge=0)
    seed: int
    main: Trajectory
    others: tuple[Trajectory, ...] = ()
    outcome: Outcome
    rewards: dict[str, float] = Field(default_factory=dict)
    weights: str
    corpus: str

    @model_validator(mode="after")
    def _calls_are_there(self) -> Self:
        ids = [trajectory.id for trajectory in self.recorded]
        if len(set(ids)) < len(ids):
            raise ValueError("two trajectories have the same id")
        calls = {call for trajectory in self.recorded for turn in trajectory.turns for call in turn.calls}
        if unknown := calls - set(ids):
            raise ValueError(f"a turn calls {min(unknown)}, and there is no such trajectory")
        if self.main.use != "training":
            raise ValueError("the main trajectory is the attempt itself, so it is not for scoring only")
        return self

    @property
    def id(self) -> str:
        return f"{self.question.id}#{self.attempt}"

    @property
    def recorded(self) -> tuple[Trajectory, ...]:
        """All trajectories, those for scoring only among them."""
        return (self.main, *self.others)

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """Return the policy's trajectories as an agent, the only ones that are trained on."""
        return tuple(trajectory for trajectory in self.recorded if trajectory.use == "training")

    @property
    def malformed_turns(self) -> int:
        return sum(turn.malformed is not None for t in self.trajectories for turn in t.turns)
