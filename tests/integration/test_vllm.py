"""The real vLLM on a CPU against the transformers engine; see ``vllm.mk`` (``make test-vllm``).

``HOPFORGE_VLLM_PYTHON`` names the Python of an environment with vLLM; without it these tests skip.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from platform_sdk.config.sampling import SAMPLER_URL, EngineSpec
from platform_sdk.processes.environment import variables
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.sampling.engine import Completion, PromptTooLong, Request, SamplingEngine, SamplingParams
from platform_sdk.sampling.load import load_engine
from platform_sdk.sampling.local_server import local_server
from platform_sdk.sampling.models import weights_digest
from platform_sdk.sampling.serve import ServedModel
from platform_sdk.tracking.updates import read_updates
from platform_sdk.training.online.loop import train_online
from tests.sampling.tiny_models import VOCABULARY, save_model
from tests.training.online import lucky

PYTHON = os.environ.get("HOPFORGE_VLLM_PYTHON")
ROOT = Path(__file__).parents[2]
START_UP = 900  # seconds; about one minute on an idle machine
OWN = EngineSpec(engine="openai", live=8, max_model_len=512)
pytestmark = pytest.mark.skipif(PYTHON is None, reason="HOPFORGE_VLLM_PYTHON is not set; run make test-vllm")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two tiny random models of one shape: the first untied, the second (new weights) tied."""
    directory = tmp_path_factory.mktemp("models")
    shape = {"heads": 4, "kv_heads": 2, "width": 128}
    return save_model(directory / "one", **shape), save_model(directory / "two", seed=1, tied=True, **shape)


def environment() -> dict[str, str]:
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "PYTHONPATH": str(ROOT), **offline}


