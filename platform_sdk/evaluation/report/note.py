"""Description of a run in MLflow: recipe, inputs, scores, and the path of its report."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.evaluation.report.content import FINAL, START, Content, gather
from platform_sdk.evaluation.report.facts import parameters_of
from platform_sdk.evaluation.report.summary import difference_text, score_text
from platform_sdk.run_dir import RunDir

REPORT = RunDir.report


def build_note(run_dir: Path) -> str:
    """Return the description of a run as Markdown; times are left out, since MLflow shows them itself.

    Raises:
        UserError: ``run_dir`` is not a run directory, or one of its files is invalid.
    """
    content = gather(run_dir, rollouts=0)
    facts = [("recipe", str(content.recipe["name"])), ("pipeline", str(content.recipe["pipeline"]))]
    facts += [(fact.name, fact.value) for fact in parameters_of(content)]
    paragraphs = [
        _headline(content),
        str(content.environment.get("description") or ""),
        "\n".join(f"- {name}: {value}" for name, value in facts),
        _scores(content),
        f"Report: `{run_dir.resolve() / REPORT}`, also {REPORT} among the artifacts.",
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _headline(content: Content) -> str:
    """Return the first shown score before and after: MLflow folds a description after a few lines."""
    metric = content.shown_metrics[0]
    change = next((change for change in content.differences if change.metric == metric), None)
    if change is None:
        return ""
    before, after = (content.scores(phase)["metrics"][metric]["value"] for phase in (START, FINAL))  # type: ignore[index]
    return (
        f"**{metric} {content.amount(metric, before)} → {content.amount(metric, after)}**, "
        f"difference {difference_text(content, change)} on {change.n} questions"
    )


def _scores(content: Content) -> str:
    evaluated = {phase: scores for phase in (START, FINAL) if (scores := content.scores(phase)) is not None}
    if not evaluated:
        return ""
    changes = {change.metric: change for change in content.differences}
    lines = []
    for metric in (metric for metric in content.metrics if metric in content.shown_metrics):
        values = " → ".join(score_text(content, metric, found["metrics"].get(metric)) for found in evaluated.values())
        paired = f", difference {difference_text(content, changes[metric])}" if metric in changes else ""
        lines.append(f"- {metric}: {values}{paired}")
    count = next(iter(evaluated.values()))["n"]
    same = ", differences on the same questions" if changes else ""
    return f"Scores of {' → '.join(evaluated)} on {count} questions, shares in percent, 95 % intervals{same}:\n\n" + (
        "\n".join(lines)
    )
