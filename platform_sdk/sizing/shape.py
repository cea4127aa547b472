"""Shape of a decoder with gated feed-forward layers (Llama, Qwen, Mistral), and its parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_IN_NAME = re.compile(r"(?<![\d.])(?<!-A)(\d+(?:\.\d+)?)([BM])\b", re.IGNORECASE)  # "-A3B": active parameters
_UNITS = {"B": 1e9, "M": 1e6}


@dataclass(frozen=True)
class ModelShape:
    """Sizes that determine a model's parameters and operations. Biases (below 0.1 %) are not counted."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head_size: int
    feed_forward: int
    vocabulary: int
    tied: bool

    @property
    def body(self) -> int:
        """Parameters of the layers, without the embedding and the output matrix."""
        attention = self.hidden * self.head_size * 2 * (self.heads + self.key_value_heads)
        return self.layers * (attention + 3 * self.hidden * self.feed_forward + 2 * self.hidden) + self.hidden

    @property
    def matrix(self) -> int:
        """Parameters of the embedding, and also of the output matrix."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        return self.body + self.matrix * (1 if self.tied else 2)

    def cache_bytes(self, tokens: int, bytes_each: int) -> int:
        """Return the bytes of the KV cache of ``tokens`` tokens, with ``bytes_each`` bytes a number."""
        return 2 * self.layers * self.key_value_heads * self.head_size * tokens * bytes_each


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape in a ``config.json`` of transformers.

    Raises:
        KeyError: the configuration lacks a size.
    """
    heads = config["num_attention_heads"]
    return ModelShape(
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        key_value_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or config["hidden_size"] // heads,
        feed_forward=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def parameters_in_name(model: str) -> float | None:
    """Return the number of parameters in a model's name (``Qwen2.5-7B-Instruct``: 7e9), or None."""
    if model.startswith("run:"):  # a run's folder may be named after any model
        return None
    for part in reversed(model.split("/")):  # a folder's name may have the size of another model
        if sizes := [float(number) * _UNITS[unit.upper()] for number, unit in _IN_NAME.findall(part)]:
            return max(sizes)  # "-1M" may also be the length of the context
    return None
