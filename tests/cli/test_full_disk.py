"""Full disks and unwritable paths: one clear error that names the file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.mistakes import WORLD, Mistake, make, plain
from tests.methods.finished_run import finished_run


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one page."""
    place = tmp_path / "full"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount")
    yield place
    subprocess.run(["umount", place], check=True)


def told(folder: Path, *command: object) -> str:
    found = make(Mistake("", tuple(map(str, command)), "", ""), folder)
    message = plain(found.message)
    assert found.status == 2, message
    assert "Traceback" not in message
    assert message.count("error: ") == 1
    return message


def test_full_disk_is_reported_with_the_unwritten_file(full: Path, tmp_path: Path) -> None:
    run_dir = finished_run(tmp_path, "arena")
    exported = told(tmp_path, "export", run_dir, "-o", full / "model")
    assert "full/model/" in exported
    assert "cannot be written: No space left on device; free space or choose a writable directory" in exported
    compiled = told(tmp_path, "compile", WORLD, "-o", full / "pipeline.yaml")
    assert "cannot be written: No space left on device" in compiled
    begun = told(tmp_path, "run", WORLD, "--workdir", full / "run", "--quiet")
    assert "No space left on device" in begun


def test_unwritable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.yaml").mkdir()
    for output, reason in (
        ("file/in/pipeline.yaml", "-o file/in/pipeline.yaml: folder file/in does not exist; create it"),
        ("folder.yaml", "-o folder.yaml: is a directory; name a file in it"),
        ("/proc/in/pipeline.yaml", "-o /proc/in/pipeline.yaml: folder /proc/in does not exist; create it"),
        (
            "/proc/pipeline.yaml",
            "cannot be written: the directory is not writable; free space or choose a writable directory",
        ),
    ):
        assert reason in told(tmp_path, "compile", WORLD, "-o", output)
