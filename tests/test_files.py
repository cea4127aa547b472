"""Files are written whole, and read with an error that names the file, the fault and the remedy."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from platform_sdk.errors import UserError
from platform_sdk.files import append_line, read_object, storage_error, whole_lines, write_text, writing
from platform_sdk.tracking import manifest
from platform_sdk.tracking.log.chain import Log, Statement


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is empty"),
        (b'{"a": 1, "b"', "is not valid JSON .* cut short or altered"),
        (b'{"a": "\xff"}', "is not UTF-8 text"),
        (b"[1, 2]", "holds no JSON object"),
        (b"[" * 100_000, "is not valid JSON"),
        (None, "is missing"),
    ],
)
def test_read_object_of_damaged_file_names_file_and_fault(tmp_path: Path, content: bytes | None, fault: str) -> None:
    path = tmp_path / "scores.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=rf"scores\.json: {fault}.*(restore|run the step)"):
        read_object(path)


def test_writing_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    write_text(path, "old")
    with pytest.raises(RuntimeError), writing(path) as stream:
        stream.write(b"new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_told_by_the_name_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)  # the temporary file's name is longer than a file system allows
    with pytest.raises(OSError, match="name too long") as caught:
        write_text(path, "new")
    told = storage_error(caught.value)
    assert told is not None
    assert str(told).startswith(f"{path}: cannot be read or written: File name too long; check the path")


def test_writers_of_one_process_do_not_share_a_temporary_file(tmp_path: Path) -> None:
    path, texts = tmp_path / "figures.json", [str(number) * 50_000 for number in range(4)]
    threads = [threading.Thread(target=write_text, args=(path, text)) for text in texts for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_whole_lines_exclude_an_unfinished_line(tmp_path: Path) -> None:
    path = tmp_path / "updates.jsonl"
    assert whole_lines(path) == ([], 0)
    path.write_bytes(b"one\ntwo\nthr")
    assert whole_lines(path) == ([b"one", b"two"], 8)
    path.write_bytes(b"one\ntwo\nthree\n")
    assert whole_lines(path, 8) == ([b"three"], 14)


def test_full_disk_is_an_error_with_a_remedy_however_it_is_wrapped() -> None:
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="No space") as caught:
        full.write(b"x")
    wrapped = RuntimeError("could not save")
    wrapped.__cause__ = caught.value
    said_by_a_library = ValueError("I/O error: No space left on device (os error 28)")
    for error in (caught.value, wrapped, said_by_a_library, PermissionError(errno.EROFS, "Read-only", "/run/a")):
        told = storage_error(error)
        assert told is not None
        assert "cannot be written" in str(told)
        assert "free space" in str(told)
    assert storage_error(ValueError("anything else")) is None


def test_full_disk_is_reported_with_the_file_of_the_line() -> None:
    with pytest.raises(OSError, match="No space") as caught:
        append_line(Path("/dev/full"), "a line")
    assert str(storage_error(caught.value)).startswith("/dev/full: cannot be written: No space left")


def _appended_line(path: Path) -> None:
    append_line(path / "events.jsonl", "a line")


def _first_entry(path: Path) -> None:
    manifest.record(path, "run started", {})


def _first_statement(path: Path) -> None:
    Log(path / "log.jsonl").append(Statement(event="run ended", run="r", start="0" * 64, head=f"1:{'0' * 64}"))


@pytest.mark.parametrize("write", [_appended_line, _first_entry, _first_statement])
def test_first_append_flushes_the_file_and_then_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(Path(f"/proc/self/fd/{handle}").readlink()))
    write(tmp_path)
    [file] = tmp_path.iterdir()
    assert flushed == [file, tmp_path]


def test_writing_to_a_device_asks_for_another_path() -> None:
    with pytest.raises(UserError, match="^/dev/null: is a directory or a device, not a file; choose another path$"):
        write_text(Path("/dev/null"), "text")
