"""The ``transformers`` engine: continuous batching with cached keys and values, on a CPU or one GPU.

The continuous batching of ``transformers`` (5.23) is not used: its requests share one random state, so a completion
depends on its batch; its log-probabilities belong to the warped distribution; and it has no control over the eviction
of a dialogue's cache. Here every request has a separate random stream, log-probabilities are exact, and on a CPU the
tokens and log-probabilities of a request are bitwise independent of its batch (see ``invariance`` and
``kv_attention``). The engine measures this at its start, and warns if the CPU does not support it.

Not supported: sliding-window attention, rotary embeddings that depend on the longest sequence of a batch, more than one
device, and models without the configuration of Llama (``SIZES``) or with compressed keys and values (DeepSeek-V3).
Models that need any of these but the third are refused.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from platform_sdk.config.errors import UserError
from platform_sdk.sampling import invariance, kv_attention, probe, scoring
from platform_sdk.sampling.engine import (
    Completion,
    Probe,
    Request,
    SamplingEngine,
    WeightsMismatch,
    check_pairs,
    check_request,
    sampling_generator,
)
from platform_sdk.sampling.kv_attention import Chunk
from platform_sdk.sampling.kv_slots import make_slots
from platform_sdk.sampling.models import (
    OUTPUT,
    load_config,
    load_model,
    load_tokenizer,
    longrope_window,
    weights_digest,
)
from platform_sdk.sampling.stopping import StopCondition, end_tokens
from platform_sdk.sampling.token_sampling import sample
from platform_sdk.sizing.memory import slots_within
from platform_sdk.sizing.shape import shape_of

log = logging.getLogger(__name__)

PREFILL_TOKENS = 1024
SIZES = (
    "vocab_size", "max_position_embeddings", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads",
)  # fmt: skip
"""Fields of a model's configuration that the engine needs."""


