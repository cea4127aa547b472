"""``hopforge metrics``: scores of a prediction file, equal to the dataset's official script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from platform_sdk.cli.altered import AlteredOption, warn
from platform_sdk.cli.output import say_json
from platform_sdk.cli.terminal import Terminal, say

if TYPE_CHECKING:
    from platform_sdk.evaluation.metrics import Scores


def metrics(
    dataset: Annotated[
        Literal["hotpotqa", "2wikimultihopqa", "musique", "nq", "triviaqa", "popqa", "bamboogle", "qald10"],
        typer.Argument(help="Dataset, which sets the formats and the definitions."),
    ],
    gold: Annotated[Path, typer.Option(help="The official questions file.")],
    predictions: Annotated[Path, typer.Option(help="The predictions, in the official format.")],
    names: Annotated[
        Path | None,
        typer.Option(
            help="Further names of entities. 2wikimultihopqa: id_aliases.json; qald10: topic_entities.json "
            "(default: the file next to the gold file)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object {metric: value in 0..1}.")] = False,
    per_question: Annotated[bool, typer.Option("--per-question", help="Also print each question's values.")] = False,
    intervals: Annotated[bool, typer.Option("--intervals", help="Also print 95 % bootstrap intervals.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    altered: AlteredOption = False,
) -> None:
    """Score predictions as the official script of the dataset does.

    With --json, --intervals adds "n" and "intervals" {metric: [low, high]}, and --per-question adds
    "per_question" {id: {metric: value}}. Questions without a prediction score 0;
    their number, and the number of predictions without a question, is printed to stderr. If a file belongs to a run,
    the run's files are verified first.
    """
    from platform_sdk.config.errors import UserError
    from platform_sdk.evaluation.metrics import score_files
    from platform_sdk.tracking.opened import open_run, run_of

    if names is not None and dataset not in ("2wikimultihopqa", "qald10"):
        raise UserError(f"--names is for 2wikimultihopqa and qald10; {dataset} has no file of entity names")
    run_dirs = dict.fromkeys(run_of(path) for path in (gold, predictions, names) if path is not None)
    reports = [report for run_dir in run_dirs if run_dir for report in open_run(run_dir, altered=altered).altered]
    warn(reports)
    scores = score_files(dataset, gold, predictions, names)
    for part, count in scores.missing.items():
        if count:
            say(f"{count} of {scores.n} questions have no {_PARTS[part]} and score 0", err=True)
    if scores.unknown:
        say(f"{scores.unknown} predictions are ignored: {gold} has no question for them", err=True)
    for note in scores.notes:
        say(note, err=True)
    bounds = scores.intervals(seed=seed) if intervals else {}
    if as_json:
        result: dict[str, object] = dict(scores.means())
        if reports:
            result["altered"] = reports
        if intervals:
            result |= {"n": scores.n, "intervals": bounds}
        if per_question:
            result["per_question"] = scores.per_question()
        say_json(result)
    else:
        _print_tables(dataset, scores, bounds, per_question)


_PARTS = {"": "predicted answer", "sp_": "predicted supporting facts", "evi_": "predicted evidence"}


def _print_tables(dataset: str, scores: Scores, bounds: dict[str, tuple[float, float]], per_question: bool) -> None:
    """Print the aggregates and, with ``per_question``, each question's values, in percent."""
    from rich.markup import escape
    from rich.table import Table

    from platform_sdk.display import shortened

    console = Terminal()
    if per_question:
        detail = Table("question", title=f"{dataset}: each question, percent")
        for name in scores.columns:
            detail.add_column(name, justify="right")
        for id_, values in scores.per_question().items():
            detail.add_row(escape(shortened(id_, 200)), *(f"{100 * value:.1f}" for value in values.values()))
        console.print(detail)
    table = Table("metric", title=f"{dataset}: {scores.n} questions, percent")
    table.add_column("score", justify="right")
    if bounds:
        table.add_column("95 % interval", justify="right")
    for name, value in scores.means().items():
        low_high = [f"{100 * bounds[name][0]:.2f} to {100 * bounds[name][1]:.2f}"] if bounds else []
        table.add_row(name, f"{100 * value:.2f}", *low_high)
    console.print(table)
