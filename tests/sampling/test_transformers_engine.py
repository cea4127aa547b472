from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    MistralConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Starcoder2Config,
)

from platform_sdk.errors import UserError
from platform_sdk.sampling import invariance
from platform_sdk.sampling.engine import (
    Completion,
    Probe,
    PromptTooLong,
    Request,
    SamplingParams,
    WeightsMismatch,
    sampling_generator,
)
from platform_sdk.sampling.kv_attention import Kernels
from platform_sdk.sampling.models import weights_digest
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.sampling.tiny_models import VOCABULARY, save_model, save_model_of, tokenizer

RANDOM = np.random.default_rng(7)


def prompt(length: int) -> tuple[int, ...]:
    return tuple(RANDOM.integers(3, VOCABULARY, size=length).tolist())


def plain_logprobs(path: Path, prompt: Sequence[int], continuation: Sequence[int]) -> list[float]:
    """Compute by one forward pass of the model as transformers loads it, without any cache."""
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", dtype=torch.float32)
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *continuation]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, -1)[range(len(continuation)), list(continuation)].tolist()


def without_ends(path: Path, **arguments: object) -> TransformersEngine:
    """An engine that never stops at an end-of-sequence token, so that lengths are known."""
    engine = TransformersEngine(path, **arguments)  # type: ignore[arg-type]
    engine._stopping.ends = frozenset()
    return engine


def test_more_slots_than_the_machine_has_memory_for_are_refused(tmp_path: Path) -> None:
    path = save_model(tmp_path)
    with pytest.raises(UserError, match=r"slots of 128 tokens take .* GiB, more than the cpu provides; lower .*live"):
        TransformersEngine(path, live=2**36, max_model_len=64)  # more than any address space


@pytest.mark.parametrize(
    ("kind", "heads", "kv_heads", "tied"),
    [("llama", 4, 1, False), ("llama", 4, 4, True), ("llama", 8, 4, False), ("qwen2", 8, 2, True)],
)
@pytest.mark.parametrize("kernels", ["invariant", "fused", "by slot"])
def test_logprobs_are_those_of_a_plain_forward_pass(
    tmp_path: Path, kind: str, heads: int, kv_heads: int, tied: bool, kernels: Kernels
) -> None:
    """A GPU's kind of attention runs here on the CPU."""
    path = save_model(tmp_path, kind=kind, heads=heads, kv_heads=kv_heads, tied=tied)
    engine = without_ends(path, live=3)
    engine.kernels = kernels
    if kernels != "invariant":
        invariance.undo(engine._model)
    prompts = [prompt(n) for n in (1, 2, 5, 40, 130, 300)]
    params = [
        SamplingParams(temperature=t, top_k=k, top_p=p, max_tokens=12, seed=i)
        for i, (t, k, p) in enumerate(
            [(1.0, 0, 1.0), (0.7, 5, 1.0), (1.3, 0, 0.8), (0.0, 0, 1.0), (2.0, 9, 0.5), (1, 0, 1)]
        )
    ]
    for given, done in zip(prompts, engine.generate(prompts, params), strict=True):
        assert len(done.token_ids) == 12
        assert done.finish == "length"
        np.testing.assert_allclose(done.logprobs, plain_logprobs(path, given, done.token_ids), atol=2e-5)


LONG_ROPE = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": 64,
    "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "lacking"),
    [
        (partial(MistralConfig, sliding_window=64), "sliding-window attention"),
        (partial(Phi3Config, sliding_window=64), "sliding-window attention"),
        (partial(Starcoder2Config, sliding_window=64), "sliding-window attention"),
        (partial(Phi3Config, rope_parameters=LONG_ROPE, original_max_position_embeddings=64), "longrope"),
    ],
)
def test_attention_that_changes_with_the_length_is_refused_beyond_that_length(
    tmp_path: Path, config: Callable[..., PreTrainedConfig], lacking: str
) -> None:
    path = save_model_of(config, tmp_path)
    with pytest.raises(UserError, match=f"{lacking}.* from 65 tokens on; use the engine vllm, or set max_model_len to"):
        TransformersEngine(path)
    with pytest.raises(UserError, match=lacking):
        TransformersEngine(path, max_model_len=65)
    engine = TransformersEngine(path, live=2, max_model_len=64)
    pairs = [(prompt(10), prompt(4)), (prompt(50), prompt(14))]
    for (given, continuation), found in zip(pairs, engine.score(*zip(*pairs, strict=True)), strict=True):
        np.testing.assert_allclose(found, plain_logprobs(path, given, continuation), atol=2e-5)


