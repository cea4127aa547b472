"""Bamboogle's file: a CSV of ``Question`` and ``Answer`` (Press et al., 2023), two hops each."""

from __future__ import annotations

import hashlib

import msgspec

from platform_sdk.data.formats import nq
from platform_sdk.data.formats.base import BadField, DatasetFormat, Labels
from platform_sdk.records import Question


class BamboogleRecord(msgspec.Struct, rename="pascal"):
    """A row."""

    question: str
    answer: str


def question(record: BamboogleRecord, labels: Labels) -> Question:
    """Return the question of a row; a digest of its text is the id.

    Raises:
        BadField: a value is empty.
    """
    if not record.question.strip() or not record.answer.strip():
        raise BadField(f"{'Answer' if record.question.strip() else 'Question'}: is empty")
    digest = hashlib.sha256(record.question.encode(errors="surrogatepass")).hexdigest()
    return Question(
        id=f"bamboogle-{digest[:12]}",
        text=record.question,
        answers=(record.answer.strip(),),
        dataset="bamboogle",
        hops=2,
    )


FORMAT = DatasetFormat(BamboogleRecord, question, table=",", unit="line", write=nq.write)
