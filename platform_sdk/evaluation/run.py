"""An evaluation: every question answered once, and its scores with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.evaluation.intervals import bootstrap_intervals
from platform_sdk.files import REMEDY, sha256
from platform_sdk.record_files import digest_records, read_jsonl
from platform_sdk.records import Question, Rollout
from platform_sdk.sampling.sampler import RolloutSampler
from platform_sdk.tracking.outcomes import begin, finished, write_json

SCORES = "scores.json"


@dataclass(frozen=True)
class Evaluated:
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
) -> Evaluated:
    """Answer every question once, and write the scores with 95 % bootstrap intervals.

    Args:
        open_sampler: opens the phase that the rollouts belong to; not called where the scores are there already.
        measures: the metrics of each rollout, asked of all at once. A rollout may lack a metric (no gold evidence is
            named, say): the mean, its interval and ``n`` are then over those that have it.
        outcome: ``scores.json`` in the evaluation's folder.
        inputs: digest of everything that decides the scores.
        seed: of the bootstrap.
        shown: the metrics that a report leads with.

    Raises:
        UserError: the folder was begun or finished with other inputs, or its scores or rollouts were altered.
    """
    scores = finished(outcome, inputs)
    if scores is not None:
        _check(outcome, scores, seed)
        _check_rollouts(outcome, scores)
    else:
        begin(outcome.parent, inputs)
        with open_sampler() as phase:
            phase.once(questions, 0, outcome.parent.name)
            rollouts = [phase.done[question.id][0] for question in questions]
        for question, rollout in zip(questions, rollouts, strict=True):
            if rollout.question != question:
                raise UserError(
                    f"{outcome.with_name('rollouts.jsonl')}: {rollout.id}: its question or gold answer is not the "
                    f"corpus's, so it was altered; {REMEDY}"
                )
        per_question = {r.question.id: dict(values) for r, values in zip(rollouts, measures(rollouts), strict=True)}
        scores = {
            "inputs": inputs,
            "phase": outcome.parent.name,
            "n": len(rollouts),
            "rollouts_digest": digest_records(rollouts),
            "shown": list(shown),
            "metrics": _means(per_question, seed),
            "per_question": per_question,
        }
        write_json(outcome, scores)
    values = {name: metric["value"] for name, metric in scores["metrics"].items()}
    return Evaluated(outcome, sha256(outcome), values)


def _check(outcome: Path, scores: Mapping[str, Any], seed: int) -> None:
    """Raise a UserError unless the means and intervals of finished scores are those of their questions' values."""
    try:
        values, shown, n = scores["per_question"], scores["metrics"], scores["n"]
        means = _means(values, seed)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{outcome}: lacks scores ({error!r}), so it was altered; {REMEDY}") from error
    if n != len(values):
        raise UserError(f"{outcome}: n is {n}, but it holds {len(values)} questions, so it was altered; {REMEDY}")
    for name in sorted(means.keys() | shown.keys()):
        if means.get(name) != shown.get(name):
            raise UserError(
                f"{outcome}: metrics.{name} was altered: expected {means.get(name)} of its questions' values, found "
                f"{shown.get(name)}; {REMEDY}"
            )


def _check_rollouts(outcome: Path, scores: Mapping[str, Any]) -> None:
    """Raise a UserError unless the rollouts beside finished scores are those that were scored."""
    path = outcome.with_name("rollouts.jsonl")
    found = {rollout.question.id: rollout for rollout in read_jsonl(path, Rollout)}
    answered = [found[id] for id in scores["per_question"] if id in found]
    if len(found) != scores["n"] or digest_records(answered) != scores.get("rollouts_digest"):
        raise UserError(f"{path}: was altered after it was scored: its digest is not that of {outcome.name}; {REMEDY}")


def _means(per_question: Mapping[str, Mapping[str, float]], seed: int) -> dict[str, dict[str, Any]]:
    """The mean of each metric over the questions that have it; metrics of the same questions are resampled together."""
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
