from __future__ import annotations

from pathlib import Path

from platform_sdk.training.checkpoints import latest


def test_the_checkpoint_with_the_most_steps_is_the_latest(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    for name in ("checkpoint-9", "checkpoint-10", ".checkpoint-11.writing", "checkpoint-12.old"):
        (tmp_path / name).mkdir()
    assert latest(tmp_path) == tmp_path / "checkpoint-10"
