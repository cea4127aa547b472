from __future__ import annotations

from pathlib import Path

from platform_sdk.training.checkpoints import latest, seal


def test_the_checkpoint_with_the_most_steps_is_the_latest(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    for name in ("checkpoint-9", "checkpoint-10", ".checkpoint-11.writing", "checkpoint-12.old"):
        (tmp_path / name).mkdir()
        seal(tmp_path / name)
    assert latest(tmp_path) == tmp_path / "checkpoint-10"


def test_a_checkpoint_without_its_digests_is_not_used(tmp_path: Path) -> None:
    for name in ("checkpoint-9", "checkpoint-10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
        seal(tmp_path / name)
    (tmp_path / "checkpoint-10/digests.json").unlink()
    assert latest(tmp_path) == tmp_path / "checkpoint-9"
