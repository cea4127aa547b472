"""Corpora of passages and stores of triples, each with a digest of its content."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import msgspec

from platform_sdk.data.files import read_bytes, read_json_lines
from platform_sdk.display import shortened
from platform_sdk.record_files import RecordError, check_text, digest_records, read_jsonl, write_jsonl
from platform_sdk.records import Passage, Question, Triple


class Corpus:
    """Passages in a fixed order, with unique ids."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = list(passages)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the passages in their order."""
        return digest_records(self.passages)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load an official corpus (JSONL of ``id, title, text``) or a file that :meth:`save` wrote.

        Raises:
            RecordError: a line is malformed, or an id is repeated.
        """
        passages = (
            list(read_jsonl(path, Passage))
            if _is_record_file(path)
            else [Passage(id=line.id, title=line.title, text=line.text) for line in read_json_lines(path, _Line)]
        )
        seen: set[str] = set()
        for number, passage in enumerate(passages, start=1):
            if passage.id in seen:
                raise RecordError(f"{path}: record {number}: id: {shortened(passage.id)} is another passage's too")
            check_text(path, f"record {number}: ", passage)
            seen.add(passage.id)
        return cls(passages)

    def save(self, path: Path) -> None:
        """Write the passages as records, in one atomic step."""
        write_jsonl(path, Passage, self.passages)


class _Line(msgspec.Struct):
    id: str
    title: str
    text: str


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

        The TSV needs the columns ``head``, ``relation`` (or ``property_id``) and ``tail``; ``head_id`` and ``tail_id``
        (or ``tail_id_or_literal``) are optional, and other columns are ignored. There is no quoting.

        Raises:
            RecordError: a column is missing, or a line has another number of columns than the header.
        """
        if _is_record_file(path):
            return cls(read_jsonl(path, Triple))
        return cls(_read_tsv(path))

    def save(self, path: Path) -> None:
        """Write the triples as records, in one atomic step."""
        write_jsonl(path, Triple, self.triples)


_COLUMNS = {"property_id": "relation", "tail_id_or_literal": "tail_id"}


def _read_tsv(path: Path) -> list[Triple]:
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise RecordError(f"{path}: line {line}: not UTF-8 text") from error
    # The csv module rejects fields of more than 131,072 characters.
    lines = (line.rstrip("\r\n") for line in io.StringIO(text, newline=""))
    rows = (line.split("\t") if line else [] for line in lines)
    columns = [_COLUMNS.get(name, name) for name in next(rows, [])]
    missing = [name for name in ("head", "relation", "tail") if name not in columns]
    if missing:
        raise RecordError(f"{path}: line 1: the header lacks {', '.join(missing)}")
    wanted = [name for name in Triple.model_fields if name in columns]
    triples = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(columns):
            raise RecordError(f"{path}: line {number}: {len(row)} columns, but the header has {len(columns)}")
        values = dict(zip(columns, row, strict=True))
        triples.append(Triple(**{name: values[name] for name in wanted}))
    return triples


def _is_record_file(path: Path) -> bool:
    first = read_bytes(path).split(b"\n", 1)[0]
    return first.startswith(b'{"record":')
