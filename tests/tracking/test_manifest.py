from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from platform_sdk.tracking import manifest


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for number in range(4):
        manifest.append(tmp_path, f"step {number}", {"data": str(number) * 64})
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
    assert [entry.event for entry in manifest.verify(run_dir, head=previous)] == [f"step {n}" for n in range(4)]


@pytest.mark.parametrize("field", ["time", "event", "digests", "previous", "hash", "sequence"])
def test_an_altered_field_is_found(run_dir: Path, field: str) -> None:
    content = lines(run_dir)
    entry = json.loads(content[1])
    entry[field] = {"digests": {"data": "f" * 64}, "sequence": 7}.get(field, "f" * 64)
    content[1] = json.dumps(entry) + "\n"
    (run_dir / "manifest.jsonl").write_text("".join(content))
    with pytest.raises(manifest.ManifestError, match=r"manifest\.jsonl:2: "):
        manifest.verify(run_dir)


def test_rewritten_entry_with_a_new_hash_breaks_the_chain(run_dir: Path) -> None:
    content = lines(run_dir)
    entry = json.loads(content[1])
    del entry["hash"]
    entry["digests"] = {"data": "f" * 64}
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    content[1] = json.dumps(entry | {"hash": hashlib.sha256(text.encode()).hexdigest()}) + "\n"
    (run_dir / "manifest.jsonl").write_text("".join(content))
    with pytest.raises(manifest.ManifestError, match=r"manifest\.jsonl:3: "):
        manifest.verify(run_dir)


def test_removed_moved_and_repeated_entries_are_found(run_dir: Path) -> None:
    a, b, c, d = lines(run_dir)
    for content in ([a, c, d], [a, c, b, d], [a, b, b, c, d], [b, c, d]):
        (run_dir / "manifest.jsonl").write_text("".join(content))
        with pytest.raises(manifest.ManifestError):
            manifest.verify(run_dir)


def test_a_chain_cut_short_is_found_by_its_published_head(run_dir: Path) -> None:
    head = json.loads(lines(run_dir)[-1])["hash"]
    (run_dir / "manifest.jsonl").write_text("".join(lines(run_dir)[:-1]))
    manifest.verify(run_dir)
    with pytest.raises(manifest.ManifestError, match="published head"):
        manifest.verify(run_dir, head=head)


def test_repeated_entry_is_recorded_once(run_dir: Path) -> None:
    head = json.loads(lines(run_dir)[-1])["hash"]
    assert manifest.append(run_dir, "step 1", {"data": "1" * 64}) == head
    assert len(lines(run_dir)) == 4
    assert manifest.append(run_dir, "step 1", {"data": "2" * 64}) != head


def test_a_line_cut_off_by_a_kill_is_dropped_but_a_broken_chain_is_refused(run_dir: Path) -> None:
    path = run_dir / "manifest.jsonl"
    path.write_text(path.read_text() + lines(run_dir)[0][:40])
    with pytest.raises(manifest.ManifestError, match="cut off"):
        manifest.verify(run_dir)
    manifest.append(run_dir, "after", {})
    assert [entry.event for entry in manifest.verify(run_dir)][-2:] == ["step 3", "after"]
    path.write_text("".join(lines(run_dir)[1:]))
    with pytest.raises(manifest.ManifestError):
        manifest.append(run_dir, "onto a broken chain", {})
