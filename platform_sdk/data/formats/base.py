"""Interface of a dataset format: what a record holds, the question it makes, and the form of predictions.

A format is one file with a ``FORMAT``: a shipped one is in this folder, a user's is any module on the Python path,
which a recipe gives by its dotted name (``dataset.format``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from platform_sdk.config.code import import_definition
from platform_sdk.config.dataset import format_module
from platform_sdk.errors import UserError
from platform_sdk.files import write_text
from platform_sdk.records import Passage, Question, Rollout

R = TypeVar("R", bound=msgspec.Struct)
Labels = Mapping[str, Any]
"""Further names of entities, as the format's ``labels`` read them; empty without a file of them."""


class BadField(ValueError):
    """A field is of its type, but not what a question needs; the message begins with its name."""


def write_answers(stem: Path, rollouts: Sequence[Rollout]) -> Path:
    """Write HotpotQA's form: a JSON object of ``answer`` and ``sp`` by id.

    No agent names supporting sentences, so these are empty, and the script says that they are missing.
    """
    return write_object(stem, {"answer": {question.id: answer for question, answer in answered(rollouts)}, "sp": {}})


@dataclass(frozen=True)
class DatasetFormat(Generic[R]):
    """A format of question files.

    Attributes:
        record: the fields that a record must have.
        question: makes the question of a record, whose ``dataset`` becomes the format's name in recipes; raises
            BadField, whose message begins with the field.
        lines: the file is JSONL; else a JSON list of records.
        key: the file is an object that holds the list of records under this key.
        unit: what a record is called in errors.
        repeats: a question may be asked twice, with other answers; the second one's id gets a number.
        labels: reads the file of ``dataset.labels``; None: the format has none.
        write: writes an evaluation's answers in the official form to a file whose name begins with the given path, and
            returns the file.
    """

    record: type[R]
    question: Callable[[R, Labels], Question]
    lines: bool = False
    key: str = ""
    unit: str = "record"
    repeats: bool = False
    labels: Callable[[Path], Labels] | None = None
    write: Callable[[Path, Sequence[Rollout]], Path] = write_answers


def load_format(name: str) -> DatasetFormat[Any]:
    """Return the format that a recipe names, shipped or of the user's own.

    Raises:
        UserError: its module cannot be imported, or ``FORMAT`` is not a dataset format.
    """
    found = import_definition(f"{format_module(name)}:FORMAT")
    if not isinstance(found, DatasetFormat):
        raise UserError(
            f"dataset.format {name}: FORMAT is of type {type(found).__name__}; make it a {__name__}.DatasetFormat"
        )
    return found


def numbered_passages(id_: str, passages: Sequence[tuple[str, str]]) -> tuple[Passage, ...]:
    """Return the passages (titles and texts) that a question brings, named by its id and their number."""
    return tuple(Passage(id=f"{id_}/{n}", title=title, text=text) for n, (title, text) in enumerate(passages))


def answered(rollouts: Sequence[Rollout]) -> list[tuple[Question, str]]:
    """Return the questions that have an answer, with it."""
    return [(rollout.question, rollout.main.answer) for rollout in rollouts if rollout.main.answer is not None]


def write_object(stem: Path, content: Mapping[str, Any]) -> Path:
    """Write ``STEM.json``."""
    path = stem.with_name(f"{stem.name}.json")
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return path


def write_lines(stem: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    """Write ``STEM.jsonl``."""
    path = stem.with_name(f"{stem.name}.jsonl")
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path
