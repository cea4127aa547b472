"""The file of an online phase's updates, and the curves that are drawn of it while it grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.tracking import following as module
from platform_sdk.tracking.following import following
from platform_sdk.tracking.journal import read, step_file
from platform_sdk.tracking.runs import step_run
from platform_sdk.tracking.step import StepRun
from platform_sdk.tracking.updates import FILE, Update, append_update, keep_updates, read_updates
from tests.process_watch import wait_for


def update(number: int, reward: float = 0.5) -> Update:
    return Update(
        update=number, mean_reward=reward, rewards={"reward": reward, "em": 0.25}, zero_variance=0.0, rollouts=12,
        trajectories=12, tokens_sampled=40, tokens_trained=40, truncated=0, dropped=0, loss=0.1, kl=None,
        clip_fraction=0.0, statistics={"ratio": 1.0}, learning_rate=1e-6, grad_norm=2.0, sampling_seconds=1.0,
        training_seconds=2.0, sync_seconds=0.5, weights=f"w{number}",
    )  # fmt: skip


def points(run_dir: Path) -> list[tuple[int, float]]:
    """Return the updates and mean rewards that a step's journal has."""
    events = [event for event in read(step_file(run_dir, "online"))[0] if event["event"] == "metrics"]
    figures = [(event["iteration"], event["metrics"]) for event in events]
    return [(update, found["online/mean_reward"]) for update, found in figures if "online/mean_reward" in found]


def test_updates_are_read_as_they_were_written_and_a_torn_line_does_not_count(tmp_path: Path) -> None:
    assert read_updates(tmp_path) == []
    for number in (1, 2, 3):
        append_update(tmp_path, update(number))
    with (tmp_path / FILE).open("a") as stream:
        stream.write('{"update": 4, "mean_')
    assert read_updates(tmp_path) == [update(1), update(2), update(3)]
    keep_updates(tmp_path, 2)
    append_update(tmp_path, update(3, reward=0.75))
    assert read_updates(tmp_path) == [update(1), update(2), update(3, reward=0.75)]


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    append_update(tmp_path, update(1))
    with (tmp_path / FILE).open("a") as stream:
        stream.write('{"update": "x"}\n')
    with pytest.raises(UserError, match=r"updates\.jsonl:2: update: "):
        read_updates(tmp_path)


def test_altered_figure_is_detected_and_altered_time_ignored(tmp_path: Path) -> None:
    for number in (1, 2):
        append_update(tmp_path, update(number))
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace('"sync_seconds":0.5', '"sync_seconds":0.6'))
    assert [one.sync_seconds for one in read_updates(tmp_path)] == [0.6, 0.6]
    (tmp_path / FILE).write_text(text[::-1].replace('"loss":0.1'[::-1], '"loss":0.2'[::-1], 1)[::-1])
    with pytest.raises(UserError, match=r"updates\.jsonl:2: was altered"):
        read_updates(tmp_path)


def test_the_lines_of_a_growing_file_become_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)

    with step_run(tmp_path, "online") as step, following(step, tmp_path / FILE, axis="update", phase="online"):
        append_update(tmp_path, update(1))
        wait_for(lambda: points(tmp_path) == [(1, 0.5)])
        append_update(tmp_path, update(2, reward=0.75))
        with (tmp_path / FILE).open("a") as stream:
            stream.write('{"update": 3')
    assert points(tmp_path) == [(1, 0.5), (2, 0.75)]


def test_lines_of_a_growing_file_are_logged_once_and_again_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    logged: list[list[int]] = []
    monkeypatch.setattr(StepRun, "log_curve", lambda _, rows, **__: logged.append([row["update"] for row in rows]))

    def wait_until_logged(numbers: list[int]) -> None:
        wait_for(lambda: numbers in logged)

    with step_run(tmp_path, "online") as step, following(step, tmp_path / FILE, axis="update", phase="online"):
        for number in (1, 2, 3):
            append_update(tmp_path, update(number))
            wait_until_logged([number])
        keep_updates(tmp_path, 1)
        append_update(tmp_path, update(2, reward=0.75))
        wait_until_logged([2])
    assert [rows for rows in logged if rows] == [[1], [2], [3], [2]]


def test_updates_before_a_failure_are_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="no more"),
        step_run(tmp_path, "online") as step,
        following(step, tmp_path / FILE, axis="update", phase="online"),
    ):
        append_update(tmp_path, update(1))
        raise UserError("no more")
    assert points(tmp_path) == [(1, 0.5)]


def test_updates_of_an_earlier_attempt_are_reported_after_their_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    append_update(tmp_path, update(1))
    with (
        pytest.raises(UserError, match="altered"),
        step_run(tmp_path, "online") as step,
        following(step, tmp_path / FILE, axis="update", phase="online"),
    ):
        raise UserError("altered")
    assert points(tmp_path) == []
    with step_run(tmp_path, "online") as step, following(step, tmp_path / FILE, axis="update", phase="online"):
        keep_updates(tmp_path, 1)
        wait_for(lambda: points(tmp_path) == [(1, 0.5)])
