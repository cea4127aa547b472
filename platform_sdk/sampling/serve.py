"""``python -m platform_sdk.sampling.serve --spec FILE --port N``: the vLLM server of a step or its job.

It executes vLLM's OpenAI-compatible server with the weights of the step's model, and with the routes for loading new
weights (VLLM_SERVER_DEV_MODE). These routes have no access control, so the server always listens on 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from platform_sdk.config.sampling import SAMPLER_HEALTH, SAMPLER_HOST, EngineSpec
from platform_sdk.config.struct import Struct
from platform_sdk.errors import UserError
from platform_sdk.files import read_model, read_object
from platform_sdk.sampling.models import load_tokenizer, save_untied
from platform_sdk.sampling.vllm_engine import vllm_arguments, vllm_variables
from platform_sdk.sizing.memory import parallelism, tensor_parallel_fault
from platform_sdk.sizing.shape import shape_of

HOST, HEALTH = SAMPLER_HOST, SAMPLER_HEALTH
SHARED_MEMORY = 0.4


class ServedModel(Struct):
    """Content of FILE: a model's name (see ``models``) and the engine's settings."""

    model: str
    engine: EngineSpec
    shares_gpu: bool = False
    """True if the step uses the same GPU: vLLM then takes ``SHARED_MEMORY`` of it instead of nearly all."""


def command(served: ServedModel, folder: Path, port: int, *, gpus: int, gpu_bytes: float) -> list[str]:
    """Return the server's command; the weights are written to ``folder`` with an untied output matrix.

    Args:
        gpus: number of GPUs, divided among engines (see ``parallelism``) unless ``engine.extra`` sets it.
        gpu_bytes: memory of each GPU.

    Raises:
        UserError: the attention heads cannot be divided as ``engine.extra`` requires.
    """
    save_untied(served.model, folder)
    load_tokenizer(served.model).save_pretrained(folder)
    extra = served.engine.extra
    shape = shape_of(read_object(folder / "config.json"))
    heads = shape.heads, shape.key_value_heads
    if fault := tensor_parallel_fault(int(extra.get("tensor_parallel_size", 1)), *heads):
        raise UserError(f"sampling.engine.extra.tensor_parallel_size: {fault}")
    divided = {}
    if gpus > 1 and not extra.keys() & {"tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"}:
        bytes_each = 4 if served.engine.dtype == "float32" else 2
        engines, size = parallelism(gpus, bytes_each * shape.parameters, gpu_bytes, *heads)
        divided = {"data_parallel_size": engines, "tensor_parallel_size": size}
    arguments = vllm_arguments(
        live=served.engine.live,
        dtype=served.engine.dtype,
        max_model_len=served.engine.max_model_len,
        on_cpu=not gpus,
        extra={
            **divided,
            **({"gpu_memory_utilization": SHARED_MEMORY} if served.shares_gpu else {}),
            **extra,
        },
    )
    where = {"model": str(folder), "host": HOST, "port": port}
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *_flags({**arguments, **where})]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m platform_sdk.sampling.serve")
    parser.add_argument("--spec", type=Path, required=True, help="JSON file with the model and settings to serve")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    import torch

    served = read_model(given.spec, ServedModel)
    # Kept as long as the server lives, in the place for temporary files that its caller gives it.
    folder = Path(tempfile.mkdtemp(prefix="hopforge-served-"))
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    memory = torch.cuda.get_device_properties(0).total_memory if gpus else 0
    words = command(served, folder, given.port, gpus=gpus, gpu_bytes=memory)
    own = {"VLLM_SERVER_DEV_MODE": "1", **vllm_variables(on_cpu=not gpus)}
    os.execve(words[0], words, {**os.environ, **own})


def _flags(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of ``vllm.LLM`` as flags of the server's command line."""
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif value is not None:
            yield f"--{flag}"
            yield json.dumps(value) if isinstance(value, (dict, list)) else str(value)


if __name__ == "__main__":
    main()
