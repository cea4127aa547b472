"""The number of processes that a training starts."""

from __future__ import annotations

import pytest
import torch

from platform_sdk.config.errors import UserError
from platform_sdk.config.training import TrainSpec
from platform_sdk.training.launch import processes_for


@pytest.mark.parametrize(
    ("gpus", "settings", "expected"),
    [
        (0, {}, None),
        (0, {"processes": 2}, 2),
        (0, {"deepspeed": "zero2"}, 1),
        (1, {}, None),
        (1, {"deepspeed": "zero3"}, 1),
        (4, {}, 4),
        (4, {"processes": 2}, 2),
        (4, {"processes": 1}, 1),  # started, so that it sees one GPU of the four
        (4, {"device": "cpu"}, None),
        (4, {"device": "cpu", "processes": 6}, 6),
    ],
)
def test_training_process_count_follows_gpus_and_settings(
    monkeypatch: pytest.MonkeyPatch, gpus: int, settings: dict[str, object], expected: int | None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert processes_for(TrainSpec(**settings)) == expected


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match="processes: 3, but torch sees 2 GPUs"):
        processes_for(TrainSpec(processes=3))
