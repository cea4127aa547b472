"""Runs of a study's cells, in sequence on this machine or submitted to a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.files import read_model
from platform_sdk.run_dir import RunDir
from platform_sdk.studies.study import Cell
from platform_sdk.tracking.opened import contains_run, open_run
from platform_sdk.tracking.outcomes import write_json

State = Literal["finished", "running", "stopped", "not begun", "submitted", "altered"]
REPORT = RunDir.report


class Submission(Struct):
    """A cell's run on a cluster."""

    run_id: str
    run: str
    run_url: str


@dataclass(frozen=True)
class CellState:
    """State of a cell and its run directory; on a cluster also its run.

    ``error`` describes the altered files of an altered cell.
    """

    cell: Cell
    state: State
    run_dir: Path
    run: str = ""
    error: str = ""


def state_of(cell: Cell, *, altered: bool | None = None) -> CellState:
    """Return the state of a cell.

    Args:
        altered: a finished cell is finished although its files were altered.
    """
    from platform_sdk.execution.lock import is_locked
    from platform_sdk.execution.runs import is_finished

    if (sent := _submitted(cell)) is not None:
        # On a cluster, the run directory is named after the run's id; --folder may be its volume.
        run_dir = cell.run_dir.with_name(f"{cell.recipe.name}-{sent.run_id}")
        if not (run_dir / REPORT).is_file():
            return CellState(cell, "submitted", run_dir, sent.run)
        try:
            open_run(run_dir, altered=altered)
        except UserError as error:
            return CellState(cell, "altered", run_dir, sent.run, str(error))
        return CellState(cell, "finished", run_dir, sent.run)
    if not cell.run_dir.is_dir():
        return CellState(cell, "not begun", cell.run_dir)
    if is_locked(cell.run_dir):
        return CellState(cell, "running", cell.run_dir)
    try:
        done = is_finished(cell.recipe, cell.run_dir, altered=altered)
    except UserError as error:
        return CellState(cell, "altered", cell.run_dir, error=str(error))
    if altered and not done and contains_run(cell.run_dir):  # the records of its end may be what was altered
        reports = open_run(cell.run_dir, altered=True).altered
        if reports:
            return CellState(cell, "altered", cell.run_dir, error="; ".join(reports))
    return CellState(cell, "finished" if done else "stopped", cell.run_dir)


def run_cells(cells: Sequence[Cell], run: Callable[[Cell], None]) -> Iterator[tuple[Cell, str]]:
    """Run the cells in sequence, and yield each with its error (empty if there is none).

    A cell that fails does not keep the others from running, except for those that need its model.

    Args:
        run: runs one cell to its end; returns at once for a finished cell.
    """
    failed: set[Path] = set()
    for cell in cells:
        error = ""
        if cell.needs is not None and cell.needs.run_dir in failed:
            error = f"needs the model of {cell.needs}, which failed"
        else:
            try:
                run(cell)
            except UserError as problem:
                error = str(problem)
        if error:
            failed.add(cell.run_dir)
        yield cell, error


def submit_cells(
    cells: Sequence[Cell], submit: Callable[[Cell, Submission | None], Submission], state: Callable[[Submission], str]
) -> Iterator[tuple[Cell, Submission | None, str]]:
    """Submit the cells that are not submitted yet; yield each with its run, or with the reason why it has none.

    A cell that uses another cell's model is submitted when the other cell's run has succeeded.

    Args:
        submit: submits a cell with the model of another cell's run, if it uses one.
        state: returns the state of a run.

    Raises:
        UserError: the server refuses a cell. Those before it stay submitted.
    """
    for cell in cells:
        if (sent := _submitted(cell)) is None:
            model = _submitted(cell.needs) if cell.needs else None
            if reason := _waiting(cell, model, state):
                yield cell, None, reason
                continue
            sent = submit(cell, model)
            write_json(_file(cell), sent.model_dump())
        yield cell, sent, ""


def _waiting(cell: Cell, model: Submission | None, state: Callable[[Submission], str]) -> str:
    """Return the reason why a cell cannot be submitted yet; empty if there is none."""
    if cell.needs is None:
        return ""
    if model is None:
        return f"needs the model of {cell.needs}, which is not submitted; submit that cell first"
    if (current := state(model)) == "SUCCEEDED":
        return ""
    return (
        f"needs the model of {cell.needs}, whose run {model.run} is {current}; repeat the command when the run has "
        f"succeeded. If it has failed, retry it; to submit that cell again, delete {_file(cell.needs)}"
    )


def _file(cell: Cell) -> Path:
    return cell.run_dir.with_name(f"{cell.run_dir.name}.submitted.json")


def _submitted(cell: Cell) -> Submission | None:
    path = _file(cell)
    return read_model(path, Submission) if path.is_file() else None
