"""A step that samples, as a record: it finds its method's room, here and by the file that processes start with."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from platform_sdk.recipes.jobs import DemonstrateJob, EvaluateJob, MethodJob, OnlineJob, SampleJob, launch, split
from pydantic import BaseModel, ValidationError

from platform_sdk.config.errors import UserError
from platform_sdk.processes.launch import StepProcesses
from platform_sdk.recipes import jobs
from platform_sdk.recipes.__main__ import work
from platform_sdk.sampling.serve import Served
from platform_sdk.training import launch as launching
from platform_sdk.training.online.loop import OnlineResult


class Settings(BaseModel):
    """Of every kind; ``initial_threshold`` is what the warm-up begins with."""

    temperature: float = 0.0
    initial_threshold: float = 0.5


RESULT = OnlineResult(model="m", inputs="i", weights="w", parents={}, updates=3)
OUTCOMES = {"sample": "sample.json", "evaluate": "scores.json", "demonstrate": "demonstrations.json"}


@dataclass(frozen=True)
class Setting:
    """What a method's setting was read from, and why only one process may sample, if so."""

    given: tuple[Any, ...]
    alone: str | None = None


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A method ``toy`` that notes how it is called, and leaves an outcome."""
    called: list[tuple[Any, ...]] = []

    def read(*given: Any) -> Setting:
        retrieval = given[4]
        return Setting(given, retrieval.get("alone"))

    def step(name: str) -> Any:
        def run(setting: Setting, phase: str, *arguments: Any) -> Any:
            called.append((name, setting.given, phase, *arguments))
            outcome = setting.given[0] / phase / OUTCOMES.get(name, "train.json")
            outcome.parent.mkdir(parents=True, exist_ok=True)
            outcome.write_text(RESULT.model_dump_json())
            return RESULT

        return run

    steps: Any = types.ModuleType("steps")
    steps.Setting = types.SimpleNamespace(read=read)
    steps.explains = lambda setting: setting.given[2]["form"] != "direct"
    for name in (*OUTCOMES, "online"):
        setattr(steps, name, step(name))
    settings: Any = types.ModuleType("settings")
    settings.EvaluationSpec = settings.SelectionSpec = settings.WarmupSpec = settings.DemonstrationSpec = Settings
    monkeypatch.setitem(sys.modules, "platform_sdk.recipes.toy.steps", steps)
    monkeypatch.setitem(sys.modules, "platform_sdk.recipes.toy.settings", settings)
    return called


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What is started in other processes; each takes its part in this one, at once."""
    processes: list[tuple[str, int]] = []

    def run_processes(module: str, spec_file: Path, count: int) -> None:
        processes.append((module, count))
        work(spec_file)

    monkeypatch.setattr(jobs, "run_processes", run_processes)
    return processes


OWN: dict[type[MethodJob], dict[str, Any]] = {
    SampleJob: {"iteration": 2, "threshold": 0.7, "selection": {"temperature": 0.1}, "warmup": {"temperature": 0.2}},
    EvaluateJob: {"evaluation": {"temperature": 0.5}},
    DemonstrateJob: {"demonstrations": {"temperature": 0.3}},
    OnlineJob: {"online": {"updates": 3, "device": "cpu"}, "evaluation": {"temperature": 0.5}},
}


def job(kind: type[MethodJob], run_dir: Path, engine: dict[str, Any] | None = None, **change: Any) -> Any:
    content = {
        "method": "toy", "run_dir": run_dir, "phase": "phase-1", "model": "a/model", "environment": "world-text",
        "agent": {"form": "think"}, "sampling": {"temperature": 0.9, "engine": engine or {}},
        "retrieval": {"index": None}, "corpus_digest": "c", "seed": 4, **OWN[kind],
    }  # fmt: skip
    return kind.model_validate({**content, **change})


