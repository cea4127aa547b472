"""Division of a step's work among the processes of ``torchrun``, on one or several machines.

Every process runs the same step on the same questions. The next items to sample follow from the items so far, which
all processes have: each process takes its share and sends its results to the others. At the end the first process has
all results, and only the first process scores them: the others end with the phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

from platform_sdk.processes.environment import process_count

T = TypeVar("T")

MAX_WAIT = timedelta(days=7)  # for slow processes; a dead process is detected immediately


class EndOfShare(SystemExit):
    """Exception that ends a process other than the first after its share, with status 0."""


@dataclass(frozen=True)
class Share:
    """Share of one process: every ``count``-th item from the ``index``-th on."""

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.index == 0

    def of(self, items: Sequence[T]) -> Sequence[T]:
        return items[self.index :: self.count]

    def gather(self, items: list[T]) -> list[T]:
        """Return the items of all processes in the order of their ranks; wait until every process calls this."""
        if self.count == 1:
            return items
        import torch.distributed

        parts: list[list[T]] = [[] for _ in range(self.count)]
        torch.distributed.all_gather_object(parts, items, group=_patient_group())
        return [item for part in parts for item in part]

    def wait(self) -> None:
        """Wait until every process calls this."""
        self.gather([])


SINGLE_PROCESS = Share()


def wait_for_all() -> None:
    """Wait until every process calls this, without NCCL's timeout of 30 minutes."""
    own_share().wait()


def from_first(work: Callable[[], T]) -> T:
    """Do ``work`` in the first process alone; return its result in every process. Every process calls this."""
    share = own_share()
    [result] = share.gather([work()] if share.first else [])
    return result


@lru_cache(maxsize=1)
def _patient_group() -> Any:
    """Return the gloo group of all processes for barriers and objects, independent of the training's backend."""
    import torch.distributed

    return torch.distributed.new_group(backend="gloo", timeout=MAX_WAIT)


@contextmanager
def process_group() -> Iterator[None]:
    """Connect this process with the others of ``torchrun``; in the context, ``own_share`` is its share."""
    if process_count() == 1:
        yield
        return
    import torch.distributed

    torch.distributed.init_process_group("gloo", timeout=MAX_WAIT)
    try:
        yield
    finally:
        _patient_group.cache_clear()
        torch.distributed.destroy_process_group()


def own_share() -> Share:
    """Return this process's share in the process group."""
    import torch.distributed

    if not torch.distributed.is_initialized():
        return SINGLE_PROCESS
    return Share(torch.distributed.get_rank(), torch.distributed.get_world_size())