@dataclass(eq=False)
class _Live:
    """A request that has a row of the KV cache. ``unread`` are the unprocessed prompt tokens."""

    request: Request
    row: int
    limit: int
    uniforms: npt.NDArray[np.float64]
    table: npt.NDArray[np.bool_] | None
    unread: npt.NDArray[np.int64]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class TransformersEngine(SamplingEngine):
    """See ``SamplingEngine``.

    Args:
        model: a model's name (see ``models``).
        live: requests decoded concurrently; further requests wait in a queue.
        max_model_len: the most tokens of prompt and completion; None for the model's limit.

    Attributes:
        kernels: the functions of attention (see ``kv_attention.KERNELS``). Without batch invariance, on a GPU and on
            some CPUs, torch's fused attention and the model's own linear layers are used, which are faster.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        live: int = 64,
        dtype: str = "float32",
        device: str = "cpu",
        max_model_len: int | None = None,
    ) -> None:
        self.tokenizer = load_tokenizer(model)
        self._dtype, self._device, self._rows, self._limit = dtype, device, live, max_model_len
        self.kernels: kv_attention.Kernels = "invariant" if device == "cpu" else "fused"
        self.max_model_len = self._load(model, None)
        config = self._model.config
        self._groups: int = config.num_attention_heads // config.num_key_value_heads
        self._slots = make_slots(self._model, self._slots_for(live), live, self.max_model_len)
        self._stopping = StopCondition(
            self.tokenizer, config.vocab_size, end_tokens(self.tokenizer, self._model.generation_config)
        )
        self._queue: deque[Request] = deque()
        self._live: dict[str, _Live] = {}
        if self.kernels == "invariant" and not self._invariant():
            log.warning("%s", invariance.not_invariant(f"model {model}", dtype))
            self.kernels, self._multiple = "by slot", 1
            invariance.undo(self._model)
        self._check()

    def submit(self, request: Request) -> None:
        check_request(request, self.max_model_len, {*self._live, *(waiting.id for waiting in self._queue)})
        self._queue.append(request)

    def cancel(self, request_id: str) -> None:
        self._live.pop(request_id, None)
        self._queue = deque(request for request in self._queue if request.id != request_id)

    def release(self, dialogue: str) -> None:
        self._slots.release(dialogue)

    @torch.inference_mode()
    def score(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], role: str = ""
    ) -> list[tuple[float, ...]]:
        """See the base class. Scoring uses separate slots, so requests in flight and their caches are unaffected."""
        check_pairs(prompts, continuations, self.max_model_len)
        longest = max((len(one) + len(other) for one, other in zip(prompts, continuations, strict=True)), default=0)
        rows = min(len(prompts), scoring.ROWS)
        slots = make_slots(self._model, rows, rows, longest)

        def forward(inputs: list[int], chunks: list[Chunk], heads: list[int]) -> torch.Tensor:
            return self._forward(inputs, [], [], chunks, heads, slots.store)

        return scoring.score(prompts, continuations, slots, forward, PREFILL_TOKENS, self._model.config.vocab_size)

    def load_weights(self, path: Path | str, probe: Probe | None = None) -> None:
        self._idle()
        self._load(path, probe)
        self._slots.clear()
        self._check()

    def adopt(self, weights: Mapping[str, torch.Tensor], version: str, probe: Probe) -> None:
        """Use the weights of a model in this process, and verify them like ``load_weights``.

        Tensors of this engine's dtype and device are shared, not copied. After changing them in place, call ``adopt``
        again, since the KV cache belongs to the old weights.

        Args:
            weights: all tensors by their names in a plain transformers model, without a tied output matrix.
            version: digest of the weights.
            probe: expected log-probabilities.

        Raises:
            WeightsMismatch: weights of this model are missing, or the engine does not sample from them.
            RuntimeError: requests are in flight.
        """
        self._idle()
        state = self._model.state_dict(keep_vars=True)
        if self._model.config.tie_word_embeddings:
            state.pop(OUTPUT, None)
        if state.keys() != weights.keys():
            names = ", ".join(sorted(state.keys() ^ weights.keys())[:5])
            raise WeightsMismatch(f"the weights are not those of this engine's model: only one of the two has {names}")
        for name, tensor in state.items():
            tensor.data = weights[name].detach().to(dtype=tensor.dtype, device=tensor.device)
        self.weight_version, self._probe = version, probe
        self._slots.clear()
        self._check()

    def close(self) -> None:
        self._live.clear()
        self._queue.clear()

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        """Run one forward pass: a token for every decoding request, and prompt tokens of new ones."""
        self._admit()
        if not self._live:
            return []
        decoding = [live for live in self._live.values() if not len(live.unread)]
        inputs = [live.token_ids[-1] for live in decoding]
        chunks: list[Chunk] = []
        sampled = list(decoding)
        heads = list(range(len(decoding)))
        budget = PREFILL_TOKENS
        decoded_at = [int(self._slots.length[live.row]) for live in decoding]
        for live in self._live.values():
            if len(live.unread) and budget > 0:
                part = live.unread[:budget]
                chunks.append(Chunk(live.row, len(inputs), len(inputs) + len(part), int(self._slots.length[live.row])))
                inputs += part.tolist()
                budget -= len(part)
                live.unread = live.unread[len(part) :]
                self._slots.extend(live.row, part)
                if not len(live.unread):
                    sampled.append(live)
                    heads.append(len(inputs) - 1)
        for live in decoding:
            self._slots.extend(live.row, live.token_ids[-1:])
        logits = self._forward(inputs, [live.row for live in decoding], decoded_at, chunks, heads)
        return self._sample(sampled, logits)

    def _admit(self) -> None:
        """Give queued requests a row, in their order.

        A request is passed over while a prompt in progress shares a clearly longer prefix with it than any cache does
        (``Slots.worth_waiting``): later the prefix is copied instead of computed.
        """
        idle = set(range(self._rows)) - {live.row for live in self._live.values()}
        reading = [live for live in self._live.values() if len(live.unread)]
        waiting: deque[Request] = deque()
        while self._queue and idle:
            request = self._queue.popleft()
            prompt = np.asarray(request.token_ids, dtype=np.int64)
            if reading and self._slots.worth_waiting(prompt, [live.request.token_ids for live in reading]):
                waiting.append(request)
                continue
            row, prefix = self._slots.take(request.dialogue, prompt, idle)
            idle.remove(row)
            params = request.params
            live = _Live(
                request,
                row,
                min(params.max_tokens, self.max_model_len - len(prompt)),
                sampling_generator(params.seed).random(params.max_tokens),
                self._stopping.table(params.stop) if params.stop else None,
                prompt[prefix:],
            )
            self._live[request.id] = live
            reading.append(live)
        self._queue = waiting + self._queue

    def _forward(
        self,
        inputs: list[int],
        rows: list[int],
        positions: list[int],
        chunks: list[Chunk],
        heads: list[int],
        store: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the logits (len(heads), vocabulary) of the flat row of tokens at the positions ``heads``.

        ``store`` is the KV cache, by default of the requests in flight.
        """
        store = self._slots.store if store is None else store
        plan = kv_attention.make_plan(
            store, rows, positions, chunks, self._groups, self._decode_rows(), kernels=self.kernels
        )
        padding = -len(inputs) % self._multiple
        tokens = torch.tensor(inputs + [0] * padding, device=self._device)[None]
        places = torch.nn.functional.pad(plan.positions, (0, padding))[None]
        wanted = torch.tensor(heads, dtype=torch.long, device=self._device)
        output = self._model(input_ids=tokens, position_ids=places, use_cache=False, logits_to_keep=wanted, plan=plan)
        logits: torch.Tensor = output.logits[0]
        return logits

    def _slots_for(self, live: int) -> int:
        """Return the number of slots; on a GPU, which allocates all of them at once, as many as fit."""
        if self._device == "cpu":
            return 2 * live
        cache = shape_of(self._model.config.to_dict()).cache_bytes(self.max_model_len, self._model.dtype.itemsize)
        return slots_within(live, cache, torch.cuda.mem_get_info()[0])

    def _decode_rows(self) -> int:
        if self._device != "cpu":
            return max(self._groups, kv_attention.MIN_ROWS)
        return kv_attention.decode_rows(
            self._groups, self._slots.store.shape[-1], self._model.dtype, torch.get_num_threads()
        )

    @torch.inference_mode()
    def _invariant(self) -> bool:
        """Return True if a text processed alone has the same logits, bit for bit, as in batched decoding."""
        length = min(70, self.max_model_len - 1)
        read = max(length - 4, 1)
        decoded = range(read, length)
        random = np.random.default_rng(0)
        text, other = random.integers(0, self._model.config.vocab_size, size=(2, length)).tolist()
        expected = self._forward(text, [], [], [Chunk(0, 0, length, 0)], [*decoded])
        self._forward(text[:read] + other[:read], [], [], [Chunk(1, 0, read, 0), Chunk(0, read, 2 * read, 0)], [0])
        found = [self._forward([text[at], other[at]], [1, 0], [at, at], [], [0]) for at in decoded]
        store, last = self._slots.store, self._slots.store.shape[2] - 1
        # The last slot decodes alone: attention copies its cache.
        store[:, :, last, :, :length] = store[:, :, 1, :, :length]
        found.append(self._forward(text[-1:], [last], [length - 1], [], [0]))
        return torch.equal(torch.cat(found), torch.cat([expected, expected[-1:]]))

    def _sample(self, sampled: list[_Live], logits: torch.Tensor) -> list[Completion]:
        if not sampled:
            return []
        params = [live.request.params for live in sampled]
        uniforms = [live.uniforms[len(live.token_ids)] for live in sampled]
        finished = []
        for live, token, logprob in zip(sampled, *sample(logits, params, uniforms), strict=True):
            live.token_ids.append(token)
            live.logprobs.append(logprob)
            stop = self._stopping.stops(live.token_ids, live.request.params.stop, live.table)
            if stop or len(live.token_ids) == live.limit:
                del self._live[live.request.id]
                finish: Literal["stop", "length"] = "stop" if stop else "length"
                finished.append(Completion(live.request.id, tuple(live.token_ids), tuple(live.logprobs), finish))
        return finished

    def _idle(self) -> None:
        if self._live or self._queue:
            raise RuntimeError(f"{len(self._live) + len(self._queue)} requests are in flight: new weights must wait")

    def _load(self, path: Path | str, expected: Probe | None) -> int:
        """Load the weights; return the most tokens of prompt and completion."""
        config: Any = load_config(path)
        if getattr(config, "kv_lora_rank", None) or any(getattr(config, size, None) is None for size in SIZES):
            raise UserError(
                f"model {path}: the transformers engine does not support the model type {config.model_type}; use a "
                "model like Llama, Qwen or Mistral, or the engine vllm"
            )
        longest: int = min(self._limit or config.max_position_embeddings, config.max_position_embeddings)
        if lacking := unsupported(config, longest):
            raise UserError(f"model {path}: the transformers engine has no {lacking}")
        self._probe = expected or probe.probe_of_path(path, dtype=self._dtype, device=self._device)
        self._model: Any = load_model(path, dtype=self._dtype, device=self._device, attention=kv_attention.NAME)
        self._multiple = 1
        if self.kernels == "invariant":
            linear = invariance.make_invariant(self._model)
            log.info("model %s: %s", path, linear.describe())
            # Activation functions give other last bits in an incomplete block of 32 values at an array's end.
            self._multiple = math.lcm(32 // math.gcd(32, config.intermediate_size), linear.multiple)
        self.weight_version = weights_digest(path)
        return longest

    def _check(self) -> None:
        completions = self.generate(self._probe.prompts, probe.GREEDY)
        probe.check(self._probe, completions, dtype=self._dtype, what=self.weight_version[:12])


def unsupported(config: Any, longest: int) -> str | None:
    """Return what this engine lacks for dialogues of ``longest`` tokens with a model, and the remedy; None if nothing.

    The probe prompts are too short to show these faults. Rotary embeddings of the type ``dynamic`` change only beyond
    the model's context, which this engine does not exceed.
    """
    remedy = "use the engine vllm"
    kinds = getattr(config, "layer_types", None) or []
    if others := sorted({*kinds} - {"full_attention"}):
        return f"{', '.join(others)}; {remedy}"
    window = None if kinds else getattr(config, "sliding_window", None)
    short = longrope_window(config)
    for lacking, limit in (("sliding-window attention", window), ("rotary embeddings of the type longrope", short)):
        if limit is not None and limit < longest:
            needed = f"{lacking}, which this model needs from {limit + 1} tokens on"
            return f"{needed}; {remedy}, or set max_model_len to {limit}"
    return None
