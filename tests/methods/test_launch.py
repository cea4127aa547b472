"""The launch of a method's steps: in this process, in several that read the step from a file, or by a runner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import EvaluationSpec, SamplingSpec
from platform_sdk.methods import launch as launch_module
from platform_sdk.methods import steps
from platform_sdk.methods.__main__ import work
from platform_sdk.methods.launch import STEPS, EvaluateStep, MethodStep, OnlineStep, SampleStep, launch
from platform_sdk.methods.method import RunContext
from platform_sdk.methods.own_server import split
from platform_sdk.processes.launch import StepProcesses
from platform_sdk.sampling.serve import ServedModel
from platform_sdk.training import launch as training_launch
from platform_sdk.training.online.loop import OnlineResult
from tests.methods.toy_method import METHOD, Agent, Carry, Settings

RESULT = OnlineResult(model="m", inputs="i", weights="w", parents={}, updates=3)
OUTCOMES = {"sample": "sample.json", "evaluate": "scores.json", "online": "train.json"}
Call = tuple[Any, ...]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Each call of a step, which leaves an outcome instead of sampling."""
    called: list[Call] = []

    def recorder(name: str) -> Any:
        def step(method: Any, run: RunContext[Any], *arguments: Any) -> OnlineResult:
            called.append((name, method, run, *arguments))
            phase = next(argument for argument in arguments if str(argument).startswith("phase-"))
            outcome = run.run_dir / phase / OUTCOMES[name]
            outcome.parent.mkdir(parents=True, exist_ok=True)
            outcome.write_text(RESULT.model_dump_json())
            return RESULT

        return step

    for name in OUTCOMES:
        monkeypatch.setattr(steps, name, recorder(name))
    return called


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Record what is started in other processes; each takes its part in this one, at once."""
    processes: list[tuple[str, int]] = []

    def run_processes(module: str, spec_file: Path, count: int) -> None:
        processes.append((module, count))
        work(spec_file)

    monkeypatch.setattr(launch_module, "run_processes", run_processes)
    return processes


OWN: dict[type[MethodStep[Any]], dict[str, Any]] = {
    SampleStep: {"step": "writing", "iteration": 2, "settings": {"rounds": 3}, "carry": {"taken": 7}},
    EvaluateStep: {"evaluation": {"temperature": 0.5}},
    OnlineStep: {"online": {"updates": 3, "device": "cpu"}, "evaluation": {"temperature": 0.5}},
}
SERVICE = {"url": "http://retriever:8080"}


def step_of(kind: type[MethodStep[Any]], run_dir: Path, engine: dict[str, Any] | None = None, **change: Any) -> Any:
    content = {
        "method": "tests.methods.toy_method", "run_dir": run_dir, "phase": "phase-1", "model": "a/model",
        "environment": "world-text", "agent": {"form": "think"},
        "sampling": {"temperature": 0.9, "engine": engine or {}}, "retrieval": SERVICE, "searched_digest": "c",
        "seed": 4, **OWN[kind],
    }  # fmt: skip
    return kind.model_validate({**content, **change})


def expected_call(given: Any) -> Call:
    """Return the arguments of a step's function, in their order."""
    run = RunContext(
        run_dir=given.run_dir, environment="world-text", agent=Agent(form="think"),
        sampling=SamplingSpec.model_validate(given.sampling), retrieval=RetrievalSpec.model_validate(SERVICE),
        searched_digest="c", seed=4,
    )  # fmt: skip
    evaluation = EvaluationSpec(temperature=0.5)
    own: dict[str, Call] = {
        "sample": ("writing", given.phase, 2, "a/model", Settings(rounds=3), Carry(taken=7)),
        "evaluate": (given.phase, "a/model", evaluation),
        "online": (given.phase, "a/model", getattr(given, "online", None), evaluation),
    }
    return (given.kind, METHOD, run, *own[given.kind])


