"""A phase's work divided among processes, those that ``torchrun`` starts, on one machine or several.

Every process runs the same step on the same questions. What is to be sampled next follows from what there is, which all
of them know: so each takes its share of it, and tells the others what it has made. At the end the first process has
everything, and what follows from it (scores, figures) is the first one's: the others end where the phase does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")

LONGEST_WAIT = timedelta(days=7)  # for a process whose share takes longer; one that is gone is noticed at once


class ShareDone(SystemExit):
    """Ends a process, well, whose share is done, and that is not the first."""


@dataclass(frozen=True)
class Share:
    """Which part of the work is this process's: every ``count``-th item from the ``index``-th on."""

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.index == 0

    def of(self, items: Sequence[T]) -> Sequence[T]:
        return items[self.index :: self.count]

    def gather(self, items: list[T]) -> list[T]:
        """The items of all processes, the first one's first. Waits until every process has come here."""
        if self.count == 1:
            return items
        import torch.distributed

        parts: list[list[T]] = [[] for _ in range(self.count)]
        torch.distributed.all_gather_object(parts, items)
        return [item for part in parts for item in part]

    def wait(self) -> None:
        """Until every process has come here."""
        self.gather([])


ALONE = Share()


@contextmanager
def joined() -> Iterator[None]:
    """Within, the processes of ``torchrun`` that this is one of are joined, and ``own_share`` tells its part."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    import torch.distributed

    torch.distributed.init_process_group("gloo", timeout=LONGEST_WAIT)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def own_share() -> Share:
    """This process's part of the work, among those that are joined."""
    import torch.distributed

    if not torch.distributed.is_initialized():
        return ALONE
    return Share(torch.distributed.get_rank(), torch.distributed.get_world_size())


def see_own_gpus(each: int) -> None:
    """Let this process, one of several on a machine, see ``each`` GPUs of its own; before torch has looked for any."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return
    first = int(os.environ["LOCAL_RANK"]) * each
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    own = named.split(",")[first : first + each] if named else map(str, range(first, first + each))
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(own)
