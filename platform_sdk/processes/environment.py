"""Environment variables of a step's processes: ranks under ``torchrun``, GPUs, inherited variables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")
"""Prefixes of torchrun's variables, such as the rank."""
GPUS = "CUDA_VISIBLE_DEVICES"


def under_torchrun() -> bool:
    """Return True if ``torchrun`` started this process, alone or as one of several."""
    return "WORLD_SIZE" in os.environ


def process_count() -> int:
    """Return the number of processes of this ``torchrun``; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Return True if this is the first process of ``torchrun``, which writes the files."""
    return os.environ.get("RANK", "0") == "0"


def pod_index() -> int:
    """Return the index of this pod in its Indexed Job."""
    return int(os.environ["JOB_COMPLETION_INDEX"])


def visible_gpus() -> list[str]:
    """Return this machine's GPUs visible to torch, by their names in CUDA_VISIBLE_DEVICES."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = os.environ.get(GPUS)
    names = [name.strip() for name in named.split(",")] if named else [str(number) for number in range(count)]
    return names[:count]


def restrict_to_own_gpus(each: int) -> None:
    """Restrict this process, one of several on a machine, to ``each`` GPUs; call this before torch initialises CUDA."""
    if process_count() > 1:
        os.environ[GPUS] = ",".join(own_gpus(each))


def own_gpus(each: int) -> list[str]:
    """Return the ``each`` GPUs of this process, one of several on a machine; possibly all visible GPUs.

    An empty CUDA_VISIBLE_DEVICES hides all GPUs.
    """
    first = int(os.environ["LOCAL_RANK"]) * each
    named = os.environ.get(GPUS)
    if named is None:
        return [str(number) for number in range(first, first + each)]
    seen = named.split(",") if named else []
    return seen if len(seen) == each else seen[first : first + each]


@contextmanager
def variables(values: Mapping[str, str], *, without: tuple[str, ...] = ()) -> Iterator[None]:
    """Set environment variables for child processes started in the context, and restore them afterwards.

    Args:
        without: prefixes of variables that are absent within.
    """
    names = {*values, *(name for name in os.environ if without and name.startswith(without))}
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
