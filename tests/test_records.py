"""Records on disk: what was handed on is what is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from platform_sdk.record_files import (
    AppendLog,
    RecordError,
    check_digest,
    check_log,
    digest_records,
    header,
    read_jsonl,
    read_log,
    write_jsonl,
)
from platform_sdk.records import Passage, Question


def test_altered_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    questions = [Question(id=str(i), text="Who ?", answers=("x", "y"), dataset="world") for i in range(3)]
    assert write_jsonl(path, Question, questions) == len(questions)
    digest = digest_records(questions)
    check_digest(path, Question, digest)
    path.write_text(path.read_text().replace("Who ?", "Why ?", 1))
    with pytest.raises(RecordError, match=r"questions\.jsonl: was changed after it was written"):
        check_digest(path, Question, digest)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"id": "\xff"}', "3: record: Invalid JSON"),
        (b"[" * 100_000, "3: record: Invalid JSON: recursion limit exceeded"),
        (b'{"seed": ' + b"9" * 10_000 + b"}", "3: record: Invalid JSON: number out of range"),
        (b'{"id": "\\ud800"}', "3: record: Invalid JSON"),
        (b'{"' + b"k" * 9000 + b'": 1}', "(9000 characters): Extra inputs"),
        (b"", "3: record: Invalid JSON"),
    ],
)
def test_odd_lines_are_named(tmp_path: Path, line: bytes, says: str) -> None:
    path = tmp_path / "passages.jsonl"
    whole = b'{"id": "1", "title": "", "text": ""}'
    path.write_bytes(
        b"\n".join(
            [header(Passage).encode(), whole, line if b"k" not in line else whole[:-1] + b", " + line[1:], whole]
        )
    )
    with pytest.raises(RecordError) as caught:
        list(read_jsonl(path, Passage))
    assert str(caught.value).startswith(f"{path}:3: ")
    assert says in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("first", [b"\xff", b"[" * 100_000, b"9" * 10_000, b'{"record": "' + b"x" * 9000 + b'"}'])
def test_odd_headers_are_refused(tmp_path: Path, first: bytes) -> None:
    path = tmp_path / "passages.jsonl"
    path.write_bytes(first + b"\n")
    with pytest.raises(RecordError, match=r"passages\.jsonl:1: ") as caught:
        list(read_jsonl(path, Passage))
    assert len(str(caught.value)) < 500
    with pytest.raises(RecordError, match="cannot be read: Is a directory"):
        list(read_jsonl(tmp_path, Passage))


def test_torn_line_is_dropped_and_the_log_continues(tmp_path: Path) -> None:
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
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.jsonl"
    with AppendLog(path, Question) as log:
        for question in QUESTIONS:
            log.append(question)
    check_log(path)
    assert read_log(path, Question) == QUESTIONS
    assert not caplog.records  # nothing was altered
    damage(path)
    with AppendLog(path, Question) as log:
        kept = list(log.records)
        assert all(question in QUESTIONS for question in kept)
        for question in QUESTIONS:
            if question not in kept:
                log.append(question)
    check_log(path)
    assert sorted(read_jsonl(path, Question), key=lambda q: q.id) == QUESTIONS


def test_altered_records_of_a_log_are_counted_in_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log.jsonl"
    with AppendLog(path, Question) as log:
        for question in QUESTIONS:
            log.append(question)
    header_line, *lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header_line + b"".join([lines[0].replace(b"?", b"!", 1), *lines[1:]]))
    assert read_log(path, Question) == QUESTIONS[1:]
    assert f"1 of {len(QUESTIONS)} records were altered" in caplog.text


def test_log_altered_after_its_end_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with AppendLog(path, Question) as log:
        for question in QUESTIONS:
            log.append(question)
    path.write_bytes(path.read_bytes().replace(b"number 2", b"number 7"))
    with pytest.raises(RecordError, match=r"log\.jsonl:4: was altered .* or \.log\.jsonl\.sha256 was"):
        check_log(path)


@pytest.mark.parametrize("kept", [0, 10, -10, -1])
def test_log_cut_after_its_end_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "log.jsonl"
    with AppendLog(path, Question) as log:
        log.append(QUESTIONS[0])
    check_log(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(RecordError, match=r"log\.jsonl: was cut"):
        check_log(path)
