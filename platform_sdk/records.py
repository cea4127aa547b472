"""The shared vocabulary of hopforge as typed records, and their JSONL form.

Every room of the house speaks in these records: loaders make questions, passages and triples;
retrieval returns evidence; agents leave rollouts of trajectories; scoring adds named rewards.
A JSONL file starts with one header line ``{"record": KIND, "schema": VERSION}``, so that a file
says what it holds, and a file of another schema version is refused instead of misread.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from platform_sdk import files
from platform_sdk.display import excerpt, shortened
from platform_sdk.errors import UserError

SCHEMA_VERSION = 1
logger = logging.getLogger(__name__)


class RecordError(UserError, ValueError):
    """A record that cannot be read; the message names the file, the line and the field."""


class Record(BaseModel):
    """Base of all records: immutable, and no field but the declared ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    KIND: ClassVar[str]


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


class Question(Record):
    """A question with everything that is known about it.

    ``answers`` are the accepted answers (the first is the canonical one). ``gold_passages`` name the
    passages a correct answer rests on; ``supporting_facts`` are ``(title, sentence index)`` pairs;
    ``topic_entities`` are the gold entry points of the knowledge-graph environments; ``context``
    holds the question's own passages where the dataset gives them, gold ones among distractors.
    ``gold_passages`` are titles; ``gold_context`` are ids in the context, for datasets whose titles repeat there.
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

    @property
    def gold_positions(self) -> tuple[int, ...]:
        """Where in the context the gold passages stand, from 0; a gold passage that the context lacks has no place."""
        if self.gold_context:
            return tuple(i for i, passage in enumerate(self.context) if passage.id in self.gold_context)
        return tuple(i for i, passage in enumerate(self.context) if passage.title in self.gold_passages)


class Evidence(Record):
    """What a retrieval returned: a passage, triple or hyperedge with its score and id.

    ``title`` is a passage's title; of a triple it is the tail, the entity that the triple leads to.
    """

    KIND: ClassVar[str] = "evidence"
    kind: Literal["passage", "triple", "hyperedge"]
    id: str
    title: str = ""
    text: str
    score: float


class Turn(Record):
    """One message of a dialogue: the token span ``[start, end)`` of its trajectory, and its text.

    ``malformed`` says what was wrong with an agent's turn that broke the grammar (``None``: nothing).
    """

    KIND: ClassVar[str] = "turn"
    speaker: Literal["agent", "environment"]
    text: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    malformed: str | None = None


class Trajectory(Record):
    """One agent dialogue, token for token as it was sampled.

    ``token_ids``, ``agent_mask`` and ``logprobs`` have one entry per token; the mask is 1 exactly on
    tokens the policy sampled, and ``logprobs`` (natural logarithm, of the distribution that was
    sampled from at temperature 1) is 0.0 elsewhere. ``selected`` are the indices into ``evidence`` that a worker chose.
    """

    KIND: ClassVar[str] = "trajectory"
    role: Literal["planner", "worker", "agent"]
    id: str
    token_ids: tuple[int, ...]
    agent_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    turns: tuple[Turn, ...]
    evidence: tuple[Evidence, ...] = ()
    selected: tuple[int, ...] = ()
    answer: str | None = None

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        if not len(self.token_ids) == len(self.agent_mask) == len(self.logprobs):
            raise ValueError("token_ids, agent_mask and logprobs must have one entry per token")
        if any(not 0 <= turn.start <= turn.end <= len(self.token_ids) for turn in self.turns):
            raise ValueError("a turn's span lies outside the trajectory's tokens")
        return self


class Rollout(Record):
    """One attempt at a question: the planner's trajectory and those of the workers it called.

    ``rewards`` are named (``em``, ``f1``, …); ``outcome`` says how the dialogue ended: with an answer,
    at the iteration limit, or out of context. ``weights`` is the policy's weight digest and ``corpus``
    the digest of what was searched. A worker's id is ``ITERATION.NUMBER`` of the planner's turn that
    called it, so that parallel workers can be told from later ones.
    """

    KIND: ClassVar[str] = "rollout"
    question: Question
    attempt: int = Field(ge=0)
    seed: int
    planner: Trajectory
    workers: tuple[Trajectory, ...] = ()
    outcome: Literal["answered", "iteration_limit", "context_limit"]
    rewards: dict[str, float] = Field(default_factory=dict)
    weights: str
    corpus: str

    @property
    def id(self) -> str:
        return f"{self.question.id}#{self.attempt}"

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        return (self.planner, *self.workers)

    @property
    def malformed_turns(self) -> int:
        return sum(turn.malformed is not None for t in self.trajectories for turn in t.turns)


R = TypeVar("R", bound=Record)


def header(kind: type[Record]) -> str:
    return json.dumps({"record": kind.KIND, "schema": SCHEMA_VERSION})


def write_jsonl(path: Path, kind: type[R], records: Iterable[R]) -> int:
    """Write records to ``path`` as one atomic step; return how many."""
    count = 0
    with files.writing(path) as stream:
        stream.write(header(kind).encode() + b"\n")
        for record in records:
            stream.write(record.model_dump_json().encode() + b"\n")
            count += 1
    return count


def read_jsonl(path: Path, kind: type[R]) -> Iterator[R]:
    """Yield the records of ``path``.

    Raises:
        RecordError: the file is missing, of another kind or schema version, or a line is not a
            valid record; the message names file, line and field.
    """
    try:
        stream = path.open("rb")
    except FileNotFoundError as error:
        raise RecordError(f"{path}: no such file of {kind.KIND} records") from error
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    with stream:
        check_header(path, stream.readline(), kind)
        for number, line in enumerate(stream, start=2):
            yield parse_line(path, number, line, kind)


def check_header(path: Path, line: bytes, kind: type[Record]) -> None:
    """Raise RecordError unless ``line`` is the header of a ``kind`` file of this schema version."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or more digits or levels than Python reads
        found = None
    if not isinstance(found, dict) or "record" not in found:
        raise RecordError(f"{path}:1: not a hopforge record file (the first line must be {header(kind)})")
    if found["record"] != kind.KIND:
        raise RecordError(f"{path}:1: holds {excerpt(found['record'])} records, but {kind.KIND} records are needed")
    if found.get("schema") != SCHEMA_VERSION:
        raise RecordError(
            f"{path}:1: schema version {excerpt(found.get('schema'))}, but this hopforge reads version "
            f"{SCHEMA_VERSION}; write the file again with this version"
        )