def expected_arguments(kind: type[MethodJob]) -> tuple[Any, ...]:
    """Behind setting and phase, in the order in which a method's functions take them."""
    return {
        SampleJob: (2, "a/model", 0.7, Settings(temperature=0.1), Settings(temperature=0.2)),
        EvaluateJob: ("a/model", Settings(temperature=0.5)),
        DemonstrateJob: ("a/model", Settings(temperature=0.3)),
        OnlineJob: ("a/model", job(OnlineJob, Path("r")).online, Settings(temperature=0.5)),
    }[kind]


@pytest.mark.parametrize("kind", OWN)
def test_a_job_calls_its_methods_step(
    kind: type[MethodJob], tmp_path: Path, calls: list[tuple[Any, ...]], started: list[tuple[str, int]]
) -> None:
    given = job(kind, tmp_path)
    assert launch(given) == RESULT
    setting = (tmp_path, "world-text", {"form": "think"}, given.sampling, {"index": None}, "c", 4)
    assert calls == [(given.step, setting, "phase-1", *expected_arguments(kind))]
    assert started == []
    assert not list(tmp_path.glob("*/*-job.json"))


def test_a_warm_up_begins_with_the_initial_threshold(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    launch(job(SampleJob, tmp_path, iteration=0))
    assert calls[0][5] == 0.5


@pytest.mark.parametrize("kind", OWN)
def test_several_processes_read_the_same_job_from_a_file(
    kind: type[MethodJob], tmp_path: Path, calls: list[tuple[Any, ...]], started: list[tuple[str, int]]
) -> None:
    launch(job(kind, tmp_path))
    two: dict[str, Any] = {"engine": {"processes": 2}}
    if kind is OnlineJob:
        two = {"online": {"updates": 3, "device": "cpu", "processes": 2}}
    given = job(kind, tmp_path, phase="phase-2", **two)
    assert launch(given) == RESULT
    assert started == [("platform_sdk.recipes", 2)]
    name, setting, phase, *arguments = calls[1]
    assert (name, setting, phase) == (given.step, (tmp_path, *setting[1:]), "phase-2")
    assert [one for one in arguments if one != getattr(given, "online", None)] == [
        one for one in expected_arguments(kind) if one != job(OnlineJob, Path("r")).online
    ]


@pytest.mark.parametrize("kind", [SampleJob, EvaluateJob, DemonstrateJob])
def test_what_is_done_needs_no_process_no_server_and_no_cluster(
    kind: type[MethodJob], tmp_path: Path, calls: list[tuple[Any, ...]], started: list[tuple[str, int]]
) -> None:
    asked: list[StepProcesses] = []
    given = job(kind, tmp_path, {"engine": "openai", "processes": 2})
    assert launch(given, lambda one: (asked.append(one), given.run())[0]) == RESULT
    assert [one.verb for one in asked] == [given.step]
    assert launch(given, asked.append) == launch(given) == RESULT
    assert (len(asked), started) == (1, [])


def test_what_asks_no_model_is_done_where_it_is(
    tmp_path: Path, calls: list[tuple[Any, ...]], started: list[tuple[str, int]]
) -> None:
    launch(job(DemonstrateJob, tmp_path, {"processes": 2}, agent={"form": "direct"}), lambda one: pytest.fail("a job"))
    assert (len(calls), started) == (1, [])


@pytest.mark.parametrize(
    ("kind", "engine", "expected"),
    [
        (SampleJob, {}, {}),
        (SampleJob, {"engine": "vllm", "extra": {"tensor_parallel_size": 2}}, {"vllm": True, "gpus_each": 2}),
        (EvaluateJob, {"engine": "openai", "url": "http://x"}, {}),
        (EvaluateJob, {"engine": "openai"}, {"server_spec": "evaluate-server.json"}),
        (OnlineJob, {"engine": "openai"}, {"trains": True, "server_spec": "online-server.json"}),
    ],
)
def test_a_cluster_is_told_what_the_processes_need(
    kind: type[MethodJob], engine: dict[str, Any], expected: dict[str, Any], tmp_path: Path, calls: Any
) -> None:
    given = job(kind, tmp_path, engine, retrieval={"alone": "it is so"})
    asked: list[StepProcesses] = []
    launch(given, lambda one: (asked.append(one), given.run())[0])
    folder = tmp_path / "phase-1"
    plain = {"trains": False, "single_process_reason": "it is so"} | expected
    if "server_spec" in plain:
        plain["server_spec"] = folder / plain["server_spec"]
        served = Served.model_validate_json(plain["server_spec"].read_text())
        assert (served.model, served.engine) == ("a/model", given.engine)
    assert asked == [StepProcesses("platform_sdk.recipes", folder / f"{given.step}-job.json", given.step, **plain)]
    assert jobs.JOBS.validate_json(asked[0].spec_file.read_text()) == given


def test_processes_that_leave_nothing_are_not_believed(tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    with pytest.raises(UserError, match=r"scores\.json: the step's processes have left none"):
        launch(job(EvaluateJob, tmp_path), lambda one: None)
    assert calls == []


def test_more_processes_than_may_be_are_refused_before_any_starts(
    tmp_path: Path, calls: list[tuple[Any, ...]], started: list[tuple[str, int]]
) -> None:
    for given in (
        job(SampleJob, tmp_path, {"processes": 2}, retrieval={"alone": "the index is one process's"}),
        job(
            OnlineJob,
            tmp_path,
            online={"updates": 1, "device": "cpu", "processes": 2},
            retrieval={"alone": "the index"},
        ),
    ):
        with pytest.raises(UserError, match="2 processes, but the index"):
            launch(given)
    assert (calls, started) == ([], [])


@pytest.mark.parametrize(
    ("gpus", "engine", "expected"),
    [
        (0, {}, None),
        (0, {"processes": 3}, 3),
        (4, {}, None),  # on a CPU
        (4, {"device": "cuda"}, 4),
        (4, {"device": "cuda", "processes": 1}, None),
        (4, {"device": "cuda", "engine": "vllm", "extra": {"tensor_parallel_size": 2}}, 2),
        (4, {"engine": "openai", "device": "cuda"}, None),  # the server has the GPUs
        (4, {"engine": "openai", "processes": 2}, 2),
    ],
)
def test_how_many_processes_sample(
    gpus: int, engine: dict[str, Any], expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "visible_gpus", lambda: [str(number) for number in range(gpus)])
    assert job(SampleJob, tmp_path, engine).processes(0) == expected


def test_more_processes_than_gpus_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "visible_gpus", lambda: ["0", "1", "2"])
    monkeypatch.setattr(launching, "visible_gpus", lambda: ["0", "1", "2"])
    sampling = job(SampleJob, tmp_path, {"device": "cuda", "processes": 2, "engine": "vllm",
                                         "extra": {"tensor_parallel_size": 2}})  # fmt: skip
    with pytest.raises(UserError, match="processes: 2 of 2 GPUs each, but torch sees 3 GPUs"):
        sampling.processes(0)
    training = job(OnlineJob, tmp_path, online={"updates": 1, "processes": 3})
    assert training.processes(0) == 3
    with pytest.raises(UserError, match="3 GPUs, 1 of them for the step's own vLLM server"):
        training.processes(1)


def test_a_steps_own_server_gets_the_last_gpus_and_shares_only_the_only_one() -> None:
    assert split([], None) == ([], [])
    assert split(["3"], None) == (["3"], ["3"])
    assert split(["0", "1", "2"], None) == (["0", "1"], ["2"])
    assert split(["0", "1", "2"], 2) == (["0"], ["1", "2"])
    for gpus in ([], ["0", "1"]):
        with pytest.raises(UserError, match="one at least is the step's own"):
            split(gpus, 2)


def test_what_a_job_may_not_say_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"online\.updates"):
        job(OnlineJob, tmp_path, online={"updates": -1})
    with pytest.raises(ValidationError, match="surprise"):
        job(OnlineJob, tmp_path, surprise=1)
    with pytest.raises(ValidationError, match="step"):
        jobs.JOBS.validate_json(json.dumps({"step": "guess"}))
