"""Interface of a dataset format: its records, their conversion to questions, and its format of predictions.

A format is one module with a ``FORMAT``: a shipped format is in this folder, a user's format any module on the Python
path, named in ``dataset.format`` by its dotted name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
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
"""Aliases of entities from the format's ``labels`` file; empty without the file."""


class BadField(ValueError):
    """A field has the right type but an invalid value; the message begins with its name."""


def write_answers(stem: Path, rollouts: Sequence[Rollout]) -> Path:
    """Write HotpotQA's format: a JSON object of ``answer`` and ``sp`` by id.

    Agents return no supporting sentences, so ``sp`` is empty, and the official script reports it as missing.
    """
    return write_object(stem, {"answer": {question.id: answer for question, answer in answered(rollouts)}, "sp": {}})


@dataclass(frozen=True)
class DatasetFormat(Generic[R]):
    """A format of question files.

    Attributes:
        record: the required fields of a record.
        question: converts a record to a question, whose ``dataset`` becomes the format's name in recipes; raises
            BadField, whose message begins with the field.
        lines: True for JSONL; otherwise the file is a JSON list of records.
        key: key of the list of records, if the file is an object.
        table: separator of a table with a header line, e.g. a comma, whose fields are texts; empty for JSON.
        unit: the word for a record in errors.
        repeats: True if a question may occur twice with different answers; the second one's id gets a number.
        labels: reads the file of ``dataset.labels``; None if the format has none.
        write: writes an evaluation's answers in the official format to a file whose name begins with the given path,
            and returns the file.
    """

    record: type[R]
    question: Callable[[R, Labels], Question]
    lines: bool = False
    key: str = ""
    table: str = ""
    unit: str = "record"
    repeats: bool = False
    labels: Callable[[Path], Labels] | None = None
    write: Callable[[Path, Sequence[Rollout]], Path] = write_answers


def load_format(name: str) -> DatasetFormat[Any]:
    """Return a shipped or user-defined format by its name in recipes.

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
    """Return a question's passages from titles and texts, with the question's id and a number as ids."""
    return tuple(Passage(id=f"{id_}/{n}", title=title, text=text) for n, (title, text) in enumerate(passages))


def joined_sentences(sentences: Sequence[str], separator: str) -> tuple[str, tuple[int, ...]]:
    """Return the text of a paragraph's sentences, without surrounding space, and the offset at which each begins.

    Sentences of white space alone at the paragraph's end begin at the text's end.
    """
    whole = separator.join(sentences)
    text, removed = whole.strip(), len(whole) - len(whole.lstrip())
    begun = accumulate((len(sentence) + len(separator) for sentence in sentences), initial=-removed)
    return text, tuple(min(max(start, 0), len(text)) for start, _ in zip(begun, sentences, strict=False))


def answered(rollouts: Sequence[Rollout]) -> list[tuple[Question, str]]:
    """Return the questions with an answer, and the answers."""
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
