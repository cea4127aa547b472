"""An evaluation: every question answered once, sampled and optionally also greedily, and scores with intervals."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from math import isclose
from pathlib import Path
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.intervals import bootstrap_intervals
from platform_sdk.evaluation.predictions import write_predictions
from platform_sdk.files import REMEDY, read_object, sha256
from platform_sdk.record_files import digest_records, read_jsonl
from platform_sdk.records import Question, Rollout
from platform_sdk.run_dir import PhaseDir
from platform_sdk.sampling.sampler import RolloutSampler
from platform_sdk.tracking.outcomes import begin, finished, write_json

SCORES = PhaseDir.scores
ROLLOUTS = PhaseDir.rollouts
GREEDY = "_greedy"
"""Suffix of the greedy-decoding metrics EM and F1."""


@dataclass(frozen=True)
class EvaluationResult:
    """The outcome of an evaluation: ``scores.json``, its digest, and the metrics' values."""

    path: Path
    digest: str
    metrics: dict[str, float]


def evaluate(
    open_sampler: Callable[[], AbstractContextManager[RolloutSampler]],
    questions: Sequence[Question],
    measures: Callable[[Sequence[Rollout]], Sequence[Mapping[str, float]]],
    *,
    outcome: Path,
    inputs: str,
    seed: int,
    shown: Sequence[str] = (),
    greedy: bool = False,
) -> EvaluationResult:
    """Answer every question once, and write the scores with 95 % bootstrap intervals.

    Answers are also written in the datasets' official formats (``predictions``).

    Args:
        open_sampler: opens the phase that the rollouts belong to; not called if the scores exist already.
        measures: returns the metrics of each rollout. A rollout may lack a metric (for example without gold
            evidence): the mean, its interval and ``n`` are then over the rollouts that have it.
        outcome: ``scores.json`` in the evaluation's folder.
        inputs: digest of everything that decides the scores.
        seed: seed of the bootstrap.
        shown: the leading metrics of a report.
        greedy: decode attempt 1 greedily, and report its scores alongside the scores of attempt 0.

    Raises:
        UserError: the folder belongs to other inputs, or its scores or rollouts were altered.
    """
    scores = finished(outcome, inputs)
    if scores is not None:
        _check(outcome, scores, seed)
        answers = _scored(outcome, scores)
    elif (twin := evaluated_before(outcome, inputs)) is not None:
        outcome.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(twin.with_name(ROLLOUTS), outcome.with_name(ROLLOUTS))
        scores = read_object(twin) | {"phase": outcome.parent.name}
        answers = _scored(outcome, scores)
        write_json(outcome, scores)
    else:
        begin(outcome.parent, inputs)
        with open_sampler() as phase:
            for attempt in range(1 + greedy):
                phase.once(questions, attempt, f"{outcome.parent.name}{', greedy' if attempt else ''}")
            answers = [[phase.done[question.id][attempt] for question in questions] for attempt in range(1 + greedy)]
        rollouts = answers[0]
        for question, rollout in zip([*questions] * len(answers), chain(*answers), strict=True):
            if rollout.question != question:
                raise UserError(
                    f"{outcome.with_name(ROLLOUTS)}: {rollout.id}: its question or gold answer is not the "
                    f"corpus's, so it was altered; {REMEDY}"
                )
        per_question = {r.question.id: dict(values) for r, values in zip(rollouts, measures(rollouts), strict=True)}
        if greedy:
            for rollout, values in zip(answers[1], measures(answers[1]), strict=True):
                also = {f"{name}{GREEDY}": value for name, value in values.items() if name.startswith(("em", "f1"))}
                per_question[rollout.question.id] |= also
        scores = {
            "inputs": inputs,
            "phase": outcome.parent.name,
            "n": len(rollouts),
            "attempts": len(answers),
            "rollouts_digest": digest_records(list(chain(*answers))),
            "shown": [name for metric in shown for name in _shown(metric, greedy)],
            "metrics": _means(per_question, seed),
            "per_question": per_question,
        }
        write_json(outcome, scores)
    # Always written from the rollouts, so that no file is missing or damaged after a crash.
    for rollouts, suffix in zip(answers, ("", "-greedy"), strict=False):
        write_predictions(outcome.parent, rollouts, suffix)
    values = {name: metric["value"] for name, metric in scores["metrics"].items()}
    return EvaluationResult(outcome, sha256(outcome), values)


