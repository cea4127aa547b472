"""Seals: a finished step's files are compared with the manifest before anything reads them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.files import write_text
from platform_sdk.tracking import digests, manifest, runs, seals
from platform_sdk.tracking.opened import open_run
from platform_sdk.tracking.runs import start_run, step_run

RECIPE = {"pipeline": "mygo", "name": "r", "parameters": {}}
FILES = ("eval-start/scores.json", "warmup/model/model.safetensors", "warmup/model/config.json")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with two finished steps, and a base model outside of it; nothing delivers it to MLflow."""
    monkeypatch.setattr(runs, "_start_follower", lambda run_dir: None)
    run_dir = tmp_path / "run"
    start_run(run_dir, RECIPE)
    base = tmp_path / "base" / "config.json"
    write_text(base, "{}")
    for name in FILES:
        write_text(run_dir / name, json.dumps({"em": 0.24, "name": name}))
    with step_run(run_dir, "train-warmup") as step:
        step.seal(run_dir / "warmup/model", base)
    with step_run(run_dir, "eval-start") as step:
        step.seal(run_dir / "eval-start/scores.json")
    return run_dir


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flip": lambda path: path.write_bytes(path.read_bytes().replace(b"e", b"d", 1)),
    "halve": lambda path: path.write_bytes(path.read_bytes()[:9]),
    "empty": lambda path: path.write_bytes(b""),
    "remove": lambda path: path.unlink(),
    "append": lambda path: path.write_bytes(path.read_bytes() + b"\xff{"),
    "edit": lambda path: path.write_text(path.read_text().replace("0.24", "0.99")),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_altered_file_of_finished_step_stops_the_run_and_is_named(run: Path, name: str, damage: str) -> None:
    seals.check(run)
    DAMAGES[damage](run / name)
    expected = rf"{name}: (was altered after|is missing, but) step .*SHA-256.*(restore it from a copy|--workdir)"
    with pytest.raises(UserError, match=expected):
        start_run(run, RECIPE)
    with pytest.raises(UserError, match=expected), step_run(run, "report"):
        pass


def test_altered_base_model_stops_the_run_but_not_its_report(run: Path) -> None:
    write_text(run.parent / "base/config.json", '{"rope_theta": 1}')
    with pytest.raises(UserError, match=r"base/config\.json: was altered after step train-warmup"):
        seals.check(run)
    write_text(run / "recipe.json", json.dumps(RECIPE))
    open_run(run)


@pytest.mark.parametrize("damage", [*DAMAGES, "written again"])
def test_damaged_manifest_stops_the_run(run: Path, damage: str) -> None:
    path = run / manifest.FILE_NAME
    if damage == "written again":
        path.unlink()
        manifest.record(run, "run started", {"recipe": "another"})
    elif damage == "edit":
        path.write_text(path.read_text().replace("train-warmup", "train-iteration"))
    elif damage == "flip":
        path.write_bytes(path.read_bytes().replace(b"step", b"stop", 1))
    elif damage == "append":
        path.write_bytes(path.read_bytes() + b"garbage\n")
    else:
        DAMAGES[damage](path)
    with pytest.raises(UserError, match=r"manifest\.jsonl.*--workdir"):
        start_run(run, RECIPE)


def test_manifest_removed_with_the_journals_stops_the_run(run: Path) -> None:
    (run / manifest.FILE_NAME).unlink()
    shutil.rmtree(run / "tracking")
    with pytest.raises(UserError, match=r"manifest\.jsonl: is missing or empty, but steps of the run are finished"):
        start_run(run, RECIPE)


def test_run_begins_in_a_directory_with_a_prepared_corpus_but_needs_its_manifest_later(tmp_path: Path) -> None:
    write_text(tmp_path / "corpus/digests.json", "{}")  # as hopforge search and recall leave it
    start_run(tmp_path, RECIPE, follow=False)
    (tmp_path / manifest.FILE_NAME).unlink()
    with pytest.raises(UserError, match=r"manifest\.jsonl.*--workdir"):
        start_run(tmp_path, RECIPE, follow=False)


def test_step_that_was_killed_while_writing_again_is_not_taken_for_altered(run: Path) -> None:
    with pytest.raises(KeyboardInterrupt), step_run(run, "eval-start"):
        write_text(run / FILES[0], '{"em": 0.25}')
        raise KeyboardInterrupt
    seals.check(run)
    with step_run(run, "eval-start") as step:
        step.seal(run / FILES[0])
    seals.check(run)
    write_text(run / FILES[0], '{"em": 0.24}')
    with pytest.raises(UserError, match=r"was altered after step eval-start.*\[run\.altered\]$"):
        seals.check(run)


def test_kill_between_manifest_and_journal_is_not_taken_for_damage(run: Path) -> None:
    journal = run / "tracking/steps/eval-start.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    path = run / manifest.FILE_NAME
    path.write_bytes(path.read_bytes() + b'{"sequence": 3, "ti')
    seals.check(run)
    with step_run(run, "eval-start") as step:
        step.seal(run / FILES[0])
    seals.check(run)


def test_unchanged_files_are_hashed_once_and_a_damaged_cache_is_ignored(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seals.check(run)
    read: list[Path] = []
    original = digests.sha256
    monkeypatch.setattr(digests, "sha256", lambda path: read.append(path) or original(path))
    seals.check(run)
    assert not read
    cache = run / "tracking" / digests.CACHE
    known = json.loads(cache.read_text())
    cache.write_text(json.dumps({name: [*entry[:3], "0" * 64] for name, entry in known.items()}))
    seals.check(run)
    assert {path.name for path in read} == {"scores.json", "model.safetensors", "config.json"}
    cache.write_text("{")
    seals.check(run)


def test_full_disk_ends_a_step_with_one_error(run: Path) -> None:
    with (
        pytest.raises(UserError, match="cannot be written: No space left on device"),
        step_run(run, "sample-warmup"),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")
