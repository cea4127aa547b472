"""Typed records that all packages exchange.

Loaders create questions, passages and triples; retrieval returns evidence; agents create rollouts of trajectories;
scoring adds named rewards.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)


class Record(BaseModel):
    """Base of all records: immutable, without extra fields. ``SCHEMA`` is the version of the fields."""

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
    """One fact of a knowledge graph. Ids are empty if the source has none."""

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
    """A step of a question's decomposition: a sub-question, in which ``#1`` stands for the first step's answer.

    ``passage`` is the id of the passage in the context that answers it; empty if the dataset names none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    question: str
    answer: str
    passage: str = ""


class Question(Record):
    """A question with its gold answers and annotations.

    ``answers`` are the accepted answers (the first is the canonical one). ``gold_passages`` name the
    passages that support the answer; ``supporting_facts`` are ``(title, sentence index)`` pairs;
    ``topic_entities`` are the gold entry points of the knowledge-graph environments, ``topic_ids`` their Wikidata ids
    in the same order (empty if the dataset has none); ``context`` are the question's own passages if the dataset has
    them, gold passages among distractors; ``context_sentences`` are the offsets in each one's text at which its
    sentences begin, empty if the dataset does not tell sentences apart.
    ``gold_passages`` are titles; ``gold_context`` are ids in the context, for datasets with repeated titles.
    ``decomposition`` are the dataset's sub-questions.
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
    # Excluded if empty, so that the records of other datasets keep their digests.
    gold_context: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    context_sentences: tuple[tuple[int, ...], ...] = Field(default=(), exclude_if=operator.not_)
    decomposition: tuple[Hop, ...] = Field(default=(), exclude_if=operator.not_)
    topic_ids: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)

    @property
    def gold_positions(self) -> tuple[int, ...]:
        """Zero-based positions of gold passages in ``context``; absent ones are omitted."""
        if self.gold_context:
            return tuple(i for i, passage in enumerate(self.context) if passage.id in self.gold_context)
        return tuple(i for i, passage in enumerate(self.context) if passage.title in self.gold_passages)


class Source(BaseModel):
    """Passage of a piece of evidence: its id, and the characters ``[start, end)`` of its text."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    passage: str
    start: int | None = None
    end: int | None = None


class Evidence(Record):
    """Piece of evidence from retrieval or from a question: a passage, triple or hyperedge with its score and id.

    ``title`` is the title of the passage (for a hyperedge, of its source passage), and for a triple its tail. ``parts``
    are the components of the score by name, or by name and entity. ``entities`` are the connected entities (for a
    triple, head and tail) as ids if there are any, with ``entity_names`` as their names. ``query_entities`` are the
    query's entities from which the search started: None if the method links no entities, empty if the query has none.
    """

    KIND: ClassVar[str] = "evidence"
    kind: Literal["passage", "triple", "hyperedge"]
    id: str
    title: str = ""
    text: str
    score: float
    # Excluded from files and responses if empty, as they are for most methods.
    parts: dict[str, float | dict[str, dict[str, float]]] = Field(default_factory=dict, exclude_if=operator.not_)
    entities: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    entity_names: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    source: Source | None = Field(default=None, exclude_if=operator.not_)
    query_entities: tuple[str, ...] | None = Field(default=None, exclude_if=lambda entities: entities is None)


def given_evidence(passages: Iterable[Passage]) -> tuple[Evidence, ...]:
    """Return the passages of a question as evidence, without scores."""
    return tuple(Evidence(kind="passage", id=p.id, title=p.title, text=p.text, score=0.0) for p in passages)


_MOST_LEVELS = 100


def is_recordable(values: Any) -> bool:
    """Return True if a record can hold JSON values: no half of a character, no NaN or infinity, no deep nesting.

    Records are read by a parser of JSON that accepts 200 levels, their own included.
    """
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
        return _levels(values) <= _MOST_LEVELS
    except (ValueError, RecursionError):
        return False


def _levels(values: Any) -> int:
    """Return how deeply JSON values are nested."""
    inner = values.values() if isinstance(values, dict) else values if isinstance(values, list | tuple) else ()
    return 1 + max(map(_levels, inner), default=0)


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
    figures: dict[str, FiniteFloat] = Field(default_factory=dict)  # a file holds no NaN
    error: bool = False


