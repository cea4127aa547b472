"""A job of online training finds its method's room, in this process and by the file that several start with."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from platform_sdk.recipes import jobs
from platform_sdk.recipes.__main__ import work
from platform_sdk.recipes.jobs import OnlineJob, launch
from platform_sdk.training.online.loop import OnlineResult


class EvaluationSpec(BaseModel):
    temperature: float = 0.0


RESULT = OnlineResult(model="m", inputs="i", weights="w", parents={}, updates=3)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A method ``toy`` that notes how it is called."""
    called: list[tuple[Any, ...]] = []

    def read(*arguments: Any) -> tuple[Any, ...]:
        return arguments

    def learn(setting: tuple[Any, ...], *arguments: Any) -> OnlineResult:
        called.append((setting, *arguments))
        folder = setting[0] / arguments[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.json").write_text(RESULT.model_dump_json())
        return RESULT

    steps: Any = types.ModuleType("steps")
    steps.Setting, steps.online = types.SimpleNamespace(read=read), learn
    settings: Any = types.ModuleType("settings")
    settings.EvaluationSpec = EvaluationSpec
    monkeypatch.setitem(sys.modules, "platform_sdk.recipes.toy.steps", steps)
    monkeypatch.setitem(sys.modules, "platform_sdk.recipes.toy.settings", settings)
    return called


def job(run_dir: Path, processes: int = 1, **change: Any) -> OnlineJob:
    content = {
        "method": "toy", "run_dir": run_dir, "phase": "online", "model": "a/model", "environment": "world-text",
        "agent": {"form": "direct"}, "sampling": {"temperature": 0.9}, "retrieval": {"index": None},
        "corpus_digest": "c", "seed": 4, "online": {"updates": 3, "device": "cpu", "processes": processes},
        "evaluation": {"temperature": 0.5},
    }  # fmt: skip
    return OnlineJob.model_validate({**content, **change})


def test_a_job_calls_its_methods_step(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    given = job(tmp_path)
    assert launch(given) == RESULT
    setting = (tmp_path, "world-text", {"form": "direct"}, {"temperature": 0.9}, {"index": None}, "c", 4)
    assert calls == [(setting, "online", "a/model", given.online, EvaluationSpec(temperature=0.5))]
    assert not (tmp_path / "online" / "job.json").exists()


def test_several_processes_read_the_same_job_from_a_file(
    tmp_path: Path, calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, int]] = []

    def run_processes(module: str, spec_file: Path, processes: int) -> None:
        started.append((module, processes))
        work(spec_file)

    monkeypatch.setattr(jobs, "run_processes", run_processes)
    launch(job(tmp_path))
    given = job(tmp_path, processes=2)
    assert launch(given) == RESULT
    assert started == [("platform_sdk.recipes", 2)]
    assert calls[1] == (*calls[0][:3], given.online, calls[0][4])


def test_what_a_job_may_not_say_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"online\.updates"):
        job(tmp_path, online={"updates": -1})
    with pytest.raises(ValidationError, match="surprise"):
        job(tmp_path, surprise=1)