def test_layers_with_a_sliding_window_are_refused_with_a_remedy(tmp_path: Path) -> None:
    config = partial(Qwen2Config, use_sliding_window=True, sliding_window=64, max_window_layers=1)
    with pytest.raises(UserError, match="has no sliding_attention; use the engine vllm"):
        TransformersEngine(save_model_of(config, tmp_path), max_model_len=64)


@pytest.mark.parametrize(
    "kind", ["gpt_neox", "gpt2", "opt", "bloom", "mpt", "mamba", "falcon", "gemma3", "deepseek_v3"]
)
def test_model_type_without_the_configuration_of_llama_is_refused_before_it_is_loaded(
    tmp_path: Path, kind: str
) -> None:
    AutoConfig.for_model(kind).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"does not support the model type {kind}; use a model like Llama"):
        TransformersEngine(tmp_path)


def test_greedy_equals_transformers_generate(tiny: Path) -> None:
    given = prompt(25)
    [done] = TransformersEngine(tiny, live=2).generate([given], SamplingParams(temperature=0, max_tokens=20))
    model = AutoModelForCausalLM.from_pretrained(tiny)
    expected = model.generate(torch.tensor([given]), max_new_tokens=20, do_sample=False)[0, len(given) :].tolist()
    assert list(done.token_ids) == expected


def test_a_vanishing_temperature_decodes_greedily(tiny: Path) -> None:
    params = [SamplingParams(temperature=t, max_tokens=8, seed=3) for t in (0, 1e-6, 1e-39, 1e-300)]
    greedy, *others = TransformersEngine(tiny, live=4).generate([prompt(25)] * 4, params)
    assert [one.token_ids for one in others] == [greedy.token_ids] * 3


def work() -> tuple[list[tuple[int, ...]], list[SamplingParams]]:
    instructions = [prompt(70), prompt(33)]
    prompts = [instructions[i % 2] + prompt(int(RANDOM.integers(1, 250))) for i in range(20)]
    prompts += [prompt(1), prompt(2), prompt(3), prompts[0], prompts[0][:60]]
    lengths = RANDOM.integers(1, 60, size=len(prompts)) // 2 + 1
    kinds = [(1.0, 0, 1.0), (0.7, 5, 1.0), (1.2, 0, 0.9), (0.0, 0, 1.0)]
    return prompts, [
        SamplingParams(temperature=t, top_k=k, top_p=p, max_tokens=int(n), seed=i)
        for i, (n, (t, k, p)) in enumerate(zip(lengths, kinds * len(prompts), strict=False))
    ]


def content(done: Sequence[Completion]) -> list[tuple[tuple[int, ...], tuple[float, ...], str]]:
    return [(one.token_ids, one.logprobs, one.finish) for one in done]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (4, 4), (8, 2)])
def test_completions_do_not_depend_on_the_batch_bitwise(tmp_path: Path, heads: int, kv_heads: int) -> None:
    path = save_model(tmp_path, heads=heads, kv_heads=kv_heads)
    prompts, params = work()
    reference = content(without_ends(path, live=32).generate(prompts, params))
    order = RANDOM.permutation(len(prompts))
    for live in (2, 7):
        engine = without_ends(path, live=live)
        shuffled = content(engine.generate([prompts[i] for i in order], [params[i] for i in order]))
        assert [shuffled[list(order).index(i)] for i in range(len(prompts))] == reference, f"live={live}"
    fresh = without_ends(path, live=4)
    for i in (0, 3, 21, 24):
        fresh._slots.clear()
        assert content(fresh.generate([prompts[i]], params[i])) == [reference[i]], "alone, with nothing cached"


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (8, 4), (6, 2)])
def test_hundreds_of_batches_orders_and_caches_leave_no_trace(tmp_path: Path, heads: int, kv_heads: int) -> None:
    """Any subset of requests, in any order, beside any number of others, from any state of the caches."""
    path = save_model(tmp_path, heads=heads, kv_heads=kv_heads, width=8 * heads)
    random = np.random.default_rng(heads)
    shared = prompt(40)
    prompts = [shared[: int(random.integers(0, 41))] + prompt(int(random.integers(1, 90))) for _ in range(18)]
    params = [SamplingParams(temperature=1.0, max_tokens=int(random.integers(1, 6)), seed=i) for i in range(18)]
    expected = content(without_ends(path, live=18).generate(prompts, params))
    engines = {live: without_ends(path, live=live) for live in (1, 2, 5, 6, 7, 18)}
    for case in range(100):
        live = list(engines)[case % len(engines)]
        if random.random() < 0.3:
            engines[live]._slots.clear()
        chosen = random.permutation(18)[: int(random.integers(1, 19 if live > 2 else 5))]
        found = content(engines[live].generate([prompts[i] for i in chosen], [params[i] for i in chosen]))
        assert found == [expected[i] for i in chosen], f"case {case}: live={live}, requests {chosen.tolist()}"


