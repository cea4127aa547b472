"""Records on disk: what was handed on is what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.records import AppendLog, Question, RecordError, check_digest, digest_records, read_jsonl, write_jsonl


def test_altered_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    questions = [Question(id=str(i), text="Who ?", answers=("x", "y"), dataset="world") for i in range(3)]
    write_jsonl(path, Question, questions)
    digest = digest_records(questions)
    check_digest(path, Question, digest)
    path.write_text(path.read_text().replace("Who ?", "Why ?", 1))
    with pytest.raises(RecordError, match=r"questions\.jsonl: was changed after it was written"):
        check_digest(path, Question, digest)


def test_a_line_that_a_kill_cut_short_is_dropped_and_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    questions = [Question(id=str(i), text="Who ?", answers=("x",), dataset="world") for i in range(3)]
    with AppendLog(path, Question) as log:
        for question in questions[:2]:
            log.append(question)
    with path.open("a") as stream:
        stream.write(questions[2].model_dump_json()[:20])
    with AppendLog(path, Question) as log:
        assert log.records == questions[:2]
        log.append(questions[2])
    assert list(read_jsonl(path, Question)) == questions
