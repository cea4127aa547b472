"""How ``hopforge run`` shows a run: a line for each step, a spinner under them, and the scores at the end."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from platform_sdk.cli.terminal import Terminal


class Progress:
    """Prints each step as it ends; on a terminal also what the running one says."""

    def __init__(self, name: str, run_dir: Path, tasks: int) -> None:
        # kfp.local talks on standard output while it runs; this is the one from before it is taken away.
        self.console = Terminal(file=sys.stdout, highlight=False)
        self.tasks = tasks
        self.done = 0
        self.began = time.monotonic()
        self.status = self.console.status("")
        self.console.print(f"[bold]{escape(name)}[/bold] in {escape(str(run_dir))}: {tasks} steps")

    def __enter__(self) -> Self:
        self.status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.status.stop()
        if kind is None:
            self.console.print(f"finished in {_time(time.monotonic() - self.began)}")

    def started(self, task: str) -> None:
        self.status.update(f"{task} …")

    def said(self, task: str, line: str) -> None:
        room = max(20, self.console.width - len(task) - 8)
        self.status.update(f"{task} [dim]{escape(line[:room])}[/dim]")

    def finished(self, task: str, seconds: float) -> None:
        self._ended("[green]✓[/green]", task, seconds)

    def failed(self, task: str, seconds: float) -> None:
        self._ended("[red]✗[/red]", task, seconds)

    def _ended(self, mark: str, task: str, seconds: float) -> None:
        self.done += 1
        self.console.print(f"{mark} {self.done:>{len(str(self.tasks))}}/{self.tasks}  {task:<28}{_time(seconds):>10}")


def print_outcome(scores: list[dict[str, Any]], untrained: dict[str, str], run_dir: Path, tracking_uri: str) -> None:
    """Print what was not trained, the score table, and where the report and the MLflow UI are."""
    console = Terminal(highlight=False, soft_wrap=True)
    for phase, reason in untrained.items():
        console.print(f"[bold]warning:[/bold] {phase}: nothing was trained ({escape(reason)}); the policy is unchanged")
    if scores:
        shown = dict.fromkeys(name for score in scores for name in score["shown"])
        measured = [name for name in shown if any(name in score["metrics"] for score in scores)]
        # Narrow enough for 80 columns, where a score must not be cut off: the interval stands under it.
        table = Table(
            title="Scores in percent, with 95 % intervals, on unseen questions", box=SIMPLE_HEAD, pad_edge=False
        )
        table.add_column("", no_wrap=True)
        for name in ("n", *measured):
            table.add_column(name.replace("_", "\n"), justify="right", no_wrap=True)
        for score in scores:
            found = (score["metrics"].get(name) for name in measured)
            table.add_row(score["phase"], str(score["n"]), *("–" if one is None else _score(one) for one in found))
        console.print(table)
    report = run_dir / "report.html"
    if report.is_file():
        console.print(f"report:  {escape(str(report.resolve()))}")
    console.print(f"MLflow:  mlflow ui --backend-store-uri {escape(shlex.quote(tracking_uri))}")


def _score(metric: dict[str, float]) -> str:
    """Write a share in percent, and the mean of a count, e.g. of turns, as it is."""
    scale, digits = (1, 2) if metric["high"] > 1 else (100, 1)
    value, low, high = (f"{scale * metric[part]:.{digits}f}" for part in ("value", "low", "high"))
    return f"{value}\n[dim]{low}–{high}[/dim]"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
