"""Progress of ``hopforge run``: a line for each finished step, the running step, and the scores at the end."""

from __future__ import annotations

import shlex
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from rich.box import SIMPLE_HEAD
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from platform_sdk.cli.step_output import StepOutput
from platform_sdk.cli.terminal import Terminal
from platform_sdk.evaluation.metrics import COUNTS
from platform_sdk.execution.local import Listener

if TYPE_CHECKING:
    from platform_sdk.execution.runs import Outcome

MINUTE = 60.0
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Progress(Listener):
    """Listener that prints finished steps and the progress of the running step.

    On a terminal, the running step has one line, which is redrawn; otherwise a line at its start and one every minute.

    Args:
        out: Stream to print to; None prints nothing.
        ago: Seconds since the start of the run.
    """

    def __init__(self, name: str, run_dir: Path, tasks: int, out: TextIO | None, ago: float = 0.0) -> None:
        # In a log, a line is one line however long it is.
        log = out is not None and not out.isatty()
        self.console = Terminal(file=out, highlight=False, quiet=out is None, soft_wrap=log)
        self._tasks = tasks
        self._ended = 0
        self._task = ""
        self._output = StepOutput()
        self._began = self._step_began = time.monotonic() - ago
        self._stopping = False
        self._live = Live(
            get_renderable=self._line, console=self.console, transient=True, auto_refresh=True, refresh_per_second=4
        )
        self._over = threading.Event()
        self.console.print(
            f"[bold]{escape(name)}[/bold] in {escape(str(run_dir))}: {tasks} step{'' if tasks == 1 else 's'}"
        )

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        elif not self.console.quiet:
            threading.Thread(target=self._print_every_minute, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._live.stop()
        if kind is None and self._ended == self._tasks:
            self.console.print(f"finished in {_time(time.monotonic() - self._began)}")

    def started(self, task: str, ago: float = 0.0) -> None:
        self._task, self._output, self._step_began = task, StepOutput(), time.monotonic() - ago
        if not self.console.is_terminal:
            self.console.print(f"  {self._position()}  {task} begins")

    def said(self, task: str, line: str) -> None:
        self._output.read(line)

    def stopping(self, task: str) -> None:
        self._stopping = True
        if not self.console.is_terminal:
            self.console.print(f"  stopping {task} …")

    def finished(self, task: str, seconds: float) -> None:
        self._print_end("[green]✓[/green]", task, seconds)

    def failed(self, task: str, seconds: float) -> None:
        self._print_end("[red]✗[/red]", task, seconds)

    def _print_end(self, mark: str, task: str, seconds: float) -> None:
        self.console.print(f"{mark} {self._position()}  {task:<28}{_time(seconds):>10}")
        self._ended += 1
        self._task = ""

    def _position(self) -> str:
        return f"{self._ended + 1:>{len(str(self._tasks))}}/{self._tasks}"

    def _line(self) -> Text:
        """Return the running step's line, cut to the terminal's width."""
        line = Text(no_wrap=True, overflow="ellipsis")
        if self._task:
            line.append(SPINNER[int(time.monotonic() * 10) % len(SPINNER)], style="green")
            line.append(f" {self._position()}  {self._task}  ")
            line.append("stopping …" if self._stopping else _clock(time.monotonic() - self._step_began))
            line.append(f"  {self._output}", style="dim")
        return line

    def _print_every_minute(self) -> None:
        while not self._over.wait(MINUTE):
            if self._task:
                since = _time(time.monotonic() - self._step_began)
                self.console.print(
                    f"  {self._position()}  {self._task}, {since}: {str(self._output) or 'running'}", markup=False
                )


def print_outcome(outcome: Outcome) -> None:
    """Print phases without training, the score table, and the addresses of the report and the MLflow UI."""
    console = Terminal(highlight=False, soft_wrap=True)
    for phase, reason in outcome.untrained.items():
        console.print(f"[bold]warning:[/bold] {phase}: nothing was trained ({escape(reason)}); the policy is unchanged")
    if outcome.scores:
        shown = dict.fromkeys(name for score in outcome.scores for name in score["shown"])
        measured = [name for name in shown if any(name in score["metrics"] for score in outcome.scores)]
        # The interval is printed below its score, so that the table fits 80 columns.
        table = Table(
            title="Scores in percent, with 95 % intervals, on unseen questions", box=SIMPLE_HEAD, pad_edge=False
        )
        table.add_column("", no_wrap=True)
        for name in ("n", *measured):
            table.add_column(name.replace("_", "\n"), justify="right", no_wrap=True)
        for score in outcome.scores:
            values = ((name, score["metrics"].get(name)) for name in measured)
            cells = ("–" if value is None else _score(value, name in COUNTS) for name, value in values)
            table.add_row(score["phase"], str(score["n"]), *cells)
        console.print(table)
    if outcome.report is not None:
        console.print(f"report:  {escape(outcome.report)}")
    uri = outcome.tracking_uri
    if uri.startswith(("http://", "https://")):
        console.print(f"MLflow:  {escape(uri)}")
    else:
        console.print(f"MLflow:  mlflow ui --backend-store-uri {escape(shlex.quote(uri))}")
    console.print("         (choose Model training at the top left of the page)")


def _score(metric: dict[str, float], count: bool) -> str:
    """Format a share in percent, or the mean of a count, e.g. of turns, as a number."""
    scale, digits = (1, 2) if count or metric["high"] > 1 else (100, 1)
    value, low, high = (f"{scale * metric[part]:.{digits}f}" for part in ("value", "low", "high"))
    return f"{value}\n[dim]{low}–{high}[/dim]"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
