"""The engine that a recipe names."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.pairs import PairEngine, models_of


def load_engine(spec: EngineSpec, model: str | Path) -> SamplingEngine:
    """Start the engine of ``spec`` with the weights of ``model``, checked against a plain forward pass.

    A pair's two models (see ``pairs``) get an engine each, of ``spec.live`` requests each.

    Sets the number of torch threads of this process where ``spec.threads`` is given.

    Raises:
        UserError: no such model, an engine that is not installed, a server that does not answer.
        WeightsMismatch: the engine does not sample from these weights.
    """
    import torch

    if spec.threads is not None:
        torch.set_num_threads(spec.threads)
    if models_of(model):
        if spec.engine == "openai":
            raise UserError(f"policy {model} is a pair, but a server of the engine openai serves one model; use vllm")
        return PairEngine(model, partial(load_engine, spec))
    if spec.engine == "transformers":
        from platform_sdk.sampling.transformers_engine import TransformersEngine

        return TransformersEngine(
            model, live=spec.live, dtype=spec.dtype, device=spec.device, max_model_len=spec.max_model_len
        )
    if spec.engine == "vllm":
        from platform_sdk.sampling.vllm_engine import VllmEngine

        return VllmEngine(
            model,
            live=spec.live,
            dtype=spec.dtype,
            device=spec.device,
            max_model_len=spec.max_model_len,
            extra=spec.extra,
        )
    from platform_sdk.sampling.openai_engine import OpenAIEngine

    assert spec.url is not None
    return OpenAIEngine(
        spec.url, model, live=spec.live, dtype=spec.dtype, device=spec.device, max_model_len=spec.max_model_len
    )