def evaluated_before(outcome: Path, inputs: str) -> Path | None:
    """Return the finished scores of another evaluation of the run with the same inputs (weights and settings)."""
    others = sorted(path for path in outcome.parent.parent.glob(f"eval-*/{SCORES}") if path != outcome)
    return next((path for path in others if read_object(path).get("inputs") == inputs), None)


def _shown(metric: str, greedy: bool) -> tuple[str, ...]:
    """Return a leading metric; EM is followed by the greedy EM."""
    return (metric, f"{metric}{GREEDY}") if greedy and metric == "em" else (metric,)


def _check(outcome: Path, scores: Mapping[str, Any], seed: int) -> None:
    """Raise a UserError unless the means and intervals of finished scores match their per-question values."""
    try:
        values, shown, n = scores["per_question"], scores["metrics"], scores["n"]
        means = _means(values, seed)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{outcome}: lacks scores ({error!r}), so it was altered; {REMEDY}") from error
    if n != len(values):
        raise UserError(f"{outcome}: n is {n}, but it holds {len(values)} questions, so it was altered; {REMEDY}")
    for name in sorted(means.keys() | shown.keys()):
        if not _agree(means.get(name), shown.get(name)):
            raise UserError(
                f"{outcome}: metrics.{name} was altered: expected {means.get(name)} of its questions' values, found "
                f"{shown.get(name)}; {REMEDY}"
            )


def _agree(one: object, other: object) -> bool:
    """Return True if two metrics are equal but for the last bits of their intervals, which depend on the CPU."""
    if not (isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys()):
        return False
    return all(isinstance(other[key], int | float) and isclose(one[key], other[key], rel_tol=1e-9) for key in one)


def _scored(outcome: Path, scores: Mapping[str, Any]) -> list[list[Rollout]]:
    """Return the rollouts of finished scores: a list for each attempt, in the order of the questions.

    Raises:
        UserError: they are not the scored rollouts.
    """
    path = outcome.with_name(ROLLOUTS)
    attempts = scores.get("attempts", 1)
    found = {(rollout.attempt, rollout.question.id): rollout for rollout in read_jsonl(path, Rollout)}
    wanted = [[(attempt, id) for id in scores["per_question"]] for attempt in range(attempts)]
    answers = [[found[key] for key in keys if key in found] for keys in wanted]
    whole = len(found) == attempts * scores["n"]
    if not whole or digest_records(list(chain(*answers))) != scores.get("rollouts_digest"):
        raise UserError(f"{path}: was altered after it was scored: its digest is not that of {outcome.name}; {REMEDY}")
    return answers


def written_files(folder: Path) -> list[Path]:
    """Return the files of a finished evaluation that no longer change."""
    return [folder / SCORES, folder / ROLLOUTS, *sorted(folder.glob("predictions*"))]


def _means(per_question: Mapping[str, Mapping[str, float]], seed: int) -> dict[str, dict[str, Any]]:
    """Return the mean of each metric over its questions; metrics over the same questions are resampled together."""
    having: dict[str, tuple[str, ...]] = {
        name: tuple(id for id, values in per_question.items() if name in values)
        for name in dict.fromkeys(name for values in per_question.values() for name in values)
    }
    intervals: dict[str, tuple[float, float]] = {}
    for ids in set(having.values()):
        columns = {name: [per_question[id][name] for id in ids] for name in having if having[name] == ids}
        intervals |= bootstrap_intervals(columns, seed=seed)
    return {
        name: {
            "value": sum(per_question[id][name] for id in ids) / len(ids),
            "low": intervals[name][0],
            "high": intervals[name][1],
            "n": len(ids),
        }
        for name, ids in having.items()
    }
