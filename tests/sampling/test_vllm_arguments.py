"""The vLLM engine without vLLM: the environment it starts in, its prefix cache, and what its own parser says.

``HOPFORGE_VLLM_PYTHON`` names the Python of an environment with vLLM (``make test-vllm``), whose parser is asked.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from platform_sdk.config.sampling import VLLM_PYTHON, EngineSpec
from platform_sdk.sampling import openai_engine, probe, vllm_engine
from platform_sdk.sampling.engine import WeightsMismatch
from platform_sdk.sampling.serve import ServedModel, command
from platform_sdk.sampling.vllm_engine import VllmEngine
from platform_sdk.sizing.memory import GIB
from tests.sampling.tiny_models import save_model


class Vllm:
    """Stands in for the package: keeps the environment that ``LLM`` was made in, and answers resets as it is told."""

    def __init__(self, resets: list[bool]) -> None:
        self.environment: dict[str, str] = {}
        self.resets = resets

    def LLM(self, **_: Any) -> Any:
        self.environment = dict(os.environ)
        return SimpleNamespace(
            llm_engine=SimpleNamespace(model_config=SimpleNamespace(max_model_len=64)),
            collective_rpc=lambda *_, **__: None,
            reset_prefix_cache=lambda: self.resets.pop(0),
        )


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Vllm:
    stand_in = Vllm([])
    monkeypatch.setitem(sys.modules, "vllm", stand_in)
    monkeypatch.setattr(probe, "probe_of_path", lambda *_, **__: None)
    monkeypatch.setattr(VllmEngine, "_check", lambda *_: None)
    monkeypatch.setattr(vllm_engine.time, "sleep", lambda _: None)
    return stand_in


def test_each_process_has_a_gpu_of_its_own_and_compiles_nothing(
    vllm: Vllm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_model(tmp_path / "model")
    for name, value in {"WORLD_SIZE": "2", "LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,5,6,7"}.items():
        monkeypatch.setenv(name, value)
    VllmEngine(model, device="cuda", extra={"tensor_parallel_size": 2}).close()
    assert vllm.environment["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert vllm.environment["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert "LOCAL_RANK" not in vllm.environment
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")  # as a step's processes are shown theirs before
    VllmEngine(model, device="cuda", extra={"tensor_parallel_size": 2}).close()
    assert vllm.environment["CUDA_VISIBLE_DEVICES"] == "6,7"


def test_a_prefix_cache_that_is_in_use_is_reset_again_or_the_weights_are_refused(vllm: Vllm, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model")
    engine = VllmEngine(model, device="cpu")
    vllm.resets += [False, False, True]
    engine.load_weights(model)
    assert not vllm.resets
    vllm.resets += [False] * 5
    with pytest.raises(WeightsMismatch, match="did not reset its prefix cache in 5 attempts"):
        engine.load_weights(model)


@pytest.mark.parametrize(("refusals", "taken"), [(2, True), (9, False)])
def test_a_server_that_refuses_to_reset_is_asked_again_or_the_weights_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refusals: int, taken: bool
) -> None:
    """The server says so with status 200."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/reset_prefix_cache":
            asked.append(request.url.path)
            return httpx.Response(200, json={"success": len(asked) > refusals})
        return httpx.Response(200, json={"data": [{"id": "m", "max_model_len": 64}]})

    client = httpx.Client(base_url="http://server", transport=httpx.MockTransport(answer))
    monkeypatch.setattr(openai_engine.httpx, "Client", lambda **_: client)
    monkeypatch.setattr(probe, "probe_of_path", lambda *_, **__: None)
    monkeypatch.setattr(openai_engine.OpenAIEngine, "_check", lambda *_: None)
    monkeypatch.setattr(vllm_engine.time, "sleep", lambda _: None)
    model = save_model(tmp_path / "model")
    engine = openai_engine.OpenAIEngine("http://server", model)
    if taken:
        engine.load_weights(model)
        assert len(asked) == 3
    else:
        with pytest.raises(WeightsMismatch, match="http://server: vLLM did not reset its prefix cache in 5 attempts"):
            engine.load_weights(model)


def test_the_reference_leaves_the_gpu_before_vllm_looks_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model in a circle of references, as a real one is in, is gone when the allocator is told to let go."""
    models: list[weakref.ref[Any]] = []
    alive: list[bool] = []

    def load(*_: Any, **__: Any) -> Any:
        model = type("Model", (), {})()
        model.itself = model  # type: ignore[attr-defined]
        models.append(weakref.ref(model))
        return model

    monkeypatch.setattr("platform_sdk.sampling.models.load_model", load)
    monkeypatch.setattr(probe, "probe_of", lambda model: "found")
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: alive.append(models[0]() is not None))
    gc.disable()
    try:
        assert probe.probe_of_path(tmp_path, dtype="bfloat16", device="cuda") == "found"
    finally:
        gc.enable()
    assert alive == [False]


PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
given = json.load(sys.stdin)
for words in given:
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(words)
    validate_parsed_serve_args(parsed)
    sizes = [parsed.data_parallel_size, parsed.tensor_parallel_size, parsed.max_num_seqs]
    print(json.dumps([*sizes, parsed.generation_config]))
"""


@pytest.mark.skipif(VLLM_PYTHON not in os.environ, reason=f"{VLLM_PYTHON} is not set; run make test-vllm")
def test_vllms_own_parser_takes_the_servers_arguments(tmp_path: Path) -> None:
    model = str(save_model(tmp_path / "model", kv_heads=2))
    engine = EngineSpec(engine="openai", live=7, dtype="bfloat16", max_model_len=128, extra={"enable_lora": False})
    served = ServedModel(model=model, engine=engine, shares_gpu=True)
    commands = [command(served, tmp_path / str(n), 8123, gpus=n, gpu_bytes=GIB)[3:] for n in (0, 1, 4)]
    done = subprocess.run(
        [os.environ[VLLM_PYTHON], "-c", PARSE], input=json.dumps(commands), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert found == [[1, 1, 7, "vllm"], [1, 1, 7, "vllm"], [4, 1, 7, "vllm"]]
