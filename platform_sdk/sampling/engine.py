"""Interface of a sampling engine: token ids in, token ids and log-probabilities out.

An engine works on many requests at once: ``submit`` adds a request, ``step`` advances all requests and returns the
finished ones. A request's tokens depend only on its prompt, parameters and seed, not on concurrent requests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np


class PromptTooLong(ValueError):
    """A prompt without room in the engine's ``max_model_len`` for a new token, or for the tokens to score."""


class WeightsMismatch(RuntimeError):
    """Difference between the engine's log-probabilities and the reference after new weights were loaded."""


@dataclass(frozen=True)
class SamplingParams:
    """Parameters of sampling one completion.

    Attributes:
        temperature: 0, or any below 1e-5, for greedy decoding.
        top_p: keep the smallest set of most probable tokens whose probability reaches this.
        top_k: keep this many most probable tokens; 0 keeps all.
        max_tokens: the most tokens to generate.
        stop: the completion ends when its text contains one of these, and includes the tokens of the stop string. The
            end-of-sequence token always ends it.
        seed: seed of the request's random stream.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature must be 0 or more, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], not {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or more, not {self.top_k}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be 1 or more, not {self.max_tokens}")
        if any(not text for text in self.stop):
            raise ValueError("a stop string must not be empty")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must lie in [0, 2^63), not {self.seed}")


@dataclass(frozen=True)
class Request:
    """One completion to sample. ``id`` is unique among the requests in flight.

    ``dialogue`` is the name of the dialogue in traces and errors; reuse of the KV cache depends only on the token ids.
    ``role`` is the speaker's role, which selects the model of a pair (see ``pairs``).
    """

    id: str
    token_ids: Sequence[int]
    params: SamplingParams
    dialogue: str = ""
    role: str = ""


@dataclass(frozen=True)
class Probe:
    """Prompts, and the highest next-token log-probability after each, from a reference of ``dtype``."""

    prompts: tuple[tuple[int, ...], ...]
    logprobs: tuple[float, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Completion:
    """The sampled tokens of one request, stop string or end-of-sequence token included.

    ``logprobs`` has one natural logarithm per token, under the model's full distribution at temperature 1, for any
    sampling temperature and filters.
    """

    id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length"]


class SamplingEngine(ABC):
    """A language model that samples for many dialogues at once.

    Attributes:
        tokenizer: the ``transformers`` tokenizer of the model.
        weight_version: digest of the current weights (``models.weights_digest``).
        max_model_len: maximum number of tokens of prompt and completion together.
    """

    tokenizer: Any
    weight_version: str
    max_model_len: int

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Add a request.

        Raises:
            PromptTooLong: the prompt has ``max_model_len`` tokens or more.
            ValueError: the prompt is empty, or the id is in flight already.
        """

    @abstractmethod
    def step(self) -> list[Completion]:
        """Advance the requests in flight; return the finished ones, if any."""

    @abstractmethod
    def cancel(self, request_id: str) -> None:
        """Forget a request in flight; unknown ids are ignored."""

    def release(self, dialogue: str) -> None:  # noqa: B027
        """Hint that the dialogue is over, so its cache may be evicted first. Ignored by default."""

    @abstractmethod
    def score(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], role: str = ""
    ) -> list[tuple[float, ...]]:
        """Compute log-probabilities of given continuations, without sampling.

        Args:
            prompts: one per continuation; a prompt may occur many times.
            continuations: the tokens to score after each prompt.
            role: selects the model of a pair, as ``Request.role`` does; other engines ignore it.

        Returns:
            For each pair, in order, the natural logarithm of each continuation token's probability given the prompt and
            the tokens before it, under the full distribution at temperature 1, like ``Completion.logprobs``.

        Raises:
            PromptTooLong: a prompt and its continuation have more than ``max_model_len`` tokens together.
            ValueError: the numbers of prompts and continuations differ, one of them is empty, or requests are in flight
                and the engine cannot score concurrently.
        """

    @abstractmethod
    def load_weights(self, path: Path | str, probe: Probe | None = None) -> None:
        """Load the weights at ``path``, and verify that the engine samples from them.

        ``probe`` has the expected log-probabilities; by default they are computed by a plain forward pass of the
        weights, loaded a second time.

        Raises:
            WeightsMismatch: the log-probabilities of a probe prompt do not match the weights.
            RuntimeError: requests are in flight.
        """

    @abstractmethod
    def close(self) -> None:
        """Release memory, processes and connections."""

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[Completion]:
        """Sample one completion per prompt, in order; ``params`` is one for all prompts, or one for each."""
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        requests = [
            Request(f"generate-{next(_NUMBERS)}", tuple(prompt), one) for prompt, one in zip(prompts, each, strict=True)
        ]
        for request in requests:
            self.submit(request)
        done: dict[str, Completion] = {}
        while len(done) < len(requests):
            done.update((completion.id, completion) for completion in self.step())
        return [done[request.id] for request in requests]


_NUMBERS = count()


def check_request(request: Request, max_model_len: int, in_flight: Container[str]) -> None:
    """Raise the errors of ``SamplingEngine.submit``."""
    if not len(request.token_ids):
        raise ValueError(f"request {request.id}: the prompt is empty")
    if len(request.token_ids) >= max_model_len:
        raise PromptTooLong(
            f"request {request.id}: a prompt of {len(request.token_ids)} tokens leaves no room for a new one "
            f"(max_model_len is {max_model_len})"
        )
    if request.id in in_flight:
        raise ValueError(f"request {request.id} is in flight already")


def vllm_sampling(request: Request, max_model_len: int) -> dict[str, Any]:
    """Return a request's sampling parameters under the names of vLLM and its server."""
    params, room = request.params, max_model_len - len(request.token_ids)
    return vars(params) | {"max_tokens": min(params.max_tokens, room), "stop": list(params.stop)}


def check_pairs(prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], max_model_len: int) -> None:
    """Raise the errors of ``SamplingEngine.score`` that need no model."""
    if len(prompts) != len(continuations):
        raise ValueError(f"{len(prompts)} prompts cannot be paired with {len(continuations)} continuations")
    for number, (prompt, continuation) in enumerate(zip(prompts, continuations, strict=True)):
        if not len(prompt) or not len(continuation):
            raise ValueError(f"pair {number}: the {'continuation' if len(prompt) else 'prompt'} is empty")
        if len(prompt) + len(continuation) > max_model_len:
            raise PromptTooLong(
                f"pair {number}: {len(prompt)} tokens of prompt and {len(continuation)} of continuation exceed "
                f"max_model_len, {max_model_len}"
            )


def sampling_generator(seed: int) -> np.random.Generator:
    """Return the random stream of a request: one uniform number in [0, 1) is drawn per token."""
    return np.random.Generator(np.random.Philox(seed))
