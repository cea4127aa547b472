"""The ``openai`` engine: a vLLM server with the OpenAI-compatible completions route.

Prompts are sent as token ids, and responses have token ids with log-probabilities (``return_token_ids``, which OpenAI's
service lacks; see vllm-project/vllm#22587). vLLM's log-probabilities are under the full distribution at temperature 1,
and a completion's tokens include its stop string.

New weights are loaded through ``/collective_rpc``, which requires ``VLLM_SERVER_DEV_MODE=1`` and has no access control:
such a server must not be reachable from outside its job, and a step's server (``serve``) is not. The server reads the
files itself, so it needs the same file system. Requests are concurrent, in no fixed order: log-probabilities may differ
in their last digits with the load of the server.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import httpx
import msgspec

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import SAMPLER_HOST
from platform_sdk.display import shortened
from platform_sdk.endpoints import fits_header, opening
from platform_sdk.processes.shares import from_first
from platform_sdk.sampling import probe as probing
from platform_sdk.sampling.engine import (
    Completion,
    Probe,
    Request,
    SamplingEngine,
    WeightsMismatch,
    check_pairs,
    check_request,
    vllm_sampling,
)
from platform_sdk.sampling.models import load_tokenizer, save_untied, weights_digest
from platform_sdk.sampling.vllm_engine import until_reset

T = TypeVar("T")
RETRIES = 4
STEP_SECONDS = 0.05
"""Longest wait for a completion in one step."""
TIMEOUT = httpx.Timeout(600.0, connect=10.0)


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: Annotated[list[_Model], msgspec.Meta(min_length=1)]


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float] | None = None


class _Logprob(msgspec.Struct):
    logprob: float


class _Choice(msgspec.Struct):
    """``prompt_logprobs`` has one entry per prompt token, none for the first; each maps token ids."""

    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[dict[int, _Logprob] | None] | None = None


class _Completions(msgspec.Struct):
    """The used fields of a response of ``/v1/completions``."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]


class _Reset(msgspec.Struct):
    """A response of ``/reset_prefix_cache``, which has status 200 even if the cache was not reset."""

    success: bool


