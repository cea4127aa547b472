"""Records on disk: what was handed on is what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.records import Question, RecordError, check_digest, digest_records, write_jsonl


def test_altered_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    questions = [Question(id=str(i), text="Who ?", answers=("x", "y"), dataset="world") for i in range(3)]
    write_jsonl(path, Question, questions)
    digest = digest_records(questions)
    check_digest(path, Question, digest)
    path.write_text(path.read_text().replace("Who ?", "Why ?", 1))
    with pytest.raises(RecordError, match=r"questions\.jsonl: was changed after it was written"):
        check_digest(path, Question, digest)
