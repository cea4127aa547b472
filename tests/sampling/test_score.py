"""Log-probabilities of given continuations, by every engine's ``score``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.config.training import TrainSpec
from platform_sdk.sampling import openai_engine, scoring
from platform_sdk.sampling.engine import Completion, PromptTooLong, Request, SamplingEngine, SamplingParams
from platform_sdk.sampling.load import load_engine
from platform_sdk.sampling.openai_engine import OpenAIEngine
from platform_sdk.sampling.pairs import make_pair
from platform_sdk.sampling.transformers_engine import TransformersEngine
from platform_sdk.training.batches import MicroBatch, pack, shared_step
from platform_sdk.training.examples import Example
from platform_sdk.training.policy import agent_logprobs, load_policy
from tests.sampling.tiny_models import VOCABULARY, save_model

Tokens = tuple[int, ...]
Pairs = list[tuple[Tokens, Tokens]]
RANDOM = np.random.default_rng(11)
PROMPT_LENGTHS, CONTINUATION_LENGTHS = (1, 2, 17, 40, 130, 300), (1, 60, 3, 20, 7, 100)


def tokens(length: int, vocabulary: int = VOCABULARY) -> Tokens:
    return tuple(RANDOM.integers(0, vocabulary, size=length).tolist())


def pairs(vocabulary: int = VOCABULARY) -> Pairs:
    lengths = zip(PROMPT_LENGTHS, CONTINUATION_LENGTHS, strict=True)
    return [(tokens(one, vocabulary), tokens(other, vocabulary)) for one, other in lengths]


def scored(engine: SamplingEngine, some: Sequence[tuple[Tokens, Tokens]]) -> list[tuple[float, ...]]:
    return engine.score([prompt for prompt, _ in some], [continuation for _, continuation in some])


def trainer_logprobs(model: str | Path, some: Pairs) -> list[list[float]]:
    policy = load_policy(model, TrainSpec(), attention="packed").eval()
    found = []
    for prompt, continuation in some:
        ids, mask = (*prompt, *continuation), (0,) * len(prompt) + (1,) * len(continuation)
        example = Example("q#0/agent", ids, mask, (0.0,) * len(ids), "w")
        with torch.no_grad():
            batch = pack([example], MicroBatch((0,)), shared_step([example], 1, len(ids)))
            found.append(agent_logprobs(policy, batch).tolist())
    return found


@pytest.mark.parametrize("model", ["hopforge:world-base", "llama", "qwen2"])
def test_scores_equal_the_trainers_logprobs(model: str, tmp_path: Path) -> None:
    path = model if ":" in model else save_model(tmp_path, kind=model, heads=8, kv_heads=2, tied=model == "qwen2")
    engine = TransformersEngine(path, live=2)
    some = pairs(engine._model.config.vocab_size)
    for found, expected in zip(scored(engine, some), trainer_logprobs(path, some), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (4, 4), (6, 2)])
def test_scores_are_bitwise_those_recorded_when_sampled(tmp_path: Path, heads: int, kv_heads: int) -> None:
    engine = TransformersEngine(save_model(tmp_path, heads=heads, kv_heads=kv_heads, width=8 * heads), live=4)
    prompts = [prompt for prompt, _ in pairs()]
    params = [SamplingParams(temperature=seed % 2, max_tokens=80, seed=seed) for seed in range(len(prompts))]
    done = engine.generate(prompts, params)
    assert engine.score(prompts, [one.token_ids for one in done]) == [one.logprobs for one in done]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (8, 4), (6, 2)])
def test_scores_are_bitwise_the_same_in_hundreds_of_batches(
    tmp_path: Path, heads: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any pairs, in any order, with any number of rows and logits at once: shared prompts, prefixes, repeated pairs."""
    engine = TransformersEngine(save_model(tmp_path, heads=heads, kv_heads=kv_heads, width=8 * heads), live=2)
    shared = tokens(200)
    prompts = [shared[: int(n)] + tokens(int(m)) for n, m in RANDOM.integers(1, 200, size=(6, 2))]
    some = [(prompts[i % 6], tokens(int(RANDOM.integers(1, 90)))) for i in range(16)]
    expected = [scored(engine, [pair])[0] for pair in some]
    for case in range(100):
        monkeypatch.setattr(scoring, "ROWS", int(RANDOM.integers(1, 20)))
        monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", VOCABULARY * int(RANDOM.integers(1, 600)))
        chosen = RANDOM.integers(0, len(some), size=int(RANDOM.integers(1, 20)))
        found = scored(engine, [some[i] for i in chosen])
        assert found == [expected[i] for i in chosen], f"case {case}: pairs {chosen.tolist()}"


def test_scoring_leaves_requests_in_flight_as_they_are(tiny: Path) -> None:
    prompts, params = [tokens(n) for n in (30, 200, 5)], SamplingParams(max_tokens=20, seed=3)

    def sampled(engine: TransformersEngine, *, scoring_beside: bool) -> list[Completion]:
        for number, prompt in enumerate(prompts):
            engine.submit(Request(str(number), prompt, params))
        done: list[Completion] = []
        while len(done) < len(prompts):
            done += engine.step()
            if scoring_beside:
                assert scored(engine, some) == alone
        return done

    engine, some = TransformersEngine(tiny, live=2), pairs()
    alone = scored(engine, some)
    assert sampled(engine, scoring_beside=True) == sampled(TransformersEngine(tiny, live=2), scoring_beside=False)