class RecordedCall(ToolCall):
    """Call with its result, as a turn records it. ``evidence`` are ids: the message that shows the evidence has it."""

    text: str = Field(default="", exclude_if=operator.not_)
    evidence: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    figures: dict[str, float] = Field(default_factory=dict, exclude_if=operator.not_)
    error: bool = Field(default=False, exclude_if=operator.not_)


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

    Environment messages have ``evidence``: the pieces shown, in order. Agent messages have the other fields:
    ``malformed`` describes a violation of the grammar (``None`` if there is none), ``tool_calls`` are the calls with
    their results, ``calls`` the ids of the called trajectories, ``rewards`` the named rewards of the turn. Searches of
    which nothing but the query is recorded are written as ``queries``, a list of texts.
    """

    KIND: ClassVar[str] = "turn"
    speaker: Literal["agent", "environment"]
    text: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    malformed: str | None = None
    tool_calls: tuple[RecordedCall, ...] = Field(default=(), exclude_if=operator.not_)
    evidence: tuple[Evidence, ...] = Field(default=(), exclude_if=operator.not_)
    calls: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    rewards: dict[str, float] = Field(default_factory=dict, exclude_if=operator.not_)

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
    """One agent dialogue with the sampled tokens.

    ``token_ids``, ``agent_mask`` and ``logprobs`` have one entry per token. The mask is 1 exactly on tokens that the
    policy sampled. ``logprobs`` (natural logarithm, temperature 1) are 0.0 elsewhere, and empty if no policy sampled
    the tokens (a demonstration). ``selected`` are the indices into ``evidence`` that the agent chose.

    ``use`` is ``training`` for the policy's trajectories as an agent; ``branch`` for a credit's completion of a
    history, which online training learns from but which is no part of the attempt; and ``scoring`` for trajectories
    that are only recorded for scoring (a teacher's drafts) and never trained on.
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
    use: Literal["training", "branch", "scoring"] = Field(default="training", exclude_if=lambda use: use == "training")

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        if len(self.agent_mask) != len(self.token_ids) or len(self.logprobs) not in (0, len(self.token_ids)):
            raise ValueError("token_ids, agent_mask and logprobs must have one entry per token (logprobs: or none)")
        if any(not 0 <= turn.start <= turn.end <= len(self.token_ids) for turn in self.turns):
            raise ValueError("a turn's span lies outside the trajectory's tokens")
        return self

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """All evidence shown to the agent, in order."""
        return tuple(item for turn in self.turns for item in turn.evidence)

    @property
    def agent_turns(self) -> tuple[Turn, ...]:
        """The agent's turns, in order."""
        return tuple(turn for turn in self.turns if turn.speaker == "agent")


class ProgramEnd(BaseModel):
    """End of an attempt by a program of the user's.

    Attributes:
        status: exit status; None for a service, and for a program that was stopped.
        stderr: the last of its standard error.
        notes: settings in its requests that were not used, e.g. another temperature.
        threads: why each trajectory began, in their order: ``new``, ``edited``, ``template``, ``branch``.
        measures: numbers that it reported with its answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    status: int | None = None
    stderr: str = ""
    notes: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    measures: dict[str, float] = Field(default_factory=dict)


Outcome = Literal["answered", "iteration_limit", "context_limit", "error", "timeout", "limit", "no_answer"]


class Rollout(Record):
    """One attempt at a question: the main trajectory, which has the attempt's answer, and the trajectories it called.

    ``rewards`` are named (``em``, ``f1``, …). ``outcome`` is the end of the dialogue: an answer, the iteration limit,
    or the context limit; a program may also end by an error, its time limit, another limit, or without an answer.
    ``weights`` is the weight digest of the policy, ``corpus`` the digest of the searched corpus. A turn's ``calls``
    name the trajectories that it called.
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
    program: ProgramEnd | None = Field(default=None, exclude_if=lambda program: program is None)

    @model_validator(mode="after")
    def _calls_are_there(self) -> Self:
        ids = [trajectory.id for trajectory in self.recorded]
        if len(set(ids)) < len(ids):
            raise ValueError("two trajectories have the same id")
        calls = {call for trajectory in self.recorded for turn in trajectory.turns for call in turn.calls}
        if unknown := calls - set(ids):
            raise ValueError(f"a turn calls {min(unknown)}, which is not a trajectory of this rollout")
        if self.main.use != "training":
            raise ValueError("the main trajectory must have use: training")
        return self

    @property
    def id(self) -> str:
        return f"{self.question.id}#{self.attempt}"

    @property
    def recorded(self) -> tuple[Trajectory, ...]:
        """All trajectories, of every ``use``."""
        return (self.main, *self.others)

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """Return the attempt's trajectories, which are trained on."""
        return tuple(trajectory for trajectory in self.recorded if trajectory.use == "training")

    @property
    def branches(self) -> tuple[Trajectory, ...]:
        """Return the completions of the attempt's histories that are trained on."""
        return tuple(trajectory for trajectory in self.others if trajectory.use == "branch")

    @property
    def malformed_turns(self) -> int:
        return sum(turn.malformed is not None for t in self.trajectories for turn in t.turns)
