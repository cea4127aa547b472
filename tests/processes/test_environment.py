"""Environment variables of a step's processes."""

from __future__ import annotations

import os

import pytest

from platform_sdk.processes.environment import restrict_to_own_gpus, variables


@pytest.mark.parametrize(
    ("count", "visible", "expected"),
    [("2", None, "2,3"), ("2", "4,5,6,7", "6,7"), ("1", "4,5,6,7", "4,5,6,7"), ("2", "", "")],
)
def test_each_process_of_several_sees_its_own_gpus(
    monkeypatch: pytest.MonkeyPatch, count: str, visible: str | None, expected: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", count)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    restrict_to_own_gpus(2)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == expected


def test_variables_are_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("FORMER", "a")
    monkeypatch.delenv("NEW", raising=False)
    before = dict(os.environ)
    with pytest.raises(ZeroDivisionError), variables({"FORMER": "b", "NEW": "c"}, without=("RANK", "LOCAL_")):
        assert dict(os.environ) == {
            **{name: value for name, value in before.items() if name not in ("RANK", "LOCAL_RANK")},
            "FORMER": "b", "NEW": "c",
        }  # fmt: skip
        raise ZeroDivisionError
    assert dict(os.environ) == before
