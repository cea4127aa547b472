"""Rollouts of schema 1: converted without a guess, or refused with the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.record_conversion import convert_file
from platform_sdk.record_files import RecordError, read_jsonl
from platform_sdk.records import Question, Rollout, Trajectory
from tests.recipes.played import played

HEADER = {"record": "rollout", "schema": 1}


def as_schema_1(rollout: Rollout) -> dict[str, Any]:
    """Write a rollout as schema 1 did: evidence in one list, no queries and calls."""

    def old(trajectory: Trajectory) -> dict[str, Any]:
        dumped = trajectory.model_dump(mode="json", exclude={"turns"})
        turns = [turn.model_dump(mode="json", exclude={"queries", "evidence", "calls"}) for turn in trajectory.turns]
        return dumped | {"turns": turns, "evidence": [item.model_dump(mode="json") for item in trajectory.evidence]}

    dumped = rollout.model_dump(mode="json", exclude={"main", "others"})
    return dumped | {"planner": old(rollout.main), "workers": [old(other) for other in rollout.others]}


def without_queries(rollout: Rollout) -> Rollout:
    def bare(trajectory: Trajectory) -> Trajectory:
        turns = tuple(turn.model_copy(update={"queries": ()}) for turn in trajectory.turns)
        return trajectory.model_copy(update={"turns": turns})

    return rollout.model_copy(
        update={"main": bare(rollout.main), "others": tuple(bare(other) for other in rollout.others)}
    )


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEADER, *records)))
    return path


@pytest.mark.parametrize("recorded", [True, False])
def test_every_method_is_converted_to_what_is_sampled_today(recorded: bool, tmp_path: Path) -> None:
    rollouts = played()
    old = [as_schema_1(rollout) for rollout in rollouts.values()]
    if not recorded:  # schema 1 left out the passages that these two strategies are given
        for record in old[-2:]:
            for trajectory in (record["planner"], *record["workers"]):
                trajectory["evidence"] = []
    source = write(tmp_path / "old.jsonl", *old)
    done = CliRunner().invoke(app, ["convert", str(source), "-o", str(tmp_path / "new.jsonl")])
    assert done.exit_code == 0, done.output
    found = list(read_jsonl(tmp_path / "new.jsonl", Rollout))
    assert found == [without_queries(rollout) for rollout in rollouts.values()]


def small(**changes: Any) -> dict[str, Any]:
    """A rollout of schema 1 by hand: two turns of the planner, the first one malformed; a worker of the second."""

    def turns(*said: tuple[str, str, str | None]) -> list[dict[str, Any]]:
        return [{"speaker": who, "text": text, "start": 0, "end": 0, "malformed": bad} for who, text, bad in said]

    def trajectory(role: str, id: str, *said: tuple[str, str, str | None]) -> dict[str, Any]:
        return {
            "role": role, "id": id, "token_ids": [], "agent_mask": [], "logprobs": [], "turns": turns(*said),
            "evidence": [], "selected": [], "answer": None,
        }  # fmt: skip

    first = {"kind": "passage", "id": "p0", "title": "A", "text": "first", "score": 0.5}
    second = {"kind": "passage", "id": "p1", "title": "", "text": "", "score": 0.25}
    planner = trajectory(
        "planner", "planner", ("environment", "Question", None), ("agent", "?", "no tags"),
        ("environment", "Obs: [0] A : first", None), ("agent", "search", None),
        ("environment", "Obs: [0] A : first\n[1]  : ", None),
    )  # fmt: skip
    worker = trajectory("worker", changes.get("worker", "1.0"), ("environment", "Question\n[0]  : ", None))
    planner["evidence"] = [first, first, second][: changes.get("pieces", 3)]
    worker["evidence"] = [changes.get("shown", second)]
    question = Question(id="q", text="?", answers=("a",), dataset="d").model_dump(mode="json")
    return {
        "question": question, "attempt": 0, "seed": 1, "planner": planner, "workers": [worker],
        "outcome": "iteration_limit", "rewards": {"em": 0.0}, "weights": "w", "corpus": "c",
    }  # fmt: skip


def test_evidence_is_placed_in_order_even_where_its_text_is_repeated_or_empty(tmp_path: Path) -> None:
    convert_file(write(tmp_path / "old.jsonl", small()), tmp_path / "new.jsonl")
    [rollout] = read_jsonl(tmp_path / "new.jsonl", Rollout)
    assert [[item.id for item in turn.evidence] for turn in rollout.main.turns] == [[], [], ["p0"], [], ["p0", "p1"]]
    assert [turn.calls for turn in rollout.main.turns] == [(), (), (), ("1.0",), ()]
    assert [item.id for item in rollout.others[0].evidence] == ["p1"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shown": {"kind": "passage", "id": "p9", "title": "B", "text": "else", "score": 1.0}}, "shows p9"),
        ({"worker": "0.0"}, "no turn of the planner called 0.0"),  # its turn is malformed
        ({"worker": "2.0"}, "no turn of the planner called 2.0"),
        ({"worker": "probe"}, "no turn of the planner called probe"),
    ],
)
def test_schema_1_line_that_lacks_information_is_refused_by_line(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    source = write(tmp_path / "old.jsonl", small(), small(**changes))
    with pytest.raises(RecordError, match=f"old.jsonl:3: .*{reason}"):
        convert_file(source, tmp_path / "new.jsonl")
    assert not (tmp_path / "new.jsonl").exists()


def test_a_file_of_schema_1_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    source = write(tmp_path / "old.jsonl", small())
    with pytest.raises(RecordError, match="hopforge convert FILE -o NEW_FILE"):
        list(read_jsonl(source, Rollout))


def test_conversion_neither_overwrites_nor_converts_twice(tmp_path: Path) -> None:
    source = write(tmp_path / "old.jsonl", small())
    convert_file(source, tmp_path / "new.jsonl")
    with pytest.raises(RecordError, match="is of schema 2 already"):
        convert_file(tmp_path / "new.jsonl", tmp_path / "other.jsonl")
    with pytest.raises(UserError, match="already exists"):
        convert_file(source, tmp_path / "new.jsonl")
