"""A tiny model on disk, and dialogues to train it on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from platform_sdk.training.examples import Example

VOCABULARY = 40


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "model"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.3,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(path)
    words = {f"w{i}": i for i in range(VOCABULARY)}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0"))).save_pretrained(path)
    return path


def dialogue(number: int, length: int, rng: random.Random) -> Example:
    """Random tokens in which prompt and agent take turns of random lengths."""
    mask: list[int] = []
    while len(mask) < length:
        mask += [len(mask) > 0 and rng.random() < 0.5] * rng.randint(1, 4)
    mask[length - 1] = 1
    return Example(
        id=f"q#{number}/planner",
        token_ids=tuple(rng.randrange(VOCABULARY) for _ in range(length)),
        agent_mask=tuple(int(m) for m in mask[:length]),
        logprobs=tuple(-1.0 if m else 0.0 for m in mask[:length]),
        weights="sampler",
    )


@pytest.fixture(scope="session")
def dialogues() -> list[Example]:
    rng = random.Random(1)
    return [dialogue(number, rng.randint(5, 20), rng) for number in range(24)]
