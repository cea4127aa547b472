"""Table of a run that fits the terminal: finished and pending steps are summarised if there are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from platform_sdk.kubeflow.remote.jobs import JobState
    from platform_sdk.kubeflow.remote.pods import StepState
    from platform_sdk.kubeflow.remote.state import RunState

MARKS = {"SUCCEEDED": "[green]✓[/green]", "FAILED": "[red]✗[/red]", "RUNNING": "[cyan]▸[/cyan]"}
DONE = frozenset({"SUCCEEDED", "SKIPPED"})
PENDING = "PENDING"
SUCCEEDED = "Succeeded"  # state of a job


@dataclass(frozen=True)
class RunTable:
    """Table of a run's state; ``whole`` shows every step, even if the terminal has fewer lines."""

    state: RunState
    whole: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._whole() if self.whole else self._fitting(console, options)

    def _fitting(self, console: Console, options: ConsoleOptions) -> Table:
        """Return the whole table if it fits, otherwise a table without some of the finished and pending steps."""
        whole = self._whole()
        if _spare(console, options, whole) >= 0:
            return whole
        done = [step for step in self.state.steps if step.state in DONE]
        pending = [step for step in self.state.steps if step.state == PENDING]
        cut = _spare(console, options, self._short(done, pending, cut=False)) < 0
        spare = max(0, _spare(console, options, self._short(done, pending, cut=cut)))
        following = min(len(pending), spare // 2)
        last = min(len(done), spare - following)
        following = min(len(pending), spare - last)
        return self._short(done[: len(done) - last], pending[following:], cut=cut)

    def _whole(self) -> Table:
        return self._table((), (), self.state.jobs, cut=False)

    def _short(self, done: Sequence[StepState], pending: Sequence[StepState], *, cut: bool) -> Table:
        """Return the table with ``done`` and ``pending`` as numbers only, and without jobs of finished steps."""
        finished = {step.name for step in self.state.steps if step.state in DONE}
        return self._table(done, pending, [job for job in self.state.jobs if job.step not in finished], cut=cut)

    def _table(
        self, done: Sequence[StepState], pending: Sequence[StepState], jobs: Sequence[JobState], *, cut: bool
    ) -> Table:
        """Return a table with only the number of ``done`` and ``pending`` steps; ``cut`` limits reasons to one line."""
        state = self.state
        table = Table(box=None, header_style="bold", pad_edge=False, title_justify="left",
                      title=f"{escape(state.name)}: {state.state.lower()}", caption=escape(state.unseen) or None,
                      caption_justify="left")  # fmt: skip
        for title in ("", "step", "state"):
            table.add_column(title, no_wrap=True)
        table.add_column()

        def text(reason: str) -> Text:
            return Text(reason, no_wrap=cut, overflow="ellipsis" if cut else "fold")

        def add(job: JobState, name: str) -> None:
            table.add_row("", name, job.state, text(job.reason))

        _count(table, done)
        counted = {step.name for step in (*done, *pending)}
        for step in state.steps:
            if step.name in counted:
                continue
            took = "" if step.seconds is None else f"{step.seconds:.0f} s"
            note = text(": ".join(filter(None, (took, step.reason))))
            table.add_row(MARKS.get(step.state, " "), escape(step.name), step.state.lower(), note)
            own = [job for job in jobs if job.step == step.name]
            succeeded = [job for job in own if job.state == SUCCEEDED]
            if len(succeeded) > 1:  # of a step that creates several jobs in sequence
                table.add_row("", f"  {len(succeeded)} jobs", SUCCEEDED, text(f"last: {succeeded[-1].part}"))
                own = [job for job in own if job.state != SUCCEEDED]
            for job in own:
                add(job, escape(f"  {job.kind if job.part in ('', step.name) else job.part}"))
        _count(table, pending)
        steps = {step.name for step in state.steps}
        for job in jobs:
            if job.step not in steps:
                add(job, escape(f"{job.kind} {job.name}"))
        return table


def _spare(console: Console, options: ConsoleOptions, table: Table) -> int:
    """Return the number of terminal lines left by a table; negative if the table is too high."""
    return console.height - len(console.render_lines(table, options.update(height=None), pad=False))


def _count(table: Table, steps: Sequence[StepState]) -> None:
    for state, number in Counter(step.state for step in steps).items():
        table.add_row(MARKS.get(state, " "), f"{number} step{'' if number == 1 else 's'}", state.lower(), "")