def parse_line(path: Path, number: int, line: bytes, kind: type[R]) -> R:
    """Return the record that a line holds.

    Raises:
        RecordError: it is not a valid record; the message names file, line and field.
    """
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = shortened(".".join(str(part) for part in first["loc"]), 200) or "record"
        raise RecordError(f"{path}:{number}: {field}: {first['msg']}") from error


def check_text(path: Path, where: str, record: Record) -> None:
    """Raise RecordError if a text of ``record`` cannot be written: lone surrogates, which JSON's escapes can name.

    Args:
        path: the file that the record is from.
        where: the record's place in it (``"record 3: "``).
    """
    try:
        record.model_dump_json()
    except ValueError as error:
        for field in type(record).model_fields:
            try:
                record.model_dump_json(include={field})
            except ValueError:
                raise RecordError(f"{path}: {where}{field}: holds a lone surrogate; replace it") from error
        raise


def digest_records(records: Iterable[Record]) -> str:
    """The SHA-256 (hex) of records in their order: equal content gives an equal digest."""
    sha = hashlib.sha256()
    for record in records:
        sha.update(record.model_dump_json().encode())
        sha.update(b"\n")
    return sha.hexdigest()


def check_digest(path: Path, kind: type[R], digest: str) -> None:
    """Compare the records of ``path`` with the digest that the step which wrote them handed on.

    Raises:
        RecordError: they are others; or as :func:`read_jsonl`.
    """
    found = digest_records(read_jsonl(path, kind))
    if found != digest:
        raise RecordError(
            f"{path}: was changed after it was written (its digest is {found[:12]}…, not {digest[:12]}…); "
            "restore it, or begin anew with another --workdir"
        )


