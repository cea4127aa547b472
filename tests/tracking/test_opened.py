"""The entrance to a run: what is compared, what the error says, and what the cache of verified files cannot hide."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from platform_sdk.errors import UserError
from platform_sdk.files import write_text
from platform_sdk.tracking import digests, manifest, runs, seals
from platform_sdk.tracking.completion import complete_since
from platform_sdk.tracking.journal import Journal, run_file
from platform_sdk.tracking.opened import open_run
from platform_sdk.tracking.runs import start_run, step_run

RECIPE = {"pipeline": "p", "name": "r", "parameters": {"seed": 0, "rate": 0.5}}
SCORES = "eval-final/scores.json"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of two steps, whose files are older than the cache's margin."""
    monkeypatch.setattr(runs, "_start_follower", lambda run_dir: None)
    monkeypatch.setenv("HOPFORGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "SETTLED_NS", 0)
    return finished(tmp_path / "run")


def finished(run_dir: Path, files: int = 2) -> Path:
    write_text(run_dir / "recipe.json", json.dumps(RECIPE))
    start_run(run_dir, RECIPE)
    with step_run(run_dir, "corpus") as step:
        for number in range(files):
            (run_dir / "corpus").mkdir(exist_ok=True)
            (run_dir / f"corpus/{number}.jsonl").write_text("passage\n")
        step.seal(run_dir / "corpus")
    with step_run(run_dir, "eval-final") as step:
        write_text(run_dir / SCORES, '{"em": 0.25}')
        step.seal(run_dir / SCORES)
    journal = Journal(run_file(run_dir))
    steps = seals.seal(run_dir, [run_dir / "tracking/steps"])
    ended = manifest.record(run_dir, "run ended: FINISHED", {}, steps, journal=journal.path)
    journal.append("ended", status="FINISHED", manifest_head=ended.head)
    return run_dir


def edited(name: str, old: str, new: str) -> Callable[[Path], object]:
    def edit(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new))

    return edit


