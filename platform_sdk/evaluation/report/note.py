"""A run described to readers of MLflow: what it is, what it began with, its scores, and where its report is."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.evaluation.report.content import FINAL, START, Content, Difference, gather
from platform_sdk.evaluation.report.facts import parameters_of
from platform_sdk.evaluation.report.summary import row, score_text

REPORT = "report.html"


def build_note(run_dir: Path) -> str:
    """Return the description of a run as Markdown; times are left out, since MLflow shows them itself.

    Raises:
        UserError: ``run_dir`` is no run directory, or one of its files is not what it should be.
    """
    content = gather(run_dir, rollouts=0)
    recipe = content.recipe
    facts = [("recipe", str(recipe.get("name", "–"))), ("pipeline", str(recipe.get("pipeline", "–")))]
    facts += [(fact.name, fact.value) for fact in parameters_of(content)]
    lines = []
    for text in (_headline(content), str(content.environment.get("description") or "")):
        lines += [text, ""] if text else []
    lines += row("", "") + row("---", "---")
    for name, value in facts:
        lines += row(name, value)
    lines += ["", *_scores(content), f"Report: `{run_dir.resolve() / REPORT}`, also {REPORT} among the artifacts."]
    return "\n".join(lines) + "\n"


def _headline(content: Content) -> str:
    """Return the first shown score before and after: MLflow folds a description after a few lines."""
    metric = content.shown_metrics[0]
    change = next((change for change in content.differences if change.metric == metric), None)
    if change is None:
        return ""
    before, after = (content.scores(phase)["metrics"][metric]["value"] for phase in (START, FINAL))  # type: ignore[index]
    return (
        f"**{metric} {content.amount(metric, before)} → {content.amount(metric, after)}**, "
        f"difference {_change(content, change)} on {change.n} questions"
    )


def _scores(content: Content) -> list[str]:
    found = {phase: scores for phase in (START, FINAL) if (scores := content.scores(phase)) is not None}
    if not found:
        return ["No evaluation has finished yet.", ""]
    differences = {change.metric: change for change in content.differences}
    paired = ["difference"] if differences else []
    lines = row("score", *found, *paired) + row(*["---"] * (1 + len(found) + len(paired)))
    for metric in (metric for metric in content.metrics if metric in content.shown_metrics):
        cells = [score_text(content, metric, scores["metrics"].get(metric)) for scores in found.values()]
        lines += row(metric, *cells, *[_change(content, differences.get(metric)) for _ in paired])
    questions = next(iter(found.values()))["n"]
    same = "; differences on the same questions" if paired else ""
    return [*lines, "", f"Shares in percent, with 95 % intervals, on {questions} questions{same}.", ""]


def _change(content: Content, change: Difference | None) -> str:
    if change is None:
        return "–"
    parts = (change.value, change.low, change.high)
    value, low, high = (content.amount(change.metric, part, signed=True) for part in parts)
    return f"**{value}** ({low} to {high})"
