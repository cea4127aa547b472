"""NQ-open's files, and gold-passage files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from platform_sdk.data.formats.base import (
    BadField,
    DatasetFormat,
    Labels,
    answered,
    numbered_passages,
    write_lines,
)
from platform_sdk.records import Question, Rollout


class NqPassage(msgspec.Struct):
    """A passage of a gold-passage file."""

    title: str
    text: str
    isgold: bool = True


class NqRecord(msgspec.Struct):
    """NQ-open's record, or a gold-passage file's with ``answers`` and passages."""

    question: str
    answer: list[str] = msgspec.field(default_factory=list)
    answers: list[str] = msgspec.field(default_factory=list)
    ctxs: list[NqPassage] = msgspec.field(default_factory=list)


def question(record: NqRecord, labels: Labels) -> Question:
    """Return the question of a record; a digest of its text is the id.

    Raises:
        BadField: the record has no answer.
    """
    answers = record.answer or record.answers
    if not answers:
        raise BadField("answer: missing or empty")
    id_ = "nq-" + hashlib.sha256(record.question.encode(errors="surrogatepass")).hexdigest()[:12]
    context = numbered_passages(id_, [(passage.title, passage.text) for passage in record.ctxs])
    gold = [passage.id for passage, given in zip(context, record.ctxs, strict=True) if given.isgold]
    return Question(
        id=id_,
        text=record.question,
        answers=tuple(dict.fromkeys(answers)),
        dataset="nq",
        hops=1,
        gold_passages=tuple(dict.fromkeys(passage.title for passage in record.ctxs if passage.isgold)),
        context=context,
        # A distractor may be of the gold passage's article and so have its title.
        gold_context=tuple(gold) if len(gold) < len(context) else (),
    )


def write(stem: Path, rollouts: Sequence[Rollout]) -> Path:
    """Write JSONL of ``question`` and ``prediction``."""
    return write_lines(
        stem, [{"question": question.text, "prediction": answer} for question, answer in answered(rollouts)]
    )


FORMAT = DatasetFormat(NqRecord, question, lines=True, repeats=True, write=write)
