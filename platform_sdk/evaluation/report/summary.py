"""A run in a few lines of Markdown, for the pipeline's Markdown artifact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from platform_sdk.evaluation.report.content import FINAL, START, Content, Difference, gather
from platform_sdk.tracking.updates import Update

LEARNED = ("mean_reward", "loss", "kl", "zero_variance")


def build_summary(run_dir: Path) -> str:
    """Return the scores before and after, and one line for each iteration, as Markdown.

    Raises:
        UserError: ``run_dir`` is not a run directory, or one of its files is invalid.
    """
    content = gather(run_dir, rollouts=0)
    lines = [f"# {_cell(str(content.recipe.get('name', run_dir.name)))}", ""]
    evaluations = content.evaluations
    if evaluations:
        metrics = content.metrics
        lines += _row("evaluation", "n", *metrics) + _row(*["---"] * (2 + len(metrics)))
        for phase in evaluations:
            scores = phase.scores or {}
            cells = [score_text(content, metric, scores["metrics"].get(metric)) for metric in metrics]
            lines += _row(phase.name, str(scores["n"]), *cells)
    else:
        lines.append("No evaluation has finished yet.")
    for change in (change for change in content.differences if change.metric in content.shown_metrics):
        lines.append(
            f"\n{_cell(change.metric)}, {FINAL} − {START} on the same {change.n} questions: "
            f"{difference_text(content, change)}"
        )
    if content.iterations:
        names = ["mean_reward", "threshold", "acceptance_rate", "examples", "loss_last"]
        lines += ["", *_row("iteration", *names), *_row(*["---"] * (1 + len(names)))]
        for phase in content.iterations:
            values = [phase.figures.get(name) for name in names]
            lines += _row(phase.name, *(_number(value) for value in values))
    if content.online:
        lines += ["", *_row("online", "updates", *(f"{name}, first → last tenth" for name in LEARNED))]
        lines += _row(*["---"] * (2 + len(LEARNED)))
        for phase in content.online:
            changes = [_change(phase.updates, name) for name in LEARNED]
            lines += _row(phase.name, str(len(phase.updates)), *changes)
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> list[str]:
    return ["| " + " | ".join(_cell(cell) for cell in cells) + " |"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def difference_text(content: Content, change: Difference) -> str:
    """Return a paired difference with its interval, as Markdown."""
    parts = (change.value, change.low, change.high)
    value, low, high = (content.amount(change.metric, part, signed=True) for part in parts)
    return f"**{value}** ({low} to {high})"


def score_text(content: Content, metric: str, score: dict[str, float] | None) -> str:
    """Return a score with its interval."""
    if score is None:
        return "–"
    value = content.amount(metric, score["value"])
    if "low" not in score:
        return value
    return f"{value} ({content.amount(metric, score['low'])} to {content.amount(metric, score['high'])})"


def _change(updates: Sequence[Update], name: str) -> str:
    """The mean of a figure over the first and the last tenth of the updates, at least one each."""
    tenth = -(-len(updates) // 10)
    ends = []
    for part in (updates[:tenth], updates[-tenth:]):
        values = [value for update in part if (value := getattr(update, name)) is not None]
        ends.append(_number(sum(values) / len(values) if values else None))
    return " → ".join(ends)


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else "–"
