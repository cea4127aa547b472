"""Waits of processes for each other are longer than any evaluation, and one process's work reaches all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from platform_sdk.processes import shares


@pytest.fixture
def of_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The first of two processes whose default group would give up soon, as NCCL's; the arguments of other groups."""
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore(), timeout=timedelta(minutes=30))
    made: list[Any] = []
    shares._patient_group.cache_clear()
    monkeypatch.setattr(torch.distributed, "new_group", lambda **given: made.append(given) or "patient")
    yield made
    shares._patient_group.cache_clear()
    torch.distributed.destroy_process_group()


def test_waiting_uses_one_gloo_group_with_a_timeout_of_days(of_two: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(torch.distributed, "all_gather_object", lambda parts, items, group: waited.append(group))
    shares.wait_for_all()
    shares.wait_for_all()
    assert waited == ["patient", "patient"]
    assert of_two == [{"backend": "gloo", "timeout": timedelta(days=7)}], "one group, made once"


def test_result_of_the_first_process_reaches_all(of_two: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(parts: list[list[str]], items: list[str], group: str) -> None:
        parts[0], parts[1] = (items or ["of the first"]), []

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    assert shares.from_first(lambda: "mine") == "mine"
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert shares.from_first(lambda: pytest.fail("the second does nothing")) == "of the first"


def test_single_process_does_not_wait() -> None:
    shares.wait_for_all()
    assert shares.from_first(lambda: 5) == 5
