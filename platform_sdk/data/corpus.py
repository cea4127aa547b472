"""Corpora of passages and stores of triples, each with a digest of its content."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import msgspec

from platform_sdk.data.files import REFUSED, check, parse_loose, read_bytes
from platform_sdk.data.passage_file import PassageFile
from platform_sdk.files import open_regular
from platform_sdk.record_files import RecordError, check_header, digest_records, parse_line, read_jsonl, write_jsonl
from platform_sdk.records import Passage, Question, Triple

_RECORDS = b'{"record":'


class Corpus:
    """Passages in a fixed order, with unique ids.

    Args:
        passages: the passages, in memory or from a file.
        digest: SHA-256 of the passages in their order, if known.
    """

    def __init__(self, passages: Sequence[Passage], digest: str | None = None) -> None:
        self.passages, self._digest = passages, digest

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the passages in their order."""
        return digest_records(self.passages) if self._digest is None else self._digest

    @classmethod
    def load(cls, path: Path, digest: str | None = None) -> Self:
        """Open a corpus, which is not read into memory.

        The file is official, i.e. JSONL of ``id, title, text`` or of ``id, contents`` (as wiki-18: the title in
        quotation marks on the first line of ``contents``), or was written by :meth:`save`.

        Args:
            digest: the digest of a corpus that :meth:`save` wrote, if the caller has compared it; its lines are then
                not checked again.

        Raises:
            RecordError: a line is malformed, or an id is repeated.
        """
        first = _first_line(path)
        if first.startswith(_RECORDS):
            check_header(path, first, Passage)
            passages = PassageFile(path, _recorded, header=True)
        else:
            passages = PassageFile(path, _official, header=False)
        if digest is None:
            passages.check()
        return cls(passages, digest)

    def save(self, path: Path) -> None:
        """Write the passages as records, in one atomic step."""
        write_jsonl(path, Passage, self.passages)


class _Line(msgspec.Struct):
    id: str
    title: str
    text: str


class _Contents(msgspec.Struct):
    id: str
    contents: str


def _recorded(path: Path, number: int, line: bytes) -> Passage:
    return parse_line(path, number, line, Passage)


def _official(path: Path, number: int, line: bytes) -> Passage:
    """Return the passage of an official corpus's line."""
    try:
        found = msgspec.json.decode(line, type=_Line)
    except REFUSED:
        where = f"line {number}: "
        value = parse_loose(path, line, where)
        if not isinstance(value, dict) or "contents" not in value or "text" in value:
            found = check(path, where, value, _Line)
        else:
            whole = check(path, where, value, _Contents)
            title, _, text = whole.contents.partition("\n")
            return Passage(id=whole.id, title=title.removeprefix('"').removesuffix('"'), text=text)
    return Passage(id=found.id, title=found.title, text=found.text)


def corpus_from_questions(questions: Iterable[Question]) -> Corpus:
    """Merge the contexts of ``questions``: each (title, text) once, numbered in order of first appearance."""
    distinct = dict.fromkeys((passage.title, passage.text) for question in questions for passage in question.context)
    return Corpus([Passage(id=str(i), title=title, text=text) for i, (title, text) in enumerate(distinct)])


class TripleStore:
    """Distinct triples in a fixed order."""

    def __init__(self, triples: Iterable[Triple]) -> None:
        self.triples = list(dict.fromkeys(triples))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the triples in their order."""
        return digest_records(self.triples)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load a TSV with a header line, or a file that :meth:`save` wrote.

        The TSV needs the columns ``head``, ``relation`` (else ``property_id``) and ``tail``; ``head_id`` and
        ``tail_id`` (else ``tail_id_or_literal``) are optional, and other columns are ignored. There is no quoting.

        Raises:
            RecordError: a column is missing, or a line has another number of columns than the header.
        """
        if _first_line(path).startswith(_RECORDS):
            return cls(read_jsonl(path, Triple))
        return cls(_read_tsv(path))

    def save(self, path: Path) -> None:
        """Write the triples as records, in one atomic step."""
        write_jsonl(path, Triple, self.triples)


_ALTERNATIVES = {"relation": "property_id", "tail_id": "tail_id_or_literal"}


def _read_tsv(path: Path) -> list[Triple]:
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise RecordError(f"{path}: line {line}: not UTF-8 text") from error
    # The csv module rejects fields of more than 131,072 characters.
    lines = (line.rstrip("\r\n") for line in io.StringIO(text, newline=""))
    rows = (line.split("\t") if line else [] for line in lines)
    columns = next(rows, [])
    places = {name: name if name in columns else _ALTERNATIVES.get(name) for name in Triple.model_fields}
    wanted = {name: columns.index(column) for name, column in places.items() if column in columns}
    missing = [name for name in ("head", "relation", "tail") if name not in wanted]
    if missing:
        raise RecordError(f"{path}: line 1: the header lacks {', '.join(missing)}")
    triples = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(columns):
            raise RecordError(f"{path}: line {number}: {len(row)} columns, but the header has {len(columns)}")
        triples.append(Triple(**{name: row[place] for name, place in wanted.items()}))
    return triples


def _first_line(path: Path) -> bytes:
    try:
        with open_regular(path) as stream:
            return stream.readline()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
