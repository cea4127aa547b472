"""Start of the recipe's engine."""

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
"""Startup timeout of a step's server, which on a cluster may have been restarted like this process."""


def load_engine(spec: EngineSpec, model: str | Path) -> SamplingEngine:
    """Start the engine of ``spec`` with the weights of ``model``, checked against a plain forward pass.

    A pair's two models (see ``pairs``) get an engine of ``spec.live`` requests each. If ``spec.threads`` is set, it
    becomes torch's number of threads in this process.

    Raises:
        UserError: the model does not exist, the engine is not installed, or the server does not respond.
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
    """Raise a UserError if a server would have to serve two models."""
    if spec.engine == "openai" and models_of(model):
        raise UserError(f"policy {model} is a pair, but a server of the engine openai serves one model; use vllm")


def _url(spec: EngineSpec) -> str:
    """Return the server's URL: the recipe's, or the URL of this step's or job's server."""
    url = spec.url or os.environ.get(SAMPLER_URL)
    if url is None:
        raise UserError(
            f"engine openai: there is no url, and {SAMPLER_URL} names no server; a pipeline's step or job brings one, "
            "elsewhere give the url of one"
        )
    return url