@pytest.mark.parametrize("kind", OWN)
def test_a_step_calls_its_methods_step(
    kind: type[MethodStep[Any]], tmp_path: Path, calls: list[Call], started: list[tuple[str, int]]
) -> None:
    given = step_of(kind, tmp_path)
    assert launch(given) == RESULT
    assert calls == [expected_call(given)]
    assert started == []
    [written] = tmp_path.glob("*/*-step.json")
    assert kind.model_validate_json(written.read_text()) == given  # for whoever asks what the run did


def test_a_first_round_is_given_an_empty_carry(tmp_path: Path, calls: list[Call]) -> None:
    launch(step_of(SampleStep, tmp_path, carry={}))
    assert calls[0][-1] == Carry(taken=0)


@pytest.mark.parametrize("kind", OWN)
def test_processes_read_the_same_step_from_a_file(
    kind: type[MethodStep[Any]], tmp_path: Path, calls: list[Call], started: list[tuple[str, int]]
) -> None:
    two: dict[str, Any] = {"engine": {"processes": 2}}
    if kind is OnlineStep:
        two = {"online": {"updates": 3, "device": "cpu", "processes": 2}}
    given = step_of(kind, tmp_path, phase="phase-2", **two)
    assert launch(given) == RESULT
    assert started == [("platform_sdk.methods", 2)]
    assert calls[0] == expected_call(given)


@pytest.mark.parametrize("kind", [SampleStep, EvaluateStep])
def test_a_finished_step_needs_no_process_no_server_and_no_cluster(
    kind: type[MethodStep[Any]], tmp_path: Path, calls: list[Call], started: list[tuple[str, int]]
) -> None:
    asked: list[StepProcesses] = []
    given = step_of(kind, tmp_path, {"engine": "openai", "processes": 2})
    assert launch(given, lambda one: (asked.append(one), given.run())[0]) == RESULT
    assert [one.verb for one in asked] == [given.kind]
    assert launch(given, asked.append) == launch(given) == RESULT
    assert (len(asked), started) == (1, [])


def test_a_step_that_asks_no_model_runs_where_it_is_called(
    tmp_path: Path, calls: list[Call], started: list[tuple[str, int]]
) -> None:
    given = step_of(SampleStep, tmp_path, {"processes": 2}, agent={"form": "direct"})
    launch(given, lambda one: pytest.fail("a job"))
    assert (len(calls), started) == (1, [])


@pytest.mark.parametrize(
    ("kind", "engine", "expected"),
    [
        (SampleStep, {}, {}),
        (SampleStep, {"engine": "vllm", "extra": {"tensor_parallel_size": 2}}, {"vllm": True, "gpus_each": 2}),
        (EvaluateStep, {"engine": "openai", "url": "http://x"}, {}),
        (EvaluateStep, {"engine": "openai"}, {"server_spec": "evaluate-server.json"}),
        (OnlineStep, {"engine": "openai"}, {"trains": True, "server_spec": "online-server.json"}),
    ],
)
@pytest.mark.parametrize("retrieval", [{}, SERVICE])
def test_cluster_gets_the_needs_of_the_processes(
    kind: type[MethodStep[Any]],
    engine: dict[str, Any],
    expected: dict[str, Any],
    retrieval: dict[str, Any],
    tmp_path: Path,
    calls: list[Call],
) -> None:
    given = step_of(kind, tmp_path, engine, retrieval=retrieval)
    asked: list[StepProcesses] = []
    launch(given, lambda one: (asked.append(one), given.run())[0])
    folder = tmp_path / "phase-1"
    reason = None if retrieval else METHOD.single_process_reason(given.context.retrieval)
    assert (reason is None) == bool(retrieval)
    plain = {"trains": False, "single_process_reason": reason} | expected
    if "server_spec" in plain:
        plain["server_spec"] = folder / plain["server_spec"]
        served = ServedModel.model_validate_json(plain["server_spec"].read_text())
        assert (served.model, served.engine) == ("a/model", given.engine)
    assert asked == [StepProcesses("platform_sdk.methods", folder / f"{given.kind}-step.json", given.kind, **plain)]
    assert STEPS.validate_json(asked[0].spec_file.read_text()) == given


