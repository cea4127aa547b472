"""Tiny random models, made in the test: Llama-like, with a word tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedTokenizerFast, Qwen2Config

VOCABULARY = 97


def tokenizer() -> PreTrainedTokenizerFast:
    """Words w3 … w96; 0 ends a sequence, 1 and 2 are the pieces ``</`` and ``s>``."""
    words = {"<eos>": 0, "</": 1, "s>": 2} | {f"w{i}": i for i in range(3, VOCABULARY)}
    core = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>", clean_up_tokenization_spaces=False)


def save_model(
    path: Path,
    *,
    seed: int = 0,
    kind: str = "llama",
    heads: int = 4,
    kv_heads: int = 1,
    width: int = 32,
    tied: bool = False,
) -> Path:
    config = Qwen2Config if kind == "qwen2" else LlamaConfig
    sizes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "hidden_size": width}
    return save_model_of(
        config, path, seed=seed, **sizes, tie_word_embeddings=tied, initializer_range=0.3 if width == 32 else 0.1
    )


def save_model_of(config: Callable[..., PreTrainedConfig], path: Path, *, seed: int = 0, **own: object) -> Path:
    """Save a random model of a configuration with tiny sizes; ``own`` replaces some of them."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "max_position_embeddings": 640,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(config(**sizes | own)).save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path
