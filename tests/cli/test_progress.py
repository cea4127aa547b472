from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from platform_sdk.cli.progress import print_outcome


def evaluation(phase: str, **metrics: float) -> dict[str, Any]:
    spans = {name: {"value": value, "low": value - 0.05, "high": value + 0.05} for name, value in metrics.items()}
    return {"phase": phase, "n": 200, "metrics": spans}


def test_each_evaluation_is_a_row_and_a_metric_may_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    found = [
        evaluation("eval-start", em=0.25, format=0.5, turns=3.0),
        evaluation("eval-u0010", em=0.4),
        evaluation("eval-final", em=0.525, format=0.95),
    ]
    print_outcome(found, {}, tmp_path, "sqlite:///x.db")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert [row for row in rows if row and row[0].startswith("eval")] == [
        ["eval-start", "200", "25.0 (20.0 to 30.0)", "50.0 (45.0 to 55.0)"],
        ["eval-u0010", "200", "40.0 (35.0 to 45.0)", "–"],
        ["eval-final", "200", "52.5 (47.5 to 57.5)", "95.0 (90.0 to 100.0)"],
    ]
