"""Records on disk: what was handed on is what is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from platform_sdk.records import (
    AppendLog,
    Question,
    RecordError,
    check_digest,
    check_log,
    digest_records,
    read_jsonl,
    write_jsonl,
)


def test_altered_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    questions = [Question(id=str(i), text="Who ?", answers=("x", "y"), dataset="world") for i in range(3)]
    write_jsonl(path, Question, questions)
    digest = digest_records(questions)
    check_digest(path, Question, digest)
    path.write_text(path.read_text().replace("Who ?", "Why ?", 1))
    with pytest.raises(RecordError, match=r"questions\.jsonl: was changed after it was written"):
        check_digest(path, Question, digest)


QUESTIONS = [Question(id=str(i), text=f"Who is number {i}?", answers=("x",), dataset="world") for i in range(5)]


def damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes())) and None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    "damage",
    [
        damaged(lambda data: data.replace(b"number 2", b"number 7")),
        damaged(lambda data: data[: len(data) // 2]),
        damaged(lambda data: data[:-1]),
        damaged(lambda data: b""),
        damaged(lambda data: data + b'\x00garbage{"\xff\n'),
        damaged(lambda data: b"\x00" + data),
        damaged(lambda data: data.replace(b"}\n", b"} \n")),
        lambda path: path.unlink(),
        lambda path: path.with_name(".log.jsonl.sha256").unlink(),
        lambda path: path.with_name(".log.jsonl.sha256").write_text("half a line"),
    ],
    ids=["edited", "halved", "torn", "emptied", "garbage", "header", "spaces", "removed", "no digests", "digests"],
)
def test_damaged_log_keeps_unaltered_records_and_takes_the_others_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "log.jsonl"
    with AppendLog(path, Question) as log:
        for question in QUESTIONS:
            log.append(question)
    check_log(path)
    damage(path)
    with AppendLog(path, Question) as log:
        kept = list(log.records)
        assert all(question in QUESTIONS for question in kept)
        for question in QUESTIONS:
            if question not in kept:
                log.append(question)
    check_log(path)
    assert sorted(read_jsonl(path, Question), key=lambda q: q.id) == QUESTIONS


def test_log_altered_after_its_end_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with AppendLog(path, Question) as log:
        for question in QUESTIONS:
            log.append(question)
    path.write_bytes(path.read_bytes().replace(b"number 2", b"number 7"))
    with pytest.raises(RecordError, match=r"log\.jsonl:4: was altered"):
        check_log(path)