@pytest.fixture(scope="module")
def server(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server as a step brings it."""
    path = tmp_path_factory.mktemp("server") / "server.json"
    path.write_text(ServedModel(model=str(models[0]), engine=OWN).model_dump_json())
    with variables(environment()), local_server(path, []):
        yield os.environ[SAMPLER_URL]


def prompts() -> list[tuple[int, ...]]:
    random = np.random.default_rng(0)
    return [tuple(random.integers(3, VOCABULARY, size=n).tolist()) for n in (1, 7, 40, 200)]


def pairs() -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Prompts and continuations: of one token, of the full context length, and several of one prompt."""
    random = np.random.default_rng(1)
    lengths = [(1, 1), (7, 60), (40, 5), (200, 1), (200, 100), (500, 12)]
    prompts, continuations = (
        [tuple(random.integers(0, VOCABULARY, size=length).tolist()) for length in side]
        for side in zip(*lengths, strict=True)
    )
    return [*prompts, *[prompts[2]] * 6], [*continuations, *continuations]


def assert_scores(found: list[tuple[float, ...]], expected: list[tuple[float, ...]]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)


def assert_equal(found: list[Completion], expected: list[Completion]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.token_ids, one.finish) == (other.token_ids, other.finish)
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


def test_a_server_agrees_with_transformers_before_and_after_new_weights(server: str, models: tuple[Path, Path]) -> None:
    engine: SamplingEngine = load_engine(EngineSpec(engine="openai", url=server, live=8), models[0])
    greedy = SamplingParams(temperature=0, max_tokens=30)
    for number, path in enumerate(models):
        if number:
            engine.load_weights(path)
        assert engine.weight_version == weights_digest(path)
        reference = load_engine(EngineSpec(live=8, max_model_len=512), path)
        expected = reference.generate(prompts(), greedy)
        assert_equal(engine.generate(prompts(), greedy), expected)
        assert_scores(engine.score(*pairs()), reference.score(*pairs()))
        text = reference.tokenizer.decode(expected[2].token_ids[3:5])
        stopping = SamplingParams(temperature=0, max_tokens=30, stop=(text,))
        assert_equal(engine.generate(prompts(), stopping), reference.generate(prompts(), stopping))
    drawn = [engine.generate(prompts(), SamplingParams(max_tokens=20, seed=seed)) for seed in (1, 1, 2)]
    tokens = [[one.token_ids for one in done] for done in drawn]
    assert tokens[0] == tokens[1] != tokens[2]
    with pytest.raises(PromptTooLong):
        engine.submit(Request("long", (5,) * 512, greedy))
    engine.close()
    back = load_engine(EngineSpec(engine="openai", url=server, live=8), models[0])
    assert back.weight_version == weights_digest(models[0]), "a server that holds other weights is given the right ones"
    back.close()


@pytest.mark.parametrize("off_policy", [False, True])
def test_online_training_hands_its_weights_to_a_server_in_the_same_job(
    server: str, models: tuple[Path, Path], tmp_path: Path, off_policy: bool
) -> None:
    """Every hand-over is proven within; here: that it was made, and that the policy learned from what came back."""
    spec = lucky.SPEC.model_validate(lucky.SPEC.model_dump() | {"updates": 6, "off_policy": off_policy})
    folder = tmp_path / "online"
    result = train_online(spec, lucky.task(), models[1], folder / "model", engine=OWN, seed=5, folder=folder)
    updates = read_updates(folder)
    assert len({*(update.weights for update in updates), result.weights}) == (6 if off_policy else 7)
    for update in updates[: 1 if off_policy else None]:
        assert update.statistics["ratio"] == pytest.approx(1, abs=1e-3), "what was sampled is the trainer's policy"
    reference = load_engine(EngineSpec(live=8, max_model_len=512), result.model)
    back = load_engine(EngineSpec(engine="openai", url=server, live=8), result.model)
    greedy = SamplingParams(temperature=0, max_tokens=10)
    assert_equal(back.generate(prompts(), greedy), reference.generate(prompts(), greedy))
    back.close()


IN_PROCESS = """
import json, sys
from dataclasses import asdict
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.load import load_engine

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    spec = EngineSpec(engine="vllm", live=8, max_model_len=512, threads=None)
    engine = load_engine(spec, given["models"][0])
    answers = []
    for path in given["models"]:
        engine.load_weights(path)
        done = engine.generate(given["prompts"], SamplingParams(temperature=0, max_tokens=30))
        answers.append([engine.weight_version, [asdict(one) for one in done], engine.score(*given["pairs"])])
    print("ANSWER" + json.dumps(answers))
"""


def test_vllm_in_process_agrees_with_transformers(models: tuple[Path, Path], tmp_path: Path) -> None:
    script = tmp_path / "in_process.py"
    script.write_text(IN_PROCESS)
    given = json.dumps({"models": [str(path) for path in models], "prompts": prompts(), "pairs": pairs()})
    assert PYTHON
    done = subprocess.run(
        [PYTHON, str(script), given], env=environment(), capture_output=True, text=True, timeout=2 * START_UP
    )
    assert done.returncode == 0, done.stderr[-3000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    for path, (version, answers, scores) in zip(models, json.loads(line.removeprefix("ANSWER")), strict=True):
        assert version == weights_digest(path)
        reference = load_engine(EngineSpec(live=8), path)
        expected = reference.generate(prompts(), SamplingParams(temperature=0, max_tokens=30))
        found = [Completion(a["id"], tuple(a["token_ids"]), tuple(a["logprobs"]), a["finish"]) for a in answers]
        assert_equal(found, expected)
        assert_scores(scores, reference.score(*pairs()))


SHARED = """
import sys
from pathlib import Path
from platform_sdk.processes.launch import run_processes

if __name__ == "__main__":
    run_processes("tests.methods.mygo.shared", Path(sys.argv[1]), 2)
"""


def test_two_processes_share_a_phase_with_a_vllm_each(models: tuple[Path, Path], tmp_path: Path) -> None:
    """Run under torch's launcher, whose environment must not reach vLLM's own processes."""
    engine = OWN.model_copy(update={"engine": "vllm", "threads": None}).model_dump(mode="json")
    spec = {"what": "iteration", "model": str(models[0]), "engine": engine, "dies": ""}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    script = tmp_path / "shared.py"
    script.write_text(SHARED)
    assert PYTHON
    done = subprocess.run(
        [PYTHON, str(script), str(tmp_path / "spec.json")], env=environment(), capture_output=True, text=True,
        timeout=2 * START_UP,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    made = [json.loads((tmp_path / f"made.{rank}.json").read_text()) for rank in range(2)]
    assert all(made)
    rollouts = list(read_jsonl(tmp_path / "rollouts.jsonl", Rollout))
    assert sorted(rollout.id for rollout in rollouts) == sorted(name for part in made for name in part)
    assert {rollout.question.id for rollout in rollouts} == {f"q{number:02d}" for number in range(23)}
    assert {rollout.weights for rollout in rollouts} == {weights_digest(models[0])}