def test_step_without_an_outcome_file_is_an_error(tmp_path: Path, calls: list[Call]) -> None:
    with pytest.raises(UserError, match=r"scores\.json: the step's processes have left none"):
        launch(step_of(EvaluateStep, tmp_path), lambda one: None)
    assert calls == []


def test_too_many_processes_are_refused_before_any_starts(
    tmp_path: Path, calls: list[Call], started: list[tuple[str, int]]
) -> None:
    two = {"updates": 1, "device": "cpu", "processes": 2}
    for given in (
        step_of(SampleStep, tmp_path, {"processes": 2}, retrieval={}),
        step_of(OnlineStep, tmp_path, online=two, retrieval={}),
    ):
        with pytest.raises(UserError, match="2 processes, but only one at a time can search an index of Milvus Lite"):
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
def test_sampling_process_count_follows_gpus_and_engine(
    gpus: int, engine: dict[str, Any], expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_module, "visible_gpus", lambda: [str(number) for number in range(gpus)])
    assert step_of(SampleStep, tmp_path, engine).process_count(0) == expected


def test_more_processes_than_gpus_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_module, "visible_gpus", lambda: ["0", "1", "2"])
    monkeypatch.setattr(training_launch, "visible_gpus", lambda: ["0", "1", "2"])
    sampling = step_of(SampleStep, tmp_path, {"device": "cuda", "processes": 2, "engine": "vllm",
                                         "extra": {"tensor_parallel_size": 2}})  # fmt: skip
    with pytest.raises(UserError, match="processes: 2 of 2 GPUs each, but torch sees 3 GPUs"):
        sampling.process_count(0)
    large = {"device": "cuda", "engine": "vllm", "extra": {"tensor_parallel_size": 4}}
    with pytest.raises(UserError, match=r"^sampling.engine.extra: an engine takes 4 GPUs, but torch sees 3"):
        step_of(SampleStep, tmp_path, large).process_count(0)
    training = step_of(OnlineStep, tmp_path, online={"updates": 1, "processes": 3})
    assert training.process_count(0) == 3
    with pytest.raises(UserError, match="3 GPUs, 1 of them for the step's own vLLM server"):
        training.process_count(1)


def test_a_steps_own_server_gets_the_last_gpus_and_shares_only_the_only_one() -> None:
    assert split([], None) == ([], [])
    assert split(["3"], None) == (["3"], ["3"])
    assert split(["0", "1", "2"], None) == (["0", "1"], ["2"])
    assert split(["0", "1", "2"], 2) == (["0"], ["1", "2"])
    for gpus in ([], ["0", "1"]):
        with pytest.raises(UserError, match="one at least is the step's own"):
            split(gpus, 2)


def test_vllm_in_the_processes_that_train_is_refused_unless_it_leaves_memory(tmp_path: Path, calls: list[Call]) -> None:
    engine: dict[str, Any] = {"engine": "vllm", "device": "cuda"}
    with pytest.raises(UserError, match=r"sampling\.engine\.engine: vllm takes nearly all memory of the GPU"):
        launch(step_of(OnlineStep, tmp_path, engine))
    assert not calls
    launch(step_of(OnlineStep, tmp_path, engine | {"extra": {"gpu_memory_utilization": 0.3}}))
    assert len(calls) == 1


def test_a_step_with_unknown_or_wrong_fields_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"online\.updates"):
        step_of(OnlineStep, tmp_path, online={"updates": -1})
    with pytest.raises(ValidationError, match="surprise"):
        step_of(OnlineStep, tmp_path, surprise=1)
    with pytest.raises(ValidationError, match="kind"):
        STEPS.validate_json(json.dumps({"kind": "guess"}))
    with pytest.raises(UserError, match="toy has no 'guessing'; its steps: writing"):
        launch(step_of(SampleStep, tmp_path, step="guessing"))
