from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from platform_sdk.cli.progress import print_outcome

SHOWN = ["em", "f1", "judge", "evidence_recall", "well_formed", "turns"]


def evaluation(phase: str, **metrics: float) -> dict[str, Any]:
    spans = {name: {"value": value, "low": value - 0.05, "high": value + 0.05} for name, value in metrics.items()}
    return {"phase": phase, "n": 200, "shown": SHOWN, "metrics": spans}


def test_each_evaluation_is_a_row_and_a_metric_may_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = [
        evaluation("eval-start", em=0.25, f1=0.25, evidence_recall=0.5, well_formed=0.9, turns=3.0),
        evaluation("eval-u0010", em=0.4),
        evaluation("eval-final", em=0.525, f1=0.53, evidence_recall=0.6, well_formed=0.95),
    ]
    print_outcome(found, {}, tmp_path, "sqlite:///x.db")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    values = {line[0]: line[1:] for line in lines if line and line[0].startswith("eval-")}
    assert values == {
        "eval-start": ["200", "25.0", "25.0", "50.0", "90.0", "3.00"],
        "eval-u0010": ["200", "40.0", "–", "–", "–", "–"],
        "eval-final": ["200", "52.5", "53.0", "60.0", "95.0", "–"],
    }
    assert ["47.5–57.5", "48.0–58.0", "55.0–65.0", "90.0–100.0"] in lines