def digests_file(path: Path) -> Path:
    """Return the file beside an ``AppendLog`` with the SHA-256 of each of its lines."""
    return path.with_name(f".{path.name}.sha256")


def line_digest(record: Record) -> str:
    return hashlib.sha256(record.model_dump_json().encode()).hexdigest()


def remove_log(path: Path) -> None:
    """Delete an ``AppendLog``."""
    path.unlink()
    digests_file(path).unlink(missing_ok=True)


def write_log(path: Path, kind: type[R], records: Sequence[R]) -> None:
    """Write records to ``path`` as an ``AppendLog`` leaves them; the digests first, so that a kill loses no record."""
    known = {line.decode(errors="replace") for line in files.whole_lines(digests_file(path))[0]}
    lines = sorted(known | {line_digest(record) for record in records})
    files.write_text(digests_file(path), "".join(f"{line}\n" for line in lines))
    write_jsonl(path, kind, records)


def check_log(path: Path) -> None:
    """Compare an ``AppendLog`` with the digests of its lines.

    Raises:
        RecordError: a line was altered, added or cut.
    """
    found = digests_file(path)
    if not found.exists():
        return
    known = {line.decode(errors="replace") for line in files.whole_lines(found)[0]}
    for number, line in enumerate(path.read_bytes().split(b"\n")[1:-1], start=2):
        if hashlib.sha256(line).hexdigest() not in known:
            raise RecordError(f"{path}:{number}: was altered after it was written, or {found.name} was; {files.REMEDY}")


def read_log(path: Path, kind: type[R]) -> list[R]:
    """Return the unaltered records of an ``AppendLog``; warn of the others, which are to be made again.

    A last line that a kill cut short is passed over in silence. Without the file of digests every record counts.

    Raises:
        RecordError: there is no file of digests, and a line is not a valid record.
    """
    found = digests_file(path)
    known = {line.decode(errors="replace") for line in files.whole_lines(found)[0]} if found.exists() else None
    lines, _ = files.whole_lines(path)
    if not lines:
        return []
    if known is None:
        check_header(path, lines[0], kind)
    elif lines[0] != header(kind).encode():
        logger.warning("%s:1: is not the header of %s records; all of them are made again", path, kind.KIND)
        return []
    kept = []
    for number, line in enumerate(lines[1:], start=2):
        if known is None or hashlib.sha256(line).hexdigest() in known:
            kept.append(parse_line(path, number, line, kind))
    if len(kept) < len(lines) - 1:
        logger.warning(
            "%s: %d of %d records were altered after they were written; they are made again",
            path, len(lines) - 1 - len(kept), len(lines) - 1,
        )  # fmt: skip
    return kept


class AppendLog(Generic[R]):
    """A JSONL file that only grows; what was appended survives a kill of the process.

    The digest of every line is written to a file beside it before the line is. Opening keeps the records that have
    their digest: a last line that a kill cut short and records that were altered are removed, to be made again.
    """

    def __init__(self, path: Path, kind: type[R]) -> None:
        files.drop_torn_line(digests_file(path))
        self.records: list[R] = read_log(path, kind)
        whole = [header(kind).encode(), *(record.model_dump_json().encode() for record in self.records)]
        if not (path.exists() and digests_file(path).exists()) or path.read_bytes() != b"".join(
            line + b"\n" for line in whole
        ):
            write_log(path, kind, self.records)
        self._stream = path.open("ab")
        self._digests = digests_file(path).open("ab")

    def append(self, record: R) -> None:
        self._digests.write(line_digest(record).encode() + b"\n")
        self._digests.flush()
        self._stream.write(record.model_dump_json().encode() + b"\n")
        self._stream.flush()
        self.records.append(record)

    def close(self) -> None:
        for stream in (self._digests, self._stream):
            os.fsync(stream.fileno())
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
