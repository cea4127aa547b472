"""A dozen damaged files, and places where nothing can be written; many more with ``python -m tests.e2e.damage``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e.runs import ROOT, environment

pytestmark = pytest.mark.e2e(minutes=1)
PLACES = ("a file", "below a file", "read-only", "full at 40k", "full at 1m", "full at 3m")
Rows = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Attempts by file and damage; their mounts are visible to no other process."""
    apart = ["unshare", "--mount"]
    may_mount = shutil.which("unshare") and subprocess.run([*apart, "true"], capture_output=True).returncode == 0
    # A process of its own: it forks, and this one has threads.
    done = subprocess.run(
        [*(apart if may_mount else []), sys.executable, "-m", "tests.e2e.damage", "--short", "--json"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr[-4000:]
    return {(row["damaged"]["file"], row["damaged"]["how"]): row for row in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("file", "how", "told"),
    [
        ("online/model/model.safetensors", "flip", "was altered after step online"),
        ("online/model/config.json", "edit", "was altered after step online"),
        ("online/model/tokenizer.json", "halve", "was altered after step online"),
        ("online/rollouts/0002.jsonl", "edit", "was altered after step online"),
        ("online/train.json", "empty", "was altered after step online"),
        ("eval-final/scores.json", "edit", "was altered after step eval-final"),
        ("eval-start/rollouts.jsonl", "remove", "is missing, but step eval-start had written it"),
        ("corpus/questions.train.jsonl", "append", "was altered after step corpus"),
        ("manifest.jsonl", "remove", "was cut short, removed or written again"),
        ("recipe.json", "halve", "is not valid JSON"),
        ("tracking/run.jsonl", "append", "is not UTF-8, so it was altered"),
    ],
)
def test_damaged_file_of_a_finished_run_ends_the_command_with_one_error(
    rows: Rows, file: str, how: str, told: str
) -> None:
    outcome = rows[file, how]["outcome"]
    assert outcome.startswith(f"error: run/{file}"), outcome
    assert told in outcome


def test_damaged_note_of_what_was_delivered_changes_nothing(rows: Rows) -> None:
    assert rows["tracking/mlflow.json", "flip"]["outcome"] == "equal"


@pytest.mark.parametrize("place", PLACES)
def test_place_that_cannot_be_written_ends_the_command_with_one_error(rows: Rows, place: str) -> None:
    outcome = rows["(the run directory)", place]["outcome"]
    if outcome.startswith("skipped: "):
        pytest.skip(outcome)
    assert outcome.startswith("error: "), outcome
    assert "--workdir" in outcome
