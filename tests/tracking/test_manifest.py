from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from platform_sdk.tracking import manifest
from platform_sdk.tracking.journal import Journal, run_file
from platform_sdk.tracking.seals import head_faults
from platform_sdk.tracking.verify_files import read_chain


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for number in range(4):
        manifest.record(tmp_path, f"step {number}", {"data": str(number) * 64})
    return tmp_path


def lines(run_dir: Path) -> list[str]:
    return (run_dir / "manifest.jsonl").read_text().splitlines(keepends=True)


def test_chain_equals_its_definition(run_dir: Path) -> None:
    previous = "0" * 64
    for number, line in enumerate(lines(run_dir)):
        entry = json.loads(line)
        claimed = entry.pop("hash")
        assert entry["sequence"] == number
        assert entry["previous"] == previous
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert claimed == hashlib.sha256(text.encode()).hexdigest()
        previous = claimed
    entries = manifest.read(run_dir)
    assert [entry.event for entry in entries] == [f"step {n}" for n in range(4)]
    assert entries[-1].hash == previous


@pytest.mark.parametrize("field", ["time", "event", "digests", "previous", "hash", "sequence"])
def test_an_altered_field_is_found(run_dir: Path, field: str) -> None:
    content = lines(run_dir)
    entry = json.loads(content[1])
    entry[field] = {"digests": {"data": "f" * 64}, "sequence": 7}.get(field, "f" * 64)
    content[1] = json.dumps(entry) + "\n"
    (run_dir / "manifest.jsonl").write_text("".join(content))
    with pytest.raises(manifest.ManifestError, match=r"manifest\.jsonl:2: "):
        manifest.read(run_dir)


def test_rewritten_entry_with_a_new_hash_breaks_the_chain(run_dir: Path) -> None:
    content = lines(run_dir)
    entry = json.loads(content[1])
    del entry["hash"]
    entry["digests"] = {"data": "f" * 64}
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    content[1] = json.dumps(entry | {"hash": hashlib.sha256(text.encode()).hexdigest()}) + "\n"
    (run_dir / "manifest.jsonl").write_text("".join(content))
    with pytest.raises(manifest.ManifestError, match=r"manifest\.jsonl:3: "):
        manifest.read(run_dir)


def test_removed_moved_and_repeated_entries_are_found(run_dir: Path) -> None:
    a, b, c, d = lines(run_dir)
    for content in ([a, c, d], [a, c, b, d], [a, b, b, c, d], [b, c, d]):
        (run_dir / "manifest.jsonl").write_text("".join(content))
        with pytest.raises(manifest.ManifestError):
            manifest.read(run_dir)


def test_a_chain_cut_short_is_found_by_its_published_head(run_dir: Path) -> None:
    entries = manifest.read(run_dir)
    Journal(run_file(run_dir)).append("ended", manifest_head=entries[-1].head)
    assert not list(head_faults(run_dir, entries))
    (run_dir / "manifest.jsonl").write_text("".join(lines(run_dir)[:-1]))
    [fault] = head_faults(run_dir, manifest.read(run_dir))
    assert "it was cut short" in fault.reason


def test_repeated_entry_is_recorded_once(run_dir: Path) -> None:
    head = json.loads(lines(run_dir)[-1])["hash"]
    assert manifest.record(run_dir, "step 1", {"data": "1" * 64}).hash == head
    assert len(lines(run_dir)) == 4
    assert manifest.record(run_dir, "step 1", {"data": "2" * 64}).hash != head


def test_a_line_cut_off_by_a_kill_is_dropped_but_a_broken_chain_is_refused(run_dir: Path) -> None:
    path = run_dir / "manifest.jsonl"
    path.write_text(path.read_text() + lines(run_dir)[0][:40])
    assert read_chain(path).faults == ["the last line is cut off"]
    manifest.record(run_dir, "after", {})
    assert read_chain(path).faults == []
    assert [entry.event for entry in manifest.read(run_dir)][-2:] == ["step 3", "after"]
    path.write_text("".join(lines(run_dir)[1:]))
    with pytest.raises(manifest.ManifestError):
        manifest.record(run_dir, "onto a broken chain", {})
