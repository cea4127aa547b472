"""Predictions of an evaluation in the datasets' official formats, for the official scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from platform_sdk.config.dataset import FORMATS
from platform_sdk.data.formats.base import load_format, write_answers
from platform_sdk.records import Rollout


def write_predictions(folder: Path, rollouts: Sequence[Rollout], suffix: str = "") -> list[Path]:
    """Write ``predictions-DATASET.json`` or ``.jsonl`` for each dataset among the rollouts; return the files.

    Answers in a generated world, which has no official script, use HotpotQA's format.
    """
    by_dataset: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        by_dataset.setdefault(rollout.question.dataset, []).append(rollout)
    files = []
    for dataset, some in by_dataset.items():
        write = load_format(dataset).write if dataset in FORMATS or "." in dataset else write_answers
        files.append(write(folder / f"predictions{suffix}-{dataset}", some))
    return files
