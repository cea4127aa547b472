from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.tracking.journal import Journal, all_events, read, run_file, step_file


def test_repeated_metrics_are_recorded_once_and_state_changes_always(tmp_path: Path) -> None:
    path = tmp_path / "step.jsonl"
    for _ in range(2):  # a step, and the same step after a kill
        journal = Journal(path)
        journal.append("started", name="step")
        journal.append("metrics", metrics={"loss": 1.5}, iteration=1)
        journal.append("metrics", metrics={"loss": 1.5}, iteration=1)
    journal.append("metrics", metrics={"loss": 1.25}, iteration=1)
    events, _ = read(path)
    assert [event["event"] for event in events] == ["started", "metrics", "started", "metrics"]
    assert [event["metrics"]["loss"] for event in events if event["event"] == "metrics"] == [1.5, 1.25]


def test_a_line_cut_off_by_a_kill_is_neither_read_nor_kept(tmp_path: Path) -> None:
    path = tmp_path / "step.jsonl"
    Journal(path).append("started", name="step")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    events, offset = read(path)
    assert len(events) == 1
    assert offset == len(whole)
    Journal(path).append("ended", status="FINISHED")
    events, _ = read(path, offset)
    assert [event["event"] for event in events] == ["ended"]


def test_event_for_which_the_disk_has_no_space_leaves_no_part_and_can_be_recorded_later(tmp_path: Path) -> None:
    path = tmp_path / "step.jsonl"
    journal = Journal(path)
    journal.append("started", name="step")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))  # part of the next line
    try:
        with pytest.raises(OSError, match="File too large"):
            journal.append("metrics", metrics={"loss": 1.5}, iteration=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    journal.append("metrics", metrics={"loss": 1.5}, iteration=1)
    assert [event["event"] for event in read(path)[0]] == ["started", "metrics"]


@pytest.mark.parametrize(
    ("event", "first", "second"),
    [
        ("tags", {"tags": {"mlflow.user": "ann"}}, {"tags": {"mlflow.user": "bob"}}),
        ("artifact", {"path": "/runs/a/environment.json", "digest": "1"}, {"path": "/runs/a/environment.json"}),
        ("note", {"text": "em 10 to 20"}, {"text": "em 10 to 30"}),
    ],
)
def test_event_that_returns_to_an_earlier_value_is_recorded_again(
    tmp_path: Path, event: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    path = tmp_path / "run.jsonl"
    for fields in (first, first, second, first):
        journal = Journal(path)
        journal.append(event, **fields)
        journal.append("tags", tags={"other": "1"})
        journal.append("artifact", path="/runs/a/other.json", digest="2")
    recorded = [one for one in read(path)[0] if "other" not in str(one)]
    assert [{name: one[name] for name in one if name not in ("event", "time")} for one in recorded] == [
        first, second, first,
    ]  # fmt: skip


def test_tag_that_another_event_set_in_between_is_recorded_again(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for tags in ({"a": "1", "b": "1"}, {"a": "2"}, {"a": "1", "b": "1"}, {"b": "1"}):
        Journal(path).append("tags", tags=tags)
    assert [event["tags"] for event in read(path)[0]] == [{"a": "1", "b": "1"}, {"a": "2"}, {"a": "1", "b": "1"}]


def test_damaged_line_is_named_by_its_number_or_from_an_offset_by_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "step.jsonl"
    path.write_text('{"event": "a", "time": 1}\nbad\n')
    for offset, place in ((0, "step.jsonl:2: is"), (26, "step.jsonl: line 1 after byte 26: is")):
        with pytest.raises(UserError, match=place):
            read(path, offset)


def test_events_without_metrics_are_all_others_in_their_order(tmp_path: Path) -> None:
    Journal(run_file(tmp_path)).append("note", text='{"event": "metrics"}', at=1)
    step = Journal(step_file(tmp_path, "train"))
    step.append("metrics", metrics={"loss": 1.5}, iteration=1, at=2)
    step.append("tags", tags={"event": "metrics"}, at=3)
    everything = all_events(tmp_path)
    assert [event["event"] for event in everything] == ["note", "metrics", "tags"]
    assert all_events(tmp_path, metrics=False) == [everything[0], everything[2]]


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "a b"])
def test_a_step_name_is_a_file_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="step name"):
        step_file(tmp_path, name)


def test_steps_do_not_import_mlflow() -> None:
    code = "import sys, platform_sdk.tracking, platform_sdk.tracking.listing; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