def cut_last_line(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "scores": (edited(SCORES, "0.25", "0.99"), SCORES),
    "scores deleted": (lambda run: (run / SCORES).unlink(), SCORES),
    "seed of the recipe": (edited("recipe.json", '"seed": 0', '"seed": 1'), "recipe.json"),
    "recipe deleted": (lambda run: (run / "recipe.json").unlink(), "recipe.json"),
    "recipe cut": (lambda run: (run / "recipe.json").write_text("{"), "recipe.json"),
    "environment": (edited("tracking/environment.json", '"python"', '"piethon"'), "tracking/environment.json"),
    "environment deleted": (lambda run: (run / "tracking/environment.json").unlink(), "tracking/environment.json"),
    "manifest": (edited("manifest.jsonl", "eval-final", "eval-other"), "manifest.jsonl"),
    "manifest emptied": (lambda run: (run / "manifest.jsonl").write_text(""), "manifest.jsonl"),
    "manifest deleted": (lambda run: (run / "manifest.jsonl").unlink(), "manifest.jsonl"),
    "time in the journal of an ended run": (
        edited("tracking/run.jsonl", '"time": 1', '"time": 2'),
        "tracking/run.jsonl",
    ),
    "journal of a step": (
        edited("tracking/steps/corpus.jsonl", '"time": 1', '"time": 2'),
        "tracking/steps/corpus.jsonl",
    ),
    "journal deleted": (lambda run: run_file(run).unlink(), "tracking/run.jsonl"),
    "journal cut": (lambda run: cut_last_line(run_file(run)), "tracking/run.jsonl"),
    "journal garbled": (lambda run: run_file(run).write_text("{}\n"), "tracking/run.jsonl"),
    "phase added": (lambda run: write_text(run / "eval-u0001/scores.json", "{}"), "eval-u0001/scores.json"),
    "step reported as failed to hide an edit": (
        lambda run: (
            edited("tracking/steps/eval-final.jsonl", '"FINISHED"', '"FAILED"')(run),
            edited(SCORES, "0.25", "0.99")(run),
        ),
        SCORES,
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_altered_run_opens_only_on_request_with_a_warning(attack: str, run: Path) -> None:
    assert open_run(run).altered == ()
    alter, name = ATTACKS[attack]
    alter(run)
    with pytest.raises(UserError) as refused:
        open_run(run, altered=False)
    told = str(refused.value)
    assert told.startswith(f"{run / name}: ")
    assert "\n" not in told
    if attack == "recipe deleted":
        assert "is missing, but the manifest reports a started run; restore it" in told
        return
    assert "intact" in told or "cannot be verified" in told
    assert told.endswith("or add --altered to read the run as it is, with a warning in every output [run.altered]")
    with pytest.raises(UserError) as refused:  # a command without the option does not name it
        open_run(run)
    assert "--altered" not in str(refused.value)
    if attack != "recipe cut":  # there is no recipe to show
        assert any(report.startswith(f"{run / name}: ") for report in open_run(run, altered=True).altered)


def test_directory_without_manifest_and_journal_opens_with_a_warning(run: Path) -> None:
    (run / "manifest.jsonl").unlink()
    shutil.rmtree(run / "tracking")
    [report] = open_run(run).altered
    assert report == f"{run}: contains no manifest and no journal, so its files cannot be verified"


def test_message_counts_other_altered_files_and_intact_ones(run: Path) -> None:
    for name in (SCORES, "corpus/0.jsonl"):
        (run / name).write_text("other")
    with pytest.raises(UserError, match=r"corpus/0\.jsonl: .*, and so was scores\.json \(the other 1 sealed files are"):
        open_run(run)


def test_edit_that_keeps_size_and_modification_time_is_found(run: Path) -> None:
    open_run(run)
    path = run / SCORES
    times = path.stat()
    path.write_text(path.read_text().replace("0.25", "0.99"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(UserError, match="was altered after step eval-final"):
        open_run(run)


def test_file_that_changed_just_before_it_was_read_is_not_cached(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "SETTLED_NS", 3600 * 10**9)
    open_run(run)
    assert not (run / "tracking" / digests.VERIFIED).exists()


def test_forged_foreign_or_damaged_cache_makes_a_full_check(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time.sleep(0.01)
    open_run(run)
    cache = run / "tracking" / digests.VERIFIED
    genuine = json.loads(cache.read_text())
    sealed = genuine["files"][SCORES][-1]
    (run / SCORES).write_text('{"em": 0.99}')
    status = (run / SCORES).stat()
    entry = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, sealed]
    forged = genuine | {"files": genuine["files"] | {SCORES: entry}}
    for content in (json.dumps(forged), json.dumps(forged["files"]), "{", "[]", json.dumps({"files": {}, "hmac": 1})):
        cache.write_text(content)
        with pytest.raises(UserError, match="was altered after step eval-final"):
            open_run(run)
    # Authenticated by another user's key:
    monkeypatch.setenv("HOPFORGE_CACHE", str(run.parent / "other"))
    digest = digests.VerifiedDigests(run)
    cache.write_text(json.dumps({"hmac": digest._hmac(forged["files"]), "files": forged["files"]}))
    monkeypatch.setenv("HOPFORGE_CACHE", str(run.parent / "cache"))
    with pytest.raises(UserError, match="was altered after step eval-final"):
        open_run(run)


def test_key_that_others_can_read_is_not_used(run: Path) -> None:
    open_run(run)
    (run.parent / "cache" / digests.KEY).chmod(0o644)
    (run / "tracking" / digests.VERIFIED).unlink()
    open_run(run)
    assert not (run / "tracking" / digests.VERIFIED).exists()


def test_unchanged_files_are_not_read_again_unless_a_full_check_is_wanted(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time.sleep(0.01)
    open_run(run)
    read: list[Path] = []
    original = digests.sha256
    monkeypatch.setattr(digests, "sha256", lambda path: read.append(path) or original(path))
    open_run(run)
    assert read == []
    open_run(run, full=True)
    assert {path.name for path in read} == {"0.jsonl", "1.jsonl", "scores.json"}


def test_run_of_a_hundred_thousand_rollouts_is_verified_again_within_two_seconds(run: Path, tmp_path: Path) -> None:
    large = finished(tmp_path / "large", files=2000)  # updates of 50 rollouts
    time.sleep(0.01)
    open_run(large)
    began = time.process_time()
    open_run(large)
    assert time.process_time() - began < 2


def test_finished_run_that_was_moved_is_still_finished(run: Path, tmp_path: Path) -> None:
    write_text(run / "logs/corpus.log", "")
    assert complete_since(run, ["corpus"]) is not None
    moved = tmp_path / "elsewhere/run"
    shutil.copytree(run, moved)
    shutil.rmtree(run)
    assert complete_since(moved, ["corpus"]) is not None
    assert open_run(moved).finished
