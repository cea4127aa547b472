"""A phase that several processes share ends as one that a single process samples, however often it is killed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.processes.launch import run_processes
from platform_sdk.record_files import read_jsonl, read_log
from platform_sdk.records import Rollout
from tests.methods.mygo import shared
from tests.sampling.tiny_models import save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(tmp_path_factory.mktemp("model")))


def alone(folder: Path, what: str, model: str) -> dict[str, Any]:
    """Run as a single process does, here, in JSON's types."""
    folder.mkdir()
    found: dict[str, Any] = json.loads(json.dumps(shared.sample(folder, what, model)))
    return found


def together(folder: Path, what: str, model: str, processes: int, dies: str = "", dies_at: int = 0) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    for path in folder.glob("made.*.json"):
        path.unlink()
    spec = {"what": what, "model": model, "dies": dies, "dies_at": dies_at}
    (folder / "spec.json").write_text(json.dumps(spec))
    run_processes("tests.methods.mygo.shared", folder / "spec.json", processes)
    outcome: dict[str, Any] = json.loads((folder / "outcome.json").read_text())
    return outcome


def made(folder: Path) -> list[list[str]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("made.*.json"))]


def names(folder: Path) -> list[str]:
    """Return the names of the rollouts in the phase's one file, in its order."""
    return [rollout.id for rollout in read_jsonl(folder / "rollouts.jsonl", Rollout)]


@pytest.mark.slow  # tests/chaos kills one process's iteration; below, one process resumes what several left
def test_killed_iteration_resumes_with_more_processes_to_the_same_end(model: str, tmp_path: Path) -> None:
    """The threshold follows from the first pass over all questions, so every process must have seen all of it."""
    expected = alone(tmp_path / "alone", "iteration", model)
    assert expected["threshold"][1] > 0.3, "the first pass has raised the threshold"
    assert expected["count"] > len(shared.QUESTIONS)
    folder = tmp_path / "together"
    with pytest.raises(UserError, match="process 1 of 2: ended by SIGKILL"):
        together(folder, "iteration", model, 2, dies="1", dies_at=5)  # in the first pass, where 11 are its
    first = {r.id for path in folder.glob("rollouts.share*.jsonl") for r in read_log(path, Rollout)}
    assert first
    assert together(folder, "iteration", model, 3) == expected
    last = [name for part in made(folder) for name in part]
    assert not first & set(last), "what was there was sampled again"
    assert set(names(folder)) == first | set(last)
    assert names(folder) == sorted(set(names(folder)))
    assert not list(folder.glob("rollouts.share*.jsonl"))
    # And one process finds nothing to do.
    assert shared.sample(folder, "iteration", model)["digest"] == expected["digest"]
    assert made(folder)[0] == []


@pytest.mark.slow
def test_warm_up_with_two_processes_equals_one_process(model: str, tmp_path: Path) -> None:
    expected = alone(tmp_path / "alone", "warmup", model)
    assert expected["count"] < 3 * len(shared.QUESTIONS), "it had enough before the questions' attempts were used up"
    assert together(tmp_path / "together", "warmup", model, 2) == expected
    parts = made(tmp_path / "together")
    assert all(parts)
    assert max(Counter(name for part in parts for name in part).values()) == 1


def test_single_process_resumes_from_rollouts_of_several(model: str, tmp_path: Path) -> None:
    expected = alone(tmp_path / "alone", "iteration", model)
    whole = list(read_jsonl(tmp_path / "alone/rollouts.jsonl", Rollout))
    folder = tmp_path / "several"
    folder.mkdir()
    header, *lines = (tmp_path / "alone/rollouts.jsonl").read_text().splitlines(keepends=True)
    (folder / "rollouts.jsonl").write_text(header + "".join(lines[:4]))
    (folder / "rollouts.share0.jsonl").write_text(header + "".join(lines[3:9]))  # the fourth: a kill amid collecting
    (folder / "rollouts.share1.jsonl").write_text(header + "".join(lines[9:12]) + lines[12][:40])
    outcome = json.loads(json.dumps(shared.sample(folder, "iteration", model)))
    assert outcome == expected
    assert len(made(folder)[0]) == len(whole) - 12
    assert [path.name for path in folder.glob("rollouts*.jsonl")] == ["rollouts.jsonl"]
