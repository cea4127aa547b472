"""vLLM server of a step on this machine, or alongside its processes on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from platform_sdk.config.sampling import EngineSpec
from platform_sdk.errors import UserError
from platform_sdk.processes.environment import variables, visible_gpus
from platform_sdk.sampling.local_server import local_server
from platform_sdk.sampling.serve import ServedModel
from platform_sdk.tracking.outcomes import write_json


def write_server(path: Path, model: str, engine: EngineSpec, *, shares_gpu: bool = False) -> None:
    """Write the specification of a step's server."""
    write_json(path, ServedModel(model=model, engine=engine, shares_gpu=shares_gpu).model_dump(mode="json"))


@contextmanager
def server_here(engine: EngineSpec, path: Path, model: str, *, trains: bool) -> Iterator[int]:
    """Start the step's own server, if its engine brings one; yield the number of this machine's GPUs that it takes.

    Args:
        path: the server's specification, which is written.
    """
    if not engine.brings_server:
        yield 0
        return
    gpus = visible_gpus()
    ours, its = split(gpus, engine.gpus)
    write_server(path, model, engine, shares_gpu=trains and ours == its != [])
    with local_server(path, its), variables({"CUDA_VISIBLE_DEVICES": ",".join(ours)} if gpus else {}):
        yield len(gpus) - len(ours)


def split(gpus: list[str], for_server: int | None) -> tuple[list[str], list[str]]:
    """Return the GPUs of a step's processes and the GPUs of its server: the last ones, one by default.

    A single GPU is shared.

    Raises:
        UserError: the server would leave no GPU to the processes.
    """
    if for_server is None and len(gpus) < 2:
        return gpus, gpus
    count = for_server or 1
    if count >= len(gpus):
        raise UserError(
            f"sampling.engine.gpus: {count}, but torch sees {len(gpus)} GPUs, and one at least is the step's own; "
            "lower it, or leave it out for one"
        )
    return gpus[:-count], gpus[-count:]
