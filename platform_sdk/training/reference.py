"""Log-probabilities under policies that are not trained: the frozen reference, and the sampling policy.

The reference is the initial policy. A full-parameter training keeps a second copy of the weights. An adapter needs
none: the policy with the adapter disabled *is* its base; if training continues an adapter, its initial weights are
restored temporarily.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch

from platform_sdk.config.training import OptimiserSpec
from platform_sdk.sampling.models import load_model, resolve
from platform_sdk.training.arguments import bfloat16_for
from platform_sdk.training.batches import Batch
from platform_sdk.training.policy import agent_logprobs, attention_for, evaluating, halve_frozen


class Reference(Protocol):
    """Log-probabilities under a policy that is not trained."""

    def logprobs(self, batch: Batch, temperature: float = 1.0) -> torch.Tensor:
        """Return log π of the agent tokens, (A,) float32, at a temperature and without dropout.

        Args:
            batch: a batch on the policy's device.
        """


def reference_for(name: str | Path, policy: Any, spec: OptimiserSpec, device: str) -> Reference:
    """Return the reference of ``policy``, which ``policy.load_policy`` loaded from ``name`` with ``spec``.

    It uses the policy's arithmetic, so both agree to the last bit until the first update.

    Args:
        device: a torch device by name.
    """
    bfloat16 = bfloat16_for(spec, device.partition(":")[0])
    if spec.lora is None:
        return _FrozenCopy(name, spec, device, bfloat16)
    started_as_adapter = (resolve(name) / "adapter_config.json").exists()
    return _AdapterStart(policy, bfloat16, _adapter_of(policy) if started_as_adapter else None)


def current_policy(policy: Any, spec: OptimiserSpec, device: str) -> Reference:
    """Return the policy in training with its current weights."""
    return _Itself(policy, bfloat16_for(spec, device) and spec.deepspeed is None)


class _FrozenCopy:
    """A copy of the weights, mostly in bfloat16 for bfloat16 arithmetic: half the memory, equal results."""

    def __init__(self, name: str | Path, spec: OptimiserSpec, device: str, bfloat16: bool) -> None:
        whole = bfloat16 and spec.deepspeed is not None  # like DeepSpeed's policy, without autocast
        kind = device.partition(":")[0]
        dtype = "bfloat16" if whole else "float32"
        model = load_model(name, dtype=dtype, device=device, attention=attention_for(spec, kind))
        self._model = model.requires_grad_(False)
        self._autocast = bfloat16 and not whole
        if self._autocast:
            halve_frozen(model)

    def logprobs(self, batch: Batch, temperature: float = 1.0) -> torch.Tensor:
        return _logprobs(self._model, batch, self._autocast, temperature)


class _Itself:
    """The policy itself."""

    def __init__(self, policy: Any, autocast: bool) -> None:
        self._policy, self._autocast = policy, autocast

    def logprobs(self, batch: Batch, temperature: float = 1.0) -> torch.Tensor:
        with evaluating(self._policy), self._weights():
            return _logprobs(self._policy, batch, self._autocast, temperature)

    def _weights(self) -> AbstractContextManager[None]:
        return nullcontext()


class _AdapterStart(_Itself):
    """The policy with its adapter disabled, or with the adapter weights ``start`` if given."""

    def __init__(self, policy: Any, autocast: bool, start: dict[str, torch.Tensor] | None) -> None:
        super().__init__(policy, autocast)
        self._start = start

    def _weights(self) -> AbstractContextManager[None]:
        if self._start is None:
            disabled: AbstractContextManager[None] = self._policy.disable_adapter()
            return disabled
        return self._put_back(self._start)

    @contextmanager
    def _put_back(self, start: dict[str, torch.Tensor]) -> Iterator[None]:
        now = _adapter_of(self._policy)
        self._load(start)
        try:
            yield
        finally:
            self._load(now)

    @torch.no_grad()
    def _load(self, weights: dict[str, torch.Tensor]) -> None:
        for name, parameter in self._policy.named_parameters():
            if name in weights:
                parameter.copy_(weights[name])


def _adapter_of(policy: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in policy.named_parameters() if p.requires_grad}


@torch.no_grad()
def _logprobs(model: Any, batch: Batch, autocast: bool, temperature: float) -> torch.Tensor:
    with torch.autocast(batch.input_ids.device.type, torch.bfloat16, enabled=autocast):
        return agent_logprobs(model, batch, temperature)
