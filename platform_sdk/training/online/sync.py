"""Transfer of the policy's weights to the sampling engine, with verification.

An engine in this process shares the policy's tensors, any other engine reads a directory.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import PartialState
from safetensors.torch import save_file

from platform_sdk.config.sampling import EngineSpec
from platform_sdk.processes.shares import wait_for_all
from platform_sdk.sampling import probe as probing
from platform_sdk.sampling.engine import Probe, SamplingEngine
from platform_sdk.sampling.models import OUTPUT, tensors_digest
from platform_sdk.sampling.transformers_engine import TransformersEngine
from platform_sdk.training.attention import Segments
from platform_sdk.training.checkpoints import publish, staging
from platform_sdk.training.policy import evaluating


class WeightSync(ABC):
    """Synchronisation of an engine's weights with a policy in training.

    Args:
        engine: started with a model of the policy's shape.
        policy: a transformers model, possibly with a LoRA adapter, which is merged.
        dtype: the engine's precision; sets the tolerance of the check.
    """

    def __init__(self, engine: SamplingEngine, policy: Any, dtype: str) -> None:
        self.engine = engine
        self._policy, self._dtype = policy, dtype
        self._before: Probe | None = None

    def refresh(self) -> str:
        """Send the policy's current weights to the engine; return their version, which is their digest.

        All processes call this together.

        Raises:
            WeightsMismatch: the engine samples from other weights, for example the previous ones.
        """
        weights = plain_weights(self._policy)
        version = tensors_digest(weights.items())
        probe = probe_of_policy(self._policy)
        self._hand_over(weights, version, probe)
        completions = self.engine.generate(probe.prompts, probing.GREEDY)
        what = f"weights {version[:12]}"
        probing.check(probe, completions, dtype=self._dtype, what=what)
        if self._before is not None:
            probing.check_moved(self._before, probe, completions, dtype=self._dtype, what=what)
        self._before = probe
        return version

    @abstractmethod
    def _hand_over(self, weights: Mapping[str, torch.Tensor], version: str, probe: Probe) -> None: ...


class SharedWeights(WeightSync):
    """Transfer to the transformers engine in this process, which samples from the policy's tensors."""

    engine: TransformersEngine

    def _hand_over(self, weights: Mapping[str, torch.Tensor], version: str, probe: Probe) -> None:
        self.engine.adopt(weights, version, probe)


class SavedWeights(WeightSync):
    """Transfer to vLLM, as a server or in this process: it reloads the weights from a directory.

    Args:
        folder: directory that the engine sees under the same path.
        shared: the processes that share an engine (a server), so that only the first of them triggers the reload: none,
            those of a node, or all.
    """

    def __init__(
        self, engine: SamplingEngine, policy: Any, dtype: str, folder: Path, *, shared: Literal["none", "node", "all"]
    ) -> None:
        super().__init__(engine, policy, dtype)
        self._folder, self._shared = folder, shared

    def _hand_over(self, weights: Mapping[str, torch.Tensor], version: str, probe: Probe) -> None:
        state = PartialState()
        if state.is_main_process:
            written = staging(self._folder)
            # A full state dict, independent of adapters and wrappers.
            save_file({name: tensor.contiguous() for name, tensor in weights.items()}, written / "model.safetensors")
            _plain(self._policy).config.save_pretrained(written)
            self.engine.tokenizer.save_pretrained(written)
            publish(written, self._folder)
        wait_for_all()
        first = {"none": True, "node": state.is_local_main_process, "all": state.is_main_process}
        if first[self._shared]:
            self.engine.load_weights(self._folder, probe)
        wait_for_all()
        if state.is_main_process:
            shutil.rmtree(self._folder)


def sync_for(spec: EngineSpec, engine: SamplingEngine, policy: Any, folder: Path) -> WeightSync:
    """Return the weight synchronisation for the engine of ``spec``; engines that read files use ``folder``."""
    if isinstance(engine, TransformersEngine):
        return SharedWeights(engine, policy, spec.dtype)
    shared: Literal["none", "node", "all"] = "none"
    if spec.engine == "openai":
        shared = "node" if spec.brings_server else "all"
    return SavedWeights(engine, policy, spec.dtype, folder, shared=shared)


def plain_weights(policy: Any) -> dict[str, torch.Tensor]:
    """Return the policy's tensors as in a plain transformers model, ordered by name, without a tied output matrix.

    They share the policy's storage, except for tensors changed by a LoRA adapter: these are new sums of base and
    adapter, as peft merges them. (Merging in place and undoing it would leave rounding errors in the base.)
    """
    model = _plain(policy)
    state = {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in model.state_dict().items()
        if ".lora_" not in name and not (model.config.tie_word_embeddings and name == OUTPUT)
    }
    if model is not policy:
        from peft.tuners.lora import LoraLayer

        with torch.no_grad():
            for name, module in model.named_modules():
                if isinstance(module, LoraLayer):
                    layer: Any = module
                    weight = state[f"{name}.weight"]
                    for adapter in layer.active_adapters:
                        weight = weight.float() + layer.get_delta_weight(adapter).float()  # the base may be bfloat16
                    state[f"{name}.weight"] = weight
    return dict(sorted(state.items()))


def probe_of_policy(policy: Any) -> Probe:
    """Return the reference log-probabilities of a policy in training, under its training attention.

    The reference's precision is that of the arithmetic: autocast computes with float32 weights in bfloat16.
    """
    model = _plain(policy)
    prompts = probing.probe_prompts(int(model.config.vocab_size))
    logprobs = []
    computed: list[torch.dtype] = []
    # The type of the logits before accelerate converts them.
    noted = model.get_output_embeddings().register_forward_hook(lambda *passed: computed.append(passed[-1].dtype))
    with evaluating(policy), torch.no_grad(), noted:
        for prompt in prompts:
            tokens = torch.tensor([prompt], device=model.device)
            ends = torch.tensor([0, len(prompt)], dtype=torch.int32, device=model.device)
            logits = policy(
                input_ids=tokens,
                position_ids=torch.arange(len(prompt), device=model.device)[None],
                use_cache=False,
                segments=Segments((len(prompt),), (-1,)),
                cu_seq_lens_q=ends,
                cu_seq_lens_k=ends,
                max_length_q=len(prompt),
                max_length_k=len(prompt),
            ).logits[0, -1]
            logprobs.append(float(torch.log_softmax(logits.float(), dim=-1).max()))
    return Probe(prompts, tuple(logprobs), str(computed[0]).removeprefix("torch."))


def _plain(policy: Any) -> Any:
    """Return the transformers model inside an adapter."""
    return policy.get_base_model() if hasattr(policy, "peft_config") else policy
