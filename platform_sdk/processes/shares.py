"""Shares of a step's work for the processes that ``torchrun`` starts, on one machine or several.

Every process runs the same step on the same questions. The next items to sample follow from the items so far, which
all processes know: each process takes its share and sends its results to the others. At the end the first process has
all results, and only the first process scores them: the others end with the phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from platform_sdk.processes.environment import process_count

T = TypeVar("T")

MAX_WAIT = timedelta(days=7)  # for a process whose share takes longer; a dead process is noticed at once


class EndOfShare(SystemExit):
    """End, with status 0, a process that is not the first when its share is done."""


@dataclass(frozen=True)
class Share:
    """Part of the work for one process: every ``count``-th item from the ``index``-th on."""

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
        torch.distributed.all_gather_object(parts, items)
        return [item for part in parts for item in part]

    def wait(self) -> None:
        """Wait until every process calls this."""
        self.gather([])


SINGLE_PROCESS = Share()


@contextmanager
def process_group() -> Iterator[None]:
    """Connect this process with the others of ``torchrun``; within, ``own_share`` is its part of the work."""
    if process_count() == 1:
        yield
        return
    import torch.distributed

    torch.distributed.init_process_group("gloo", timeout=MAX_WAIT)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def own_share() -> Share:
    """Return this process's part of the work in the process group."""
    import torch.distributed

    if not torch.distributed.is_initialized():
        return SINGLE_PROCESS
    return Share(torch.distributed.get_rank(), torch.distributed.get_world_size())