def test_passes_are_bounded_and_a_shared_prompt_is_read_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[tuple[int, int]] = []
    forward = TransformersEngine._forward

    def counting(self: TransformersEngine, inputs: list[int], *rest: list[int]) -> torch.Tensor:
        passes.append((len(inputs), len(rest[3])))
        return forward(self, inputs, *rest)  # type: ignore[arg-type]

    engine = TransformersEngine(tiny, live=2)
    monkeypatch.setattr(TransformersEngine, "_forward", counting)
    monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", VOCABULARY * 50)
    prompts = [tokens(300), tokens(400)]
    scored(engine, [(prompts[i % 2], tokens(40)) for i in range(60)])
    read, heads = map(sum, zip(*passes, strict=True))
    assert heads == 60 * 40
    assert read == 300 + 400 - 2 + 60 * 40, "both prompts but their last tokens, which begin each of 60 chunks"
    assert max(logits for _, logits in passes) == 50
    assert max(inputs for inputs, _ in passes) <= 1024


@pytest.mark.parametrize(
    ("prompts", "continuations", "error", "message"),
    [
        ([(1,)], [], ValueError, "1 prompts cannot be paired with 0"),
        ([(1,), ()], [(1,), (1,)], ValueError, "pair 1: the prompt is empty"),
        ([(1,)], [()], ValueError, "pair 0: the continuation is empty"),
        ([(1,) * 60], [(1,) * 5], PromptTooLong, "60 tokens of prompt and 5 of continuation"),
    ],
)
def test_pairs_that_cannot_be_scored_are_errors(
    tiny: Path, prompts: list[Tokens], continuations: list[Tokens], error: type[Exception], message: str
) -> None:
    engine = TransformersEngine(tiny, live=2, max_model_len=64)
    with pytest.raises(error, match=message):
        engine.score(prompts, continuations)
    assert [len(one) for one in engine.score([(1,) * 60], [(1,) * 4])] == [4], "the full context length"
    assert engine.score([], []) == []


def test_a_pair_scores_with_the_model_of_the_role(tiny: Path, other: Path, tmp_path: Path) -> None:
    spec, given = EngineSpec(live=2), ([(5, 6)], [(7, 8)])
    pair = load_engine(spec, make_pair(tmp_path / "policy", tiny, other))
    expected = [load_engine(spec, path).score(*given) for path in (tiny, other)]
    assert [pair.score(*given, role=role) for role in ("planner", "worker")] == expected
    assert expected[0] != expected[1]
    with pytest.raises(ValueError, match="planner and worker, not ''"):
        pair.score(*given)


def served(monkeypatch: pytest.MonkeyPatch, choice: dict[str, object]) -> tuple[OpenAIEngine, list[dict[str, object]]]:
    """An engine whose server answers every completion with ``choice``, and the bodies that reach the server."""
    bodies: list[dict[str, object]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m", "max_model_len": 5}]})
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json={"choices": [choice]})

    client = httpx.Client(base_url="http://server", transport=httpx.MockTransport(answer))
    monkeypatch.setattr(openai_engine.httpx, "Client", lambda **_: client)
    monkeypatch.setattr(openai_engine.probing, "probe_of_path", lambda *_, **__: None)
    monkeypatch.setattr(openai_engine, "load_tokenizer", lambda _: None)
    monkeypatch.setattr(OpenAIEngine, "_check", lambda *_: None)
    return OpenAIEngine("http://server", "model"), bodies


def row(**logprobs: float) -> dict[str, object]:
    """Return a row as vLLM has it: the prompt's own token, and the most probable one where it is another."""
    return {token[1:]: {"logprob": value, "rank": 1, "decoded_token": "x"} for token, value in logprobs.items()}


CHOICE: dict[str, object] = {
    "finish_reason": "length",
    "token_ids": [9],
    "logprobs": {"token_logprobs": [-0.25]},
    "prompt_logprobs": [None, row(t6=-3.0), row(t7=-1.5, t8=-0.5), row(t8=-2.0)],
}


def test_a_server_scores_the_prompts_tokens_and_one_allowed_token(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, bodies = served(monkeypatch, CHOICE)
    assert engine.score([(5, 6)] * 20, [(7, 8, 9)] * 20) == [(-1.5, -2.0, -0.25)] * 20
    assert len(bodies) == 20
    asked = {"prompt": [5, 6, 7, 8], "max_tokens": 1, "allowed_token_ids": [9], "prompt_logprobs": 0, "logprobs": 0}
    assert asked.items() <= bodies[0].items()
    with pytest.raises(PromptTooLong):
        engine.score([(5, 6, 7)], [(7, 8, 9)])


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt_logprobs": None}, {"prompt_logprobs": [None, row(t6=-3.0), row(t7=-1.5)]}, {"token_ids": [8]},
        {"prompt_logprobs": [None, row(t6=-3.0), row(t8=-0.5), row(t8=-2.0)]}, {"prompt_logprobs": [{"x": 1}]},
        {"logprobs": None}, {"prompt_logprobs": [None, row(t6=-3.0), None, row(t8=-2.0)]},
    ],
)  # fmt: skip
def test_a_server_that_does_not_score_is_one_error(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object]) -> None:
    engine, _ = served(monkeypatch, CHOICE | wrong)
    with pytest.raises(UserError, match="http://server: the server"):
        engine.score([(5, 6)], [(7, 8, 9)])
