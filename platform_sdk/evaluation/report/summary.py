"""Summary of a run in a few lines of Markdown, for the pipeline's Markdown artifact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from platform_sdk.evaluation.cards.figures import name_of
from platform_sdk.evaluation.cards.markdown import card, cell, number, plain, table
from platform_sdk.evaluation.cards.training import iterations_table
from platform_sdk.evaluation.report.content import FINAL, START, Content, Difference, Phase, gather
from platform_sdk.tracking.updates import Update

LEARNED = ("mean_reward", "loss", "kl", "zero_variance")
MAX_COLUMNS = 3


def build_summary(run_dir: Path) -> str:
    """Return the scores before and after, and one line for each iteration, as Markdown for a narrow panel.

    Raises:
        UserError: ``run_dir`` is not a run directory, or one of its files is invalid.
    """
    content = gather(run_dir, rollouts=0)
    others = [phase for phase in content.evaluations if phase.name not in (START, FINAL)]
    return card(
        str(content.recipe.get("name", run_dir.name)),
        _sentence(content),
        _scores(content),
        _other_scores(content, others),
        iterations_table([_with_score(content, phase) for phase in content.iterations]),
        *(_updates(phase) for phase in content.online),
    )


def _sentence(content: Content) -> str:
    if not content.evaluations:
        return "No evaluation has finished yet."
    found = content.scores(FINAL) or content.evaluations[-1].scores or {}
    if content.differences:
        return (
            f"{found['n']:,} questions. Shares in per cent; difference: after − before on the same questions, "
            "with its 95 % interval."
        )
    return f"{found['n']:,} questions. Shares in per cent, with 95 % intervals."


def _scores(content: Content) -> str:
    """Return the metrics with their values before and after; for a single evaluation, its values and intervals."""
    changes = {change.metric: change for change in content.differences}
    before, after = content.scores(START), content.scores(FINAL)
    if before and after:
        rows = []
        for metric in (metric for metric in content.metrics if metric in after["metrics"]):
            values = [_value(content, metric, scores["metrics"].get(metric)) for scores in (before, after)]
            rows.append([name_of(metric), *values, *_difference(content, changes.get(metric))])
        return table(["metric", "before", "after", "difference", "95 % interval"], rows, numbers=4)
    found = after or before
    if found is None:
        return ""
    rows = [
        [name_of(metric), _value(content, metric, score), _interval(content, metric, score)]
        for metric in content.metrics
        if (score := found["metrics"].get(metric))
    ]
    return table(["metric", plain(found["phase"]), "95 % interval"], rows, numbers=2)


def _difference(content: Content, change: Difference | None) -> tuple[str, str]:
    if change is None:
        return "–", "–"
    parts = (change.value, change.low, change.high)
    value, low, high = (content.amount(change.metric, part, signed=True) for part in parts)
    return f"**{value}**", f"{low} to {high}"


def _value(content: Content, metric: str, score: dict[str, float] | None) -> str:
    return "–" if score is None else content.amount(metric, score["value"])


def _interval(content: Content, metric: str, score: dict[str, float]) -> str:
    if "low" not in score:
        return "–"
    return f"{content.amount(metric, score['low'])} to {content.amount(metric, score['high'])}"


def _other_scores(content: Content, others: Sequence[Phase]) -> str:
    """Return the first metrics of the evaluations between start and end, one row for each."""
    metrics = [metric for metric in content.shown_metrics if metric in content.metrics][:MAX_COLUMNS]
    rows = [
        [
            cell(phase.name),
            *(_value(content, metric, (phase.scores or {})["metrics"].get(metric)) for metric in metrics),
        ]
        for phase in others
    ]
    return table(["evaluation", *map(name_of, metrics)], rows, numbers=len(metrics))


def _with_score(content: Content, phase: Phase) -> dict[str, object]:
    evaluated = content.scores(f"eval-{phase.name}")
    em = evaluated["metrics"].get("em", {}).get("value") if evaluated else None
    return {**phase.figures, "em": em}


def _updates(phase: Phase) -> str:
    """Return the means of an online phase's figures over its first and last tenth of updates."""
    tenth = -(-len(phase.updates) // 10)
    rows = [
        [name_of(name), _mean(phase.updates[:tenth], name), _mean(phase.updates[-tenth:], name)] for name in LEARNED
    ]
    head = f"{plain(phase.name)}, {len(phase.updates):,} updates"
    return table([head, "first tenth", "last tenth"], rows, numbers=2)


def _mean(updates: Sequence[Update], name: str) -> str:
    values = [value for update in updates if (value := getattr(update, name)) is not None]
    return number(float(sum(values) / len(values)) if values else None)


def difference_text(content: Content, change: Difference) -> str:
    """Return a paired difference with its interval, as Markdown."""
    value, interval = _difference(content, change)
    return f"{value} ({interval})"


def score_text(content: Content, metric: str, score: dict[str, float] | None) -> str:
    """Return a score with its interval."""
    value = _value(content, metric, score)
    return value if score is None or "low" not in score else f"{value} ({_interval(content, metric, score)})"
