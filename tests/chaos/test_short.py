"""A few kills at the worst moments of MyGO's run; tests/extensions kills an online run.

Many kills at random moments, also of ARENA's run, are in ``test_long.py`` and in ``python -m tests.chaos``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.chaos.command import kill_short_run

pytestmark = pytest.mark.e2e(minutes=2)


def test_run_killed_at_the_worst_moments_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    undisturbed, killed = kill_short_run("mygo", tmp_path)
    assert undisturbed["strikes"] == []
    # The command itself is killed twice at least; whether the follower is at work by itself at its moment, or the
    # command delivers the end, is up to the machine.
    assert len(killed["strikes"]) >= 2
    assert killed["starts"] >= 3
    # The worker's processes log hopforge's own information.
    texts = [log.read_text() for log in tmp_path.glob("**/logs/*.log")]
    assert any(re.search(r"^INFO: model .*rows at a time", text, re.MULTILINE) for text in texts), len(texts)
    assert any(re.search(r"^INFO: iteration-01: \d+ examples, ", text, re.MULTILINE) for text in texts), len(texts)
