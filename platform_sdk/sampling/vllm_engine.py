"""The ``vllm`` engine: ``vllm.LLM`` in this process, for one node's GPUs (or a CPU, for tests).

vLLM caches shared prefixes and batches continuously, so requests are passed on directly. Its log-probabilities are
under the full distribution at temperature 1, and a completion's tokens include its stop string.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import gpus_of
from platform_sdk.processes.environment import GPUS, TORCHRUN, own_gpus, process_count, variables
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

# On a CPU, seeded requests with chunked prefill crash vLLM 0.32. There the last setting's "gpu" is the machine's
# memory, of which vLLM would require nine tenths.
ON_CPU = {
    "enforce_eager": True,
    "enable_chunked_prefill": False,
    "max_num_batched_tokens": 16384,
    "gpu_memory_utilization": 0.25,
}
COMPILE_NOTHING = {"TORCHDYNAMO_DISABLE": "1"}
"""Environment of vLLM's processes on a CPU, eager or not: otherwise log-probabilities need a C++ compiler."""
OWN_SAMPLER = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
"""Environment of vLLM's processes on a GPU: FlashInfer's sampler, which vLLM warms up although seeded requests never
use it, needs nvcc, which images lack (vllm-project/vllm#49497).
"""
RESETS = 5


class VllmEngine(SamplingEngine):
    """See ``SamplingEngine``.

    Args:
        model: a model's name (see ``models``). Tied embeddings are untied in a temporary copy, since vLLM reloads them
            wrongly.
        live: concurrent requests of vLLM (``max_num_seqs``).
        extra: further arguments of ``vllm.LLM``.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        live: int = 64,
        dtype: str = "bfloat16",
        device: str = "cuda",
        max_model_len: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import vllm
        except ImportError as error:
            raise UserError("the engine vllm needs the package vllm; pip install vllm") from error
        self.tokenizer = load_tokenizer(model)
        self._vllm, self._dtype, self._device = vllm, dtype, device
        reference = from_first(lambda: probing.probe_of_path(model, dtype=dtype, device=device))
        self._directory = tempfile.TemporaryDirectory(prefix="hopforge-weights-")
        untied = save_untied(model, Path(self._directory.name))
        self.tokenizer.save_pretrained(untied)
        arguments = vllm_arguments(
            live=live, dtype=dtype, max_model_len=max_model_len, on_cpu=device == "cpu", extra=extra or {}
        )
        own = vllm_variables(on_cpu=device == "cpu")
        if device != "cpu" and process_count() > 1:
            own = own | {GPUS: ",".join(own_gpus(gpus_of(arguments)))}
        # With torchrun's environment vLLM's processes would wait forever at the rendezvous of torchrun's agent.
        with variables(own, without=TORCHRUN):
            self._engine = vllm.LLM(model=str(untied), **arguments)
        self.max_model_len = int(self._engine.llm_engine.model_config.max_model_len)
        self._in_flight: set[str] = set()
        self._check(model, reference)

    def submit(self, request: Request) -> None:
        from vllm.sampling_params import RequestOutputKind

        check_request(request, self.max_model_len, self._in_flight)
        sampling = vllm_sampling(request, self.max_model_len)
        self._engine.llm_engine.add_request(
            request.id,
            {"prompt_token_ids": list(request.token_ids)},
            self._vllm.SamplingParams(
                **sampling,
                logprobs=0,
                skip_special_tokens=False,
                output_kind=RequestOutputKind.FINAL_ONLY,  # default: one output per token
            ),
        )
        self._in_flight.add(request.id)

    def step(self) -> list[Completion]:
        finished = []
        for output in self._engine.llm_engine.step():
            if output.finished and output.request_id in self._in_flight:
                self._in_flight.remove(output.request_id)
                choice = output.outputs[0]
                tokens = tuple(choice.token_ids)
                logprobs = tuple(row[token].logprob for token, row in zip(tokens, choice.logprobs, strict=True))
                finish: Literal["stop", "length"] = "length" if choice.finish_reason == "length" else "stop"
                finished.append(Completion(output.request_id, tokens, logprobs, finish))
        return finished

    def cancel(self, request_id: str) -> None:
        if request_id in self._in_flight:
            self._in_flight.remove(request_id)
            self._engine.llm_engine.abort_request([request_id])

    def score(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], role: str = ""
    ) -> list[tuple[float, ...]]:
        """See the base class. For prompt log-probabilities, vLLM reads a shared prompt again for each continuation."""
        check_pairs(prompts, continuations, self.max_model_len)
        if self._in_flight:
            raise ValueError(f"{len(self._in_flight)} requests are in flight: vllm cannot score beside them")
        asked = [
            {"prompt_token_ids": [*prompt, *continuation[:-1]]}
            for prompt, continuation in zip(prompts, continuations, strict=True)
        ]
        # The last token is sampled as the only allowed one: vLLM samples at least one, and rejects a full context.
        params = [
            self._vllm.SamplingParams(
                max_tokens=1, temperature=0.0, logprobs=0, prompt_logprobs=0, allowed_token_ids=[continuation[-1]]
            )
            for continuation in continuations
        ]
        scored = []
        for output, prompt, continuation in zip(
            self._engine.generate(asked, params, use_tqdm=False), prompts, continuations, strict=True
        ):
            rows = [*output.prompt_logprobs[len(prompt) :], *output.outputs[0].logprobs]
            scored.append(tuple(row[token].logprob for token, row in zip(continuation, rows, strict=True)))
        return scored

    def load_weights(self, path: Path | str, probe: Probe | None = None) -> None:
        if self._in_flight:
            raise RuntimeError(f"{len(self._in_flight)} requests are in flight: new weights must wait")
        reference = probe or probing.probe_of_path(path, dtype=self._dtype, device=self._device)
        with tempfile.TemporaryDirectory(prefix="hopforge-weights-") as directory:
            untied = save_untied(path, Path(directory))
            self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(untied)})
        until_reset(self._engine.reset_prefix_cache, "vllm")
        self._check(path, reference)

    def close(self) -> None:
        self._directory.cleanup()
        del self._engine

    def _check(self, path: Path | str, reference: Probe) -> None:
        completions = self.generate(reference.prompts, probing.GREEDY)
        probing.check(reference, completions, dtype=self._dtype, what=f"vllm with {path}")
        self.weight_version = weights_digest(path)


def until_reset(reset: Callable[[], bool], where: str) -> None:
    """Reset vLLM's KV cache of the old weights, with retries while some of its blocks are in use.

    Raises:
        WeightsMismatch: all attempts failed.
    """
    for attempt in range(RESETS):
        if attempt:
            time.sleep(0.25 * 2 ** (attempt - 1))
        if reset():
            return
    raise WeightsMismatch(
        f"{where}: vLLM did not reset its prefix cache in {RESETS} attempts, so it would continue with keys and values "
        "of the old weights; look in its log for requests that never ended, and start the step again"
    )


def vllm_variables(*, on_cpu: bool) -> dict[str, str]:
    """Return the environment variables of vLLM's processes."""
    return COMPILE_NOTHING if on_cpu else OWN_SAMPLER


def vllm_arguments(
    *, live: int, dtype: str, max_model_len: int | None, on_cpu: bool, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM`` except the model; the server's flags have the same names."""
    return {
        "dtype": dtype,
        "max_model_len": max_model_len,
        "max_num_seqs": live,
        "generation_config": "vllm",
        **(ON_CPU if on_cpu else {}),
        **extra,
    }
