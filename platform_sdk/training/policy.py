"""The policy in training: loading, and log-probabilities of tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import LoraSpec, OptimiserSpec
from platform_sdk.sampling.models import load_model, resolve
from platform_sdk.training.arguments import bfloat16_for
from platform_sdk.training.attention import PACKED, SHARING, VARLEN
from platform_sdk.training.batches import Batch
from platform_sdk.training.logprobs import scoring, unwrapped


def attention_for(spec: OptimiserSpec, device: str) -> str:
    """Return the kind of attention of a training.

    Raises:
        UserError: the chosen kernel does not support the device or the precision.
    """
    on_kernel = device == "cuda" and bfloat16_for(spec, device)
    if spec.attention == VARLEN and not on_kernel:
        raise UserError(f"attention: {VARLEN} runs in bfloat16 on a CUDA GPU only; set it to auto, or to {PACKED}")
    if spec.attention != "auto":
        return spec.attention
    return VARLEN if on_kernel else PACKED


def load_policy(name: str | Path, spec: OptimiserSpec, *, attention: str, device: str = "cpu") -> Any:
    """Load the model to train: all parameters, or frozen with a trainable adapter.

    Weights are in float32, except weights that bfloat16 arithmetic rounds anyway: those under an adapter
    (``halve_frozen``), and all under DeepSpeed, which keeps float32 masters (see ``masters``). If the model is a LoRA
    adapter, training continues the adapter with ``spec.lora``, and merges it into its base otherwise. Dropout is the
    recipe's; rank, alpha and targets must match the recipe.

    Raises:
        UserError: the model does not exist, or its adapter differs from the recipe in rank, alpha or targets, or is no
            plain LoRA.
    """
    bfloat16 = bfloat16_for(spec, device.partition(":")[0])
    half = bfloat16 and spec.deepspeed is not None
    # ZeRO-3 divides the weights among the processes during loading and accepts no device.
    place = {
        "attention": attention,
        "device": "cpu" if spec.deepspeed == "zero3" else device,
        "dtype": "bfloat16" if half else "float32",
    }
    if spec.lora is None:
        return load_model(name, **place)
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

    path = resolve(name)
    file = path / "adapter_config.json"
    settings = LoraConfig(**_lora_settings(spec.lora))
    if not file.exists():
        return _with_halves(get_peft_model(load_model(name, **place), settings), bfloat16)
    adapter = json.loads(file.read_text())
    for key, field, value in (("r", "rank", spec.lora.rank), ("lora_alpha", "alpha", spec.lora.alpha)):
        if adapter[key] != value:
            raise UserError(f"model {name}: an adapter of {field} {adapter[key]}, but lora.{field} is {value}")
    for key in ("use_rslora", "use_dora", "alpha_pattern", "rank_pattern"):
        if adapter.get(key):
            raise UserError(f"model {name}: an adapter with {key} cannot be trained further; merge it into its base")
    policy = get_peft_model(load_model(adapter["base_model_name_or_path"], **place), settings)
    weights = load_file(path / "adapter_model.safetensors")
    # Compare the adapted modules, not the names in the file: peft saves all-linear as a list of names.
    if weights.keys() != get_peft_model_state_dict(policy).keys():
        raise UserError(f"model {name}: its adapter is on other modules than lora.targets {spec.lora.targets} names")
    set_peft_model_state_dict(policy, weights)
    return _with_halves(policy, bfloat16)


def _with_halves(policy: Any, bfloat16: bool) -> Any:
    if bfloat16:
        halve_frozen(policy)
    return policy


def halve_frozen(model: Any) -> None:
    """Store frozen linear weights in bfloat16: autocast rounds them anyway, so results do not change.

    Norms, embeddings and an output matrix tied to the embedding stay in float32.
    """
    tied = model.get_output_embeddings() if model.config.tie_word_embeddings else None
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module is not tied and not module.weight.requires_grad:
            module.bfloat16()


def _lora_settings(lora: LoraSpec) -> dict[str, Any]:
    return {
        "task_type": "CAUSAL_LM",
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": lora.targets if isinstance(lora.targets, str) else list(lora.targets),
    }


@contextmanager
def evaluating(policy: Any) -> Iterator[None]:
    """Turn dropout off in this context."""
    training = policy.training
    policy.eval()
    try:
        yield
    finally:
        policy.train(training)


def agent_logprobs(model: torch.nn.Module, batch: Batch, temperature: float = 1.0) -> torch.Tensor:
    """Return log π of the batch's agent tokens, (A,) float32; see ``agent_scores``."""
    return agent_scores(model, batch, temperature, entropy=False)[0]


def agent_scores(
    model: torch.nn.Module, batch: Batch, temperature: float, *, entropy: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log π of the batch's agent tokens, and π's entropy at their positions, both (A,) float32.

    The logits of π are divided by the temperature. Entropies have no gradient.

    The output layer processes only positions that predict an agent token, in chunks of the vocabulary: with a
    vocabulary of 150,000, logits would be most of the memory, and with a small model most of the work.

    Args:
        entropy: compute the entropies; otherwise they are 0.

    Raises:
        UserError: the model changes the logits after its output layer.
    """
    longest = max(batch.segments.lengths)
    if max(batch.segments.continues) >= 0 and unwrapped(model).config._attn_implementation not in SHARING:
        raise ValueError(f"examples that share a prompt need attention {PACKED!r} or {VARLEN!r}")
    with scoring(model, batch.targets, temperature, entropy=entropy):
        output = model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            logits_to_keep=batch.predicts[0].nonzero()[:, 0],  # indices: older transformers accept no mask
            segments=batch.segments,
            cu_seq_lens_q=batch.boundaries,  # flash attention's names for segments
            cu_seq_lens_k=batch.boundaries,
            max_length_q=longest,
            max_length_k=longest,
        )
    logprobs, entropies = output.logits[0].unbind(dim=-1)
    return logprobs, entropies.detach()
