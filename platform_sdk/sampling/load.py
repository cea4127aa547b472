"""The engine that a recipe names."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import SAMPLER_URL, EngineSpec
from platform_sdk.sampling.engine import SamplingEngine
from platform_sdk.sampling.pairs import PairEngine, models_of

OWN_SERVER_SECONDS = 1800.0
"""Maximum time until a step's own server answers: on a cluster it may have been started again, as these processes."""


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
    refuse_pair(spec, model)
    if models_of(model):
        return PairEngine(model, partial(load_engine, spec))
    sizes: dict[str, Any] = spec.model_dump(include={"live", "dtype", "device", "max_model_len"})
    if spec.engine == "transformers":
        from platform_sdk.sampling.transformers_engine import TransformersEngine

        return TransformersEngine(model, **sizes)
    if spec.engine == "vllm":
        from platform_sdk.sampling.vllm_engine import VllmEngine

        return VllmEngine(model, **sizes, extra=spec.extra)
    from platform_sdk.sampling.openai_engine import OpenAIEngine

    return OpenAIEngine(_url(spec), model, **sizes, patience=OWN_SERVER_SECONDS if spec.brings_server else 0.0)


def refuse_pair(spec: EngineSpec, model: str | Path) -> None:
    """Raise a UserError where a server is to serve two models."""
    if spec.engine == "openai" and models_of(model):
        raise UserError(f"policy {model} is a pair, but a server of the engine openai serves one model; use vllm")


def _url(spec: EngineSpec) -> str:
    """Return the server's address: the recipe's, or the one that this step or job has brought."""
    url = spec.url or os.environ.get(SAMPLER_URL)
    if url is None:
        raise UserError(
            f"engine openai: there is no url, and {SAMPLER_URL} names no server; a pipeline's step or job brings one, "
            "elsewhere give the url of one"
        )
    return url