def test_an_engine_that_cannot_be_invariant_warns_and_uses_the_faster_attention(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert TransformersEngine(tiny, live=2).kernels == "invariant"
    assert "not batch-invariant" not in caplog.text
    monkeypatch.setattr(invariance, "make_invariant", lambda model: spoil(model))
    engine = TransformersEngine(tiny, live=2)
    assert "not batch-invariant on this CPU" in caplog.text
    for _ in range(2):
        assert engine.kernels == "by slot"
        assert not any("forward" in layer.__dict__ for layer in engine._model.modules())  # the linear layers' own
        engine.load_weights(tiny)


def spoil(model: torch.nn.Module) -> invariance.Invariance:
    """Make a layer's result depend on the number of its rows."""
    layer = next(module for module in model.modules() if isinstance(module, torch.nn.Linear))
    plain = layer.forward
    layer.forward = lambda x: plain(x) * (1 + 1e-6 * x.shape[-2])  # type: ignore[method-assign]
    return invariance.Invariance({}, 0.0)


def test_a_dialogue_reuses_its_cache_without_a_trace(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    forward = TransformersEngine._forward

    def counting(self: TransformersEngine, inputs: list[int], rows: list[int], *rest: object) -> torch.Tensor:
        read.append(len(inputs) - len(rows))
        return forward(self, inputs, rows, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(TransformersEngine, "_forward", counting)
    engine = without_ends(tiny, live=2)
    start, told = prompt(100), prompt(30)
    params = SamplingParams(max_tokens=20, seed=1)

    def turn(ids: tuple[int, ...]) -> Completion:
        engine.submit(Request("r", ids, params, "dialogue"))
        done: list[Completion] = []
        while not done:
            done = engine.step()
        return done[0]

    read.clear()
    first = turn(start)
    assert sum(read) == 100
    second_prompt = start + first.token_ids + told
    read.clear()
    second = turn(second_prompt)
    assert sum(read) == 31, "the last sampled token and what was told: all else is in the cache"
    for _ in range(3):  # other dialogues pass through both rows, and push this one aside
        engine.generate([prompt(50), prompt(60)], params)
    third_prompt = second_prompt + second.token_ids + told
    read.clear()
    third = turn(third_prompt)
    assert sum(read) == 31
    read.clear()
    branch = turn(start + told)
    assert sum(read) == 30, "a continuation that leaves the dialogue's path keeps the common prefix only"
    fresh = without_ends(tiny, live=2)
    assert content(fresh.generate([second_prompt], params)) == content([second])
    fresh._slots.clear()
    assert content(fresh.generate([third_prompt], params)) == content([third])
    fresh._slots.clear()
    assert content(fresh.generate([start + told], params)) == content([branch])


def test_prompts_with_a_common_instruction_read_it_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = without_ends(tiny, live=8)
    read = 0
    extend = engine._slots.extend

    def counting(slot: int, tokens: Sequence[int]) -> None:
        nonlocal read
        read += len(tokens)
        extend(slot, tokens)

    monkeypatch.setattr(engine._slots, "extend", counting)
    instruction = prompt(200)
    engine.generate([instruction + prompt(10) for _ in range(8)], SamplingParams(max_tokens=1))
    assert read <= 200 + 8 * 11


def test_the_seed_alone_decides(tiny: Path) -> None:
    engine = without_ends(tiny, live=8)
    given = prompt(10)
    one, two, three = engine.generate([given] * 3, [SamplingParams(max_tokens=30, seed=s) for s in (1, 1, 2)])
    assert one.token_ids == two.token_ids != three.token_ids


def test_samples_follow_the_distribution(tiny: Path) -> None:
    engine = without_ends(tiny, live=64)
    given = prompt(6)
    model = AutoModelForCausalLM.from_pretrained(tiny)
    with torch.inference_mode():
        logits = model(torch.tensor([given])).logits[0, -1]
    count = 1000
    for temperature, top_k, top_p in ((1.0, 0, 1.0), (0.1, 0, 1.0), (1.5, 4, 1.0), (1.0, 0, 0.6), (0.1, 0, 0.6)):
        params = [SamplingParams(temperature, top_p, top_k, 1, seed=i) for i in range(count)]
        drawn = [done.token_ids[0] for done in engine.generate([given] * count, params)]
        found = np.bincount(drawn, minlength=VOCABULARY) / count
        expected = torch.softmax(logits / temperature, -1).double().numpy()
        order = np.argsort(-expected, kind="stable")
        if top_k:
            expected[order[top_k:]] = 0
        if top_p < 1:
            expected[order[int(np.searchsorted(expected[order].cumsum(), top_p)) + 1 :]] = 0
        expected /= expected.sum()
        assert set(np.flatnonzero(found)) <= set(np.flatnonzero(expected))
        assert set(np.flatnonzero(expected > 0.02)) <= set(np.flatnonzero(found))
        assert np.abs(found - expected).max() < 4 * np.sqrt(0.25 / count)
        if temperature < 1 and top_p == 1:  # the cold distribution is another one by more than is allowed for
            assert np.abs(expected - torch.softmax(logits, -1).double().numpy()).max() > 12 * np.sqrt(0.25 / count)


def test_stop_strings_and_the_end_token_end_a_completion(tiny: Path) -> None:
    given = prompt(9)
    engine = without_ends(tiny, live=4)
    [free] = engine.generate([given], SamplingParams(max_tokens=60, seed=3))
    text = engine.tokenizer.decode(free.token_ids[10:12])  # two words: the string spans tokens
    [stopped] = engine.generate([given], SamplingParams(max_tokens=60, seed=3, stop=("nothing like it", text)))
    pairs = list(zip(free.token_ids, free.token_ids[1:], strict=False))
    end = pairs.index(free.token_ids[10:12]) + 2
    assert stopped.finish == "stop"
    assert stopped.token_ids == free.token_ids[:end]
    assert stopped.logprobs == free.logprobs[:end]
    engine._stopping.ends = frozenset({free.token_ids[7]})
    [ended] = engine.generate([given], SamplingParams(max_tokens=60, seed=3))
    assert ended.finish == "stop"
    assert ended.token_ids == free.token_ids[: free.token_ids.index(free.token_ids[7]) + 1]


def test_the_model_length_limits_prompts_and_completions(tiny: Path) -> None:
    engine = without_ends(tiny, live=2, max_model_len=64)
    [done] = engine.generate([prompt(60)], SamplingParams(max_tokens=100))
    assert len(done.token_ids) == 4
    assert done.finish == "length"
    with pytest.raises(PromptTooLong, match="64 tokens"):
        engine.submit(Request("long", prompt(64), SamplingParams()))
    with pytest.raises(ValueError, match="empty"):
        engine.submit(Request("empty", (), SamplingParams()))


def test_cancelled_requests_leave_no_trace(tiny: Path) -> None:
    engine = without_ends(tiny, live=2)
    given = [prompt(20), prompt(30), prompt(40)]
    expected = content(engine.generate(given[2:], SamplingParams(max_tokens=8)))
    for i, one in enumerate(given):
        engine.submit(Request(str(i), one, SamplingParams(max_tokens=8)))
    with pytest.raises(ValueError, match="in flight"):
        engine.submit(Request("1", given[1], SamplingParams()))
    engine.step()
    engine.cancel("0")
    engine.cancel("1")
    done: list[Completion] = []
    while not done:
        done = engine.step()
    assert [one.id for one in done] == ["2"]
    assert content(done) == expected
    assert engine.step() == []


def test_new_weights_are_sampled_from_and_checked(tiny: Path, other: Path) -> None:
    given, params = prompt(50), SamplingParams(max_tokens=10, seed=4)
    engine = TransformersEngine(tiny, live=2)
    assert engine.weight_version == weights_digest(tiny)
    old = engine.generate([given], params)
    engine.load_weights(other)
    assert engine.weight_version == weights_digest(other) != weights_digest(tiny)
    new = engine.generate([given], params)
    assert content(new) == content(TransformersEngine(other, live=2).generate([given], params)) != content(old)
    right = engine._probe
    with pytest.raises(WeightsMismatch, match="probe prompt 0"):
        engine.load_weights(tiny, Probe(right.prompts, tuple(value - 0.01 for value in right.logprobs)))
    engine.submit(Request("r", given, params))
    with pytest.raises(RuntimeError, match="in flight"):
        engine.load_weights(other)


def test_the_random_stream_of_a_seed_is_fixed() -> None:
    """Resumed runs rest on it across versions of numpy."""
    assert sampling_generator(5).random(3).tolist() == pytest.approx(
        [0.8575790745, 0.9250921172, 0.4213716730], abs=1e-9
    )