class OpenAIEngine(SamplingEngine):
    """See ``SamplingEngine``.

    Args:
        url: the server's URL without ``/v1``. The API key is read from ``OPENAI_API_KEY`` if set.
        model: the model to sample from. Its weights are loaded if the server has different ones.
        live: concurrent requests.
        dtype: the server's precision; sets the tolerance of the check.
        device: device for the reference of the check.
        max_model_len: the most tokens of prompt and completion; None for the server's limit.
        patience: timeout for the server's first response in seconds.
    """

    def __init__(
        self,
        url: str,
        model: str | Path,
        *,
        live: int = 64,
        dtype: str = "float32",
        device: str = "cpu",
        max_model_len: int | None = None,
        patience: float = 0.0,
    ) -> None:
        self.tokenizer = load_tokenizer(model)
        self._dtype, self._device, self._url = dtype, device, url.rstrip("/")
        key = os.environ.get("OPENAI_API_KEY", "").strip()
        if not fits_header(key):
            raise UserError("the key in OPENAI_API_KEY has characters that an HTTP header must not hold; set it again")
        with opening(f"sampling.engine.url {url}"):
            self._client = httpx.Client(
                base_url=self._url,
                timeout=TIMEOUT,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                limits=httpx.Limits(max_connections=live),
                mounts={f"all://{SAMPLER_HOST}": None},  # a step's own server is never behind a proxy
            )
        self._pool = ThreadPoolExecutor(max_workers=live, thread_name_prefix="openai-engine")
        self._futures: dict[str, Future[Completion]] = {}
        self._wait(patience)
        served = self._read(self._call("GET", "/v1/models"), _Models).data[0]
        self._served = served.id
        limit = served.max_model_len or max_model_len or 0
        if not limit:
            raise UserError(f"{url}: the server does not report its context length; set max_model_len")
        self.max_model_len = min(limit, max_model_len or limit)
        reference = from_first(lambda: probing.probe_of_path(model, dtype=dtype, device=device))
        try:
            self._check(model, reference)
        except WeightsMismatch:
            self.load_weights(model, reference)

    def submit(self, request: Request) -> None:
        check_request(request, self.max_model_len, self._futures)
        self._futures[request.id] = self._pool.submit(self._complete, request)

    def step(self) -> list[Completion]:
        """Return all finished requests; wait shortly for one, since the caller has other events to take."""
        if not self._futures:
            return []
        done, _ = wait(self._futures.values(), timeout=STEP_SECONDS, return_when=FIRST_COMPLETED)
        finished = [name for name, future in self._futures.items() if future in done]
        return [self._futures.pop(name).result() for name in finished]

    def cancel(self, request_id: str) -> None:
        future = self._futures.pop(request_id, None)
        if future is not None:
            future.cancel()  # a running request continues, and its response is ignored

    def score(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], role: str = ""
    ) -> list[tuple[float, ...]]:
        """See the base class. For prompt log-probabilities, vLLM reads a shared prompt again for each continuation."""
        check_pairs(prompts, continuations, self.max_model_len)
        return list(self._pool.map(self._score, prompts, continuations))

    def load_weights(self, path: Path | str, probe: Probe | None = None) -> None:
        if self._futures:
            raise RuntimeError(f"{len(self._futures)} requests are in flight: new weights must wait")
        reference = probe or probing.probe_of_path(path, dtype=self._dtype, device=self._device)
        # vLLM silently reloads tied embeddings wrongly, so the weights are always untied.
        with tempfile.TemporaryDirectory(prefix="hopforge-weights-") as directory:
            untied = save_untied(path, Path(directory))
            body = {"method": "reload_weights", "kwargs": {"weights_path": str(untied)}}
            self._call("POST", "/collective_rpc", body)
        until_reset(self._reset_prefix_cache, self._url)
        self._check(path, reference)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _check(self, path: Path | str, reference: Probe) -> None:
        completions = self.generate(reference.prompts, probing.GREEDY)
        probing.check(reference, completions, dtype=self._dtype, what=f"{self._url} with {path}")
        self.weight_version = weights_digest(path)

    def _reset_prefix_cache(self) -> bool:
        return self._read(self._call("POST", "/reset_prefix_cache"), _Reset).success

    def _complete(self, request: Request) -> Completion:
        sampling = vllm_sampling(request, self.max_model_len)
        choice, token_ids, logprobs = self._choice({"prompt": list(request.token_ids), **sampling})
        finish: Literal["stop", "length"] = "length" if choice.finish_reason == "length" else "stop"
        return Completion(request.id, tuple(token_ids), tuple(logprobs), finish)

    def _score(self, prompt: Sequence[int], continuation: Sequence[int]) -> tuple[float, ...]:
        """Return the log-probabilities of a continuation. Its last token is sampled as the only allowed one, since vLLM
        samples at least one token and rejects a prompt of its full context length."""
        *given, last = continuation
        choice, token_ids, logprobs = self._choice(
            {
                "prompt": [*prompt, *given],
                "max_tokens": 1,
                "temperature": 0.0,
                "prompt_logprobs": 0,
                "allowed_token_ids": [last],
            }
        )
        rows = [row or {} for row in choice.prompt_logprobs or ()][len(prompt) :]
        scored = [row[token].logprob for token, row in zip(given, rows, strict=False) if token in row]
        if len(scored) != len(given) or token_ids != [last]:
            raise UserError(
                f"{self._url}: the server does not return the log-probabilities of a prompt's tokens; "
                "hopforge needs a vLLM server that supports prompt_logprobs and allowed_token_ids"
            )
        return (*scored, *logprobs)

    def _choice(self, asked: dict[str, Any]) -> tuple[_Choice, list[int], list[float]]:
        """Request a completion; return it, its tokens, and their log-probabilities."""
        body = asked | {
            "model": self._served,
            "logprobs": 0,
            "return_token_ids": True,
            # Explicit, since the model's generation config would otherwise change them.
            "repetition_penalty": 1.0,
            "min_p": 0.0,
            "skip_special_tokens": False,
        }
        choice = self._read(self._call("POST", "/v1/completions", body), _Completions).choices[0]
        token_ids, logprobs = choice.token_ids, choice.logprobs.token_logprobs if choice.logprobs else None
        if token_ids is None or logprobs is None or len(token_ids) != len(logprobs):
            raise UserError(
                f"{self._url}: the server does not return token ids with log-probabilities; "
                "hopforge needs a vLLM server that supports return_token_ids"
            )
        return choice, token_ids, logprobs

    def _wait(self, seconds: float) -> None:
        """Wait until the server responds, or until the timeout."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                self._client.get("/health")
            except httpx.TransportError:
                time.sleep(1.0)
            else:
                return

    def _read(self, answer: bytes, shape: type[T]) -> T:
        try:
            return msgspec.json.decode(answer, type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            began = shortened(answer[:80].decode(errors="replace"))
            raise UserError(
                f"{self._url}: the server's answer cannot be read ({shortened(str(error), 200)}): {began}; "
                "hopforge needs the completions route of a vLLM server"
            ) from error

    def _call(self, method: str, route: str, body: dict[str, Any] | None = None) -> bytes:
        """Send a request, with retries after failures of the connection or the server; return the response."""
        fault = ""
        for attempt in range(RETRIES):
            if attempt:
                time.sleep(0.25 * 4 ** (attempt - 1))
            try:
                answer = self._client.request(method, route, json=body)
            except (httpx.TransportError, UnicodeError) as error:  # the latter for an invalid internationalised name
                fault = f"{type(error).__name__}: {error}"
                continue
            if answer.status_code == 404 and route in ("/collective_rpc", "/reset_prefix_cache"):
                raise UserError(
                    f"{self._url}{route}: the server does not accept new weights; start it with "
                    "VLLM_SERVER_DEV_MODE=1, or with the model that is to be sampled from"
                )
            if answer.status_code < 400:
                return answer.content
            fault = f"HTTP {answer.status_code}: {shortened(answer.text, 500)}"
            if answer.status_code < 500 and answer.status_code != 429:
                break
        raise UserError(f"{self._url}{route}: {fault}")
