"""Two run directories of the same recipe and seeds, by an older hopforge and by this one: what is equal, what is not.

    python -m tests.extensions.compare_runs OLD_RUN NEW_RUN

Values that the older one did not record count as grown, and are named.
Models are compared by the digest of their weights' file. Exits with 1 if anything differs that is not a grown record.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platform_sdk.record_files import header, read_jsonl
from platform_sdk.records import Rollout

PATTERNS = ("*/rollouts.jsonl", "*/selected.jsonl", "*/rollouts/*.jsonl", "corpus/*.jsonl", "corpus/digests.json",
            "*/scores.json", "*/figures.json", "*/train.json", "*/updates.jsonl", "**/*.safetensors")  # fmt: skip
SKIPPED = ("seconds", "second", "path", "time")  # the last word of such a key: says when, how long or where
# Digests of rollouts, which change where a record grew; the rollouts themselves are compared field by field.
GROWN = ("inputs", "sha256", "examples_digest", "rollouts_digest", "rollouts")
SHOWN = 5  # so many examples of each difference


def compare(old: Path, new: Path) -> bool:
    """Print what is equal and what differs; return True if nothing differs that is not a grown record."""
    names = [{str(p.relative_to(run)) for pattern in PATTERNS for p in run.glob(pattern)} for run in (old, new)]
    same = True
    if not names[0] & names[1]:
        print(f"nothing to compare: {old} and {new} share no file")
        return False
    for name in sorted(names[0] | names[1]):
        if not (name in names[0] and name in names[1]):
            print(f"DIFFERS  {name}: only in {'the old' if name in names[0] else 'the new'} run")
            same = False
            continue
        found, grown = Counter[str](), Counter[str]()
        examples: dict[str, list[str]] = {}
        count = 0
        for key, one, other in _values(old / name, new / name):
            count += 1
            if one == other:
                continue
            field = ".".join("*" if part.isdigit() else part for part in key.split("/")[1:]) or key
            if _is_grown(key.rsplit("/", 1)[-1], one, other):
                grown[field] += 1
            else:
                found[field] += 1
                examples.setdefault(field, []).append(f"{key}: {_short(one)} -> {_short(other)}")
        more = f" (grown: {', '.join(f'{field} {n}×' for field, n in grown.items())})" if grown else ""
        print(f"{'DIFFERS' if found else 'equal  '}  {name}: {count} values{more}")
        for field, times in found.items():
            print(f"    {field}, {times}×", *examples[field][:SHOWN], sep="\n      ")
        same = same and not found
    return same


def _values(old: Path, new: Path) -> Iterator[tuple[str, Any, Any]]:
    """Yield ``(place, old value, new value)`` of every leaf of two files."""
    if old.suffix == ".safetensors":
        yield "sha256 of the weights", *(hashlib.sha256(path.read_bytes()).hexdigest() for path in (old, new))
        return
    one, other = (_leaves("", _content(path)) for path in (old, new))
    left, right = dict(one), dict(other)
    for key in {**left, **right}:
        yield key, left.get(key, "(missing)"), right.get(key, "(missing)")


def _content(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    with path.open("rb") as stream:
        first = stream.readline().strip().decode()
    if first == header(Rollout):
        # Several processes may write a phase's rollouts in any order; their ids name them.
        ordered = sorted(read_jsonl(path, Rollout), key=lambda rollout: rollout.id)
        return {f"{place}:{one.id}": one.model_dump(mode="json") for place, one in enumerate(ordered)}
    return {str(number): json.loads(line) for number, line in enumerate(path.read_bytes().splitlines())}


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (dict, list)) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in pairs:
            if isinstance(name, int) or name.rsplit("_", 1)[-1] not in SKIPPED:
                yield from _leaves(f"{key}/{name}" if key else str(name), inner)
    elif not (isinstance(value, str) and value.startswith("/")):
        yield key, value


def _is_grown(name: str, old: Any, new: Any) -> bool:
    """Return True for what the old run did not record, a null that is left out, and a digest over grown records."""
    digests = all(isinstance(one, str) and len(one) == 64 for one in (old, new))
    return old == "(missing)" or (old is None and new == "(missing)") or (name in GROWN and digests)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old_run", type=Path)
    parser.add_argument("new_run", type=Path)
    given = parser.parse_args()
    sys.exit(0 if compare(given.old_run, given.new_run) else 1)
