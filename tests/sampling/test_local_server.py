"""The server that a step brings: there when the step's work begins, and gone when the step is, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import SAMPLER_URL, VLLM_PYTHON, EngineSpec
from platform_sdk.sampling import serve
from platform_sdk.sampling.local_server import local_server, vllm_python
from platform_sdk.sampling.models import weights_digest
from platform_sdk.sampling.serve import ServedModel, command
from platform_sdk.sizing.memory import GIB
from tests.process_watch import alive, wait_for
from tests.sampling.tiny_models import save_model

ROOT = Path(__file__).parents[2]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A specification, and a Python that stands in for one with vLLM."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("stand_in.py")} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv(VLLM_PYTHON, str(python))
    monkeypatch.setenv("STAND_IN", "serve")
    monkeypatch.delenv(SAMPLER_URL, raising=False)
    path = tmp_path / "online-server.json"
    path.write_text(ServedModel(model="m", engine=EngineSpec(engine="openai")).model_dump_json())
    return path


def pids(served: Path) -> list[int]:
    return [int(pid) for pid in served.with_name("pids").read_text().split()]


def test_local_server_answers_during_the_step_and_ends_after_it(served: Path) -> None:
    with local_server(served, ["6", "7"]):
        with urllib.request.urlopen(f"{os.environ[SAMPLER_URL]}/health") as answer:
            assert answer.status == 200
        assert all(map(alive, pids(served)))
    assert SAMPLER_URL not in os.environ
    assert not any(map(alive, pids(served)))
    assert served.with_name("server.log").read_text().startswith(f"loading {served} on GPUs '6,7'\n")


def test_error_of_the_step_is_kept_and_ends_the_server(served: Path) -> None:
    with pytest.raises(ZeroDivisionError), local_server(served, []):
        raise ZeroDivisionError
    assert not any(map(alive, pids(served)))


def test_failed_server_start_is_reported_with_cause_and_last_lines(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", "fail")
    told = r"status 3; its first error was\n  ValueError: no such architecture\nits log, .*server\.log, ends with"
    with pytest.raises(UserError, match=told) as caught, local_server(served, []):
        pytest.fail("there is no server")
    assert str(caught.value).endswith("\n  RuntimeError: see above")


def test_a_server_that_takes_too_long_is_ended(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from platform_sdk.sampling import local_server as serving

    monkeypatch.setattr(serving, "START_SECONDS", 0.5)
    monkeypatch.setattr(serving, "_healthy", lambda port: False)
    with pytest.raises(UserError, match=r"did not start within 0\.5 s"), local_server(served, []):
        pytest.fail("it never answered")


def test_death_of_the_local_server_is_reported_as_the_cause(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "die")
    with pytest.raises(UserError, match="ended with status 9") as caught, local_server(served, []):
        wait_for(lambda: not alive(pids(served)[0]))
        raise UserError("http://127.0.0.1:1/v1/completions: ConnectError")
    assert "\n  EngineDeadError" in str(caught.value)
    wait_for(lambda: not any(map(alive, pids(served))))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_local_server_ends_with_its_killed_step(served: Path, number: signal.Signals) -> None:
    code = (
        "import sys, time; from pathlib import Path; from platform_sdk.sampling.local_server import local_server\n"
        "with local_server(Path(sys.argv[1]), []):\n    print('ready', flush=True); time.sleep(600)"
    )
    step = subprocess.Popen([sys.executable, "-c", code, str(served)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert step.stdout is not None
    assert step.stdout.readline() == "ready\n"
    running = pids(served)
    assert all(map(alive, running))
    step.send_signal(number)
    assert step.wait() != 0, "it was interrupted, and did not sleep to its end"
    wait_for(lambda: not any(map(alive, running)))


def test_missing_vllm_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VLLM_PYTHON, str(tmp_path / "absent"))
    with pytest.raises(UserError, match="absent cannot be executed"):
        vllm_python()
    monkeypatch.delenv(VLLM_PYTHON)
    monkeypatch.setattr("platform_sdk.sampling.local_server.find_spec", lambda name: None)
    with pytest.raises(UserError, match="vllm is not installed"):
        vllm_python()
    monkeypatch.setattr("platform_sdk.sampling.local_server.find_spec", lambda name: object())
    assert vllm_python() == sys.executable


def test_server_command_serves_the_untied_model_on_the_loopback(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", tied=True)
    engine = EngineSpec(engine="openai", live=7, dtype="bfloat16", max_model_len=128, extra={"enable_lora": False})
    words = command(ServedModel(model=str(model), engine=engine), tmp_path / "served", 8123, gpus=2, gpu_bytes=GIB)
    assert words[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    assert words[3:] == [
        "--dtype", "bfloat16", "--max-model-len", "128", "--max-num-seqs", "7", "--generation-config", "vllm",
        "--data-parallel-size", "2", "--tensor-parallel-size", "1", "--no-enable-lora",
        "--model", str(tmp_path / "served"), "--host", "127.0.0.1", "--port", "8123",
    ]  # fmt: skip
    assert '"tie_word_embeddings": false' in (tmp_path / "served/config.json").read_text()
    assert weights_digest(tmp_path / "served") != weights_digest(model)  # the output matrix is there besides
    on_cpu = command(
        ServedModel(model=str(model), engine=EngineSpec(engine="openai")), tmp_path / "cpu", 8123, gpus=0, gpu_bytes=0
    )
    assert "--enforce-eager" in on_cpu
    assert "--no-enable-chunked-prefill" in on_cpu
    assert on_cpu[on_cpu.index("--gpu-memory-utilization") + 1] == "0.25"


def test_server_leaves_memory_to_a_step_on_the_same_gpu_by_default(tmp_path: Path) -> None:
    model = str(save_model(tmp_path / "model"))
    for extra, share in ({}, "0.4"), ({"gpu_memory_utilization": 0.7}, "0.7"):
        engine = EngineSpec(engine="openai", extra=extra)
        words = command(
            ServedModel(model=model, engine=engine, shares_gpu=True), tmp_path / share, 8123, gpus=1, gpu_bytes=GIB
        )
        assert words[words.index("--gpu-memory-utilization") + 1] == share


def test_heads_that_do_not_divide_are_refused_before_the_server_starts(tmp_path: Path) -> None:
    engine = EngineSpec(engine="openai", extra={"tensor_parallel_size": 3})
    model = save_model(tmp_path / "model")
    with pytest.raises(UserError, match=r"extra\.tensor_parallel_size: 4 attention heads .* among 3 GPUs"):
        command(ServedModel(model=str(model), engine=engine), tmp_path / "served", 1, gpus=3, gpu_bytes=GIB)


@pytest.mark.parametrize(
    ("gpus", "variable"), [(0, ("TORCHDYNAMO_DISABLE", "1")), (2, ("VLLM_USE_FLASHINFER_SAMPLER", "0"))]
)
def test_the_servers_process_needs_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, variable: tuple[str, str]
) -> None:
    spec = tmp_path / "spec.json"
    engine = EngineSpec(engine="openai")
    spec.write_text(ServedModel(model=str(save_model(tmp_path / "model")), engine=engine).model_dump_json())
    became: dict[str, str] = {}
    monkeypatch.setattr(sys, "argv", ["serve", "--spec", str(spec), "--port", "1"])
    monkeypatch.setattr(os, "execve", lambda _program, _words, environment: became.update(environment))
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: SimpleNamespace(total_memory=GIB))
    serve.main()
    assert became.items() >= {variable, ("VLLM_SERVER_DEV_MODE", "1")}
