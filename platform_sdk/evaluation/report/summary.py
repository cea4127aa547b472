"""A run in a few lines of Markdown, for the pipeline's Markdown artifact."""

from __future__ import annotations

from pathlib import Path

from platform_sdk.evaluation.report.content import FINAL, HEADLINE, START, amount, gather


def build_summary(run_dir: Path) -> str:
    """Return the scores before and after, and one line for each iteration, as Markdown.

    Raises:
        UserError: ``run_dir`` is no run directory, or one of its files is not what it should be.
    """
    content = gather(run_dir, rollouts=0)
    lines = [f"# {_cell(str(content.recipe.get('name', run_dir.name)))}", ""]
    evaluations = content.evaluations
    if evaluations:
        metrics = content.metrics
        lines += _row("evaluation", "n", *metrics) + _row(*["---"] * (2 + len(metrics)))
        for phase in evaluations:
            scores = phase.scores or {}
            cells = [_score(metric, scores["metrics"].get(metric)) for metric in metrics]
            lines += _row(phase.name, str(scores["n"]), *cells)
    else:
        lines.append("No evaluation has finished yet.")
    for change in (change for change in content.differences if change.metric in HEADLINE):
        lines.append(
            f"\n{_cell(change.metric)}, {FINAL} − {START} on the same {change.n} questions: "
            f"**{amount(change.metric, change.value, signed=True)}** "
            f"({amount(change.metric, change.low, signed=True)} to {amount(change.metric, change.high, signed=True)})"
        )
    if content.iterations:
        names = ["mean_reward", "threshold", "acceptance_rate", "examples", "loss_last"]
        lines += ["", *_row("iteration", *names), *_row(*["---"] * (1 + len(names)))]
        for phase in content.iterations:
            values = [phase.figures.get(name) for name in names]
            lines += _row(phase.name, *(_number(value) for value in values))
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> list[str]:
    return ["| " + " | ".join(_cell(cell) for cell in cells) + " |"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _score(metric: str, score: dict[str, float] | None) -> str:
    if score is None:
        return "–"
    interval = f" ({amount(metric, score['low'])} to {amount(metric, score['high'])})" if "low" in score else ""
    return f"{amount(metric, score['value'])}{interval}"


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else "–"
