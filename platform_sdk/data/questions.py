"""Loading of official and user-defined question files as :class:`Question` records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from platform_sdk.data.files import check, is_list, lines_of, parse_loose, read_bytes
from platform_sdk.data.formats.base import BadField, DatasetFormat, Labels, load_format
from platform_sdk.data.tables import fields_of, read_rows
from platform_sdk.display import shortened
from platform_sdk.record_files import RecordError, check_text
from platform_sdk.records import Question


@dataclass(frozen=True)
class LoadedQuestions:
    """The questions of a file, and the message of each skipped record."""

    questions: list[Question]
    skipped: list[str]


def load_questions(
    path: Path, format: str, *, skip_invalid: bool = False, labels: Path | None = None
) -> LoadedQuestions:
    """Load a question file.

    Args:
        path: the file as distributed by the dataset's authors.
        format: the format's name in a recipe.
        skip_invalid: skip and list malformed records, instead of failing at the first.
        labels: the format's file of aliases of entities.

    Raises:
        RecordError: the file cannot be read or holds no question, or a record is malformed; the message has file,
            record number and field.
        UserError: the module of a user-defined format is invalid.
    """
    found = load_format(format)
    names = found.labels(labels) if labels and found.labels else {}
    questions: list[Question] = []
    skipped: list[str] = []
    seen: set[str] = set()
    for where, parse in _records(path, format, found):
        try:
            question = _question(path, where, parse(), format, found, names)
            if found.repeats and question.id in seen and not _named(parse(), found):
                question = question.model_copy(update={"id": f"{question.id}-{len(seen)}"})
            if question.id in seen:
                raise RecordError(f"{path}: {where}id: {shortened(question.id)} is another record's too")
            check_text(path, where, question)
        except RecordError as error:
            if not skip_invalid:
                raise
            skipped.append(str(error))
            continue
        seen.add(question.id)
        questions.append(question)
    if not questions:
        raise RecordError(f"{path}: holds no question" + (f" that is valid; {skipped[0]}" if skipped else ""))
    return LoadedQuestions(questions, skipped)


def _records(path: Path, name: str, format: DatasetFormat[Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each record's position (``"record 3: "``) and a function that returns it as plain values."""
    data = read_bytes(path)
    if format.table:
        for number, columns, row in read_rows(path, data, format.table):
            yield f"{format.unit} {number}: ", partial(fields_of, path, number, columns, row)
        return
    if format.lines and not is_list(data):
        for number, line in lines_of(data):
            where = f"{format.unit} {number}: "
            yield where, partial(parse_loose, path, line, where)
        return
    document = parse_loose(path, data, "")
    if format.key:
        document = document.get(format.key) if isinstance(document, dict) else None
    if not isinstance(document, list):
        expected = f"an object with a list of {format.key}" if format.key else "a JSON list of records"
        raise RecordError(f"{path}: not a {name} file: {expected} is expected")
    for number, record in enumerate(document, start=1):
        yield f"record {number}: ", partial(_given, record)


def _named(record: Any, format: DatasetFormat[Any]) -> bool:
    """Return True if a record has an id that its format reads, so that a repeated id is an error."""
    return "id" in format.record.__struct_fields__ and isinstance(record, dict) and record.get("id") is not None


def _given(record: Any) -> Any:
    return record


def _question(path: Path, where: str, record: Any, name: str, format: DatasetFormat[Any], labels: Labels) -> Question:
    try:
        question = format.question(check(path, where, record, format.record), labels)
        _require_text(question)
        return question if question.dataset == name else question.model_copy(update={"dataset": name})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{path}: {where}{field}: {first['msg']}") from error
    except BadField as error:
        raise RecordError(f"{path}: {where}{error}") from error


def _require_text(question: Question) -> None:
    if not question.text.strip():
        raise BadField("question: is empty; write a question, or remove the record")
    if not any(answer.strip() for answer in question.answers):
        raise BadField("answer: is empty, so the question cannot be scored; write an answer, or remove the record")
