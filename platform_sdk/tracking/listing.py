"""Find runs: the rows of ``hopforge runs``, run directories, and trained models.

The data is read from run directories. MLflow is queried only if ``MLFLOW_TRACKING_URI`` names a server, whose runs may
be on other machines.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.config.errors import UserError
from platform_sdk.files import REMEDY, open_regular, read_object
from platform_sdk.run_dir import FINAL_EVALUATION, START_EVALUATION, PhaseDir
from platform_sdk.tracking.journal import (
    DIGEST,
    FOLDER,
    STATE_EVENTS,
    Event,
    all_events,
    journals,
    read,
    relocated,
    run_file,
)
from platform_sdk.tracking.opened import RECIPE, OpenedRun
from platform_sdk.tracking.store import LOCK_FILE, STATE_FILE, WEIGHTS

if TYPE_CHECKING:
    from platform_sdk.tracking.server import Server

START, FINAL = START_EVALUATION, FINAL_EVALUATION
SCORES = PhaseDir.scores
RUN_DIR = "hopforge.run_dir"
"""Tag of an MLflow run with its run directory."""


@dataclass(frozen=True)
class RunRow:
    """Row of a run. Scores are in 0..1, or None if not evaluated yet; ``started`` is UTC, ISO 8601."""

    name: str
    recipe: str
    run_id: str | None
    run_dir: str
    started: str
    status: str
    iterations: int | None
    em_start: float | None
    em_final: float | None
    f1_start: float | None
    f1_final: float | None
    weights: str | None


def tracking_server(workspace: str | None = None) -> Server | None:
    """Return a workspace of the MLflow server in ``MLFLOW_TRACKING_URI``; None if it names no server."""
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri.startswith(("http://", "https://")):
        return None
    from platform_sdk.tracking.server import Server

    return Server(uri, workspace)


def run_dirs(folder: Path) -> list[Path]:
    """Return the run directories in a folder.

    Raises:
        UserError: the folder contains none.
    """
    # A broken link in place of the journal is reported later; it does not hide the run.
    directories = sorted(path for path in folder.glob("*/") if os.path.lexists(run_file(path)))
    if not directories:
        raise UserError(
            f"{folder}: contains no run directories; pass the folder of the runs, or set MLFLOW_TRACKING_URI to the "
            "address of an MLflow server"
        )
    return directories


def row_of(run_dir: Path) -> RunRow:
    """Return the row of a run directory.

    Raises:
        UserError: a file of the run is damaged.
    """
    states = [event for event in read(run_file(run_dir))[0] if event["event"] in STATE_EVENTS]
    if not states:
        raise UserError(
            f"{run_file(run_dir)}: does not record the start of a run; run the recipe again in a new --workdir"
        )
    events = all_events(run_dir)
    start, final = _scores(run_dir, START), _scores(run_dir, FINAL)
    iterations = [
        (event["iteration"], event["metrics"]["iteration"])
        for event in events
        if event["event"] == "metrics" and "iteration" in event["metrics"]
    ]
    weights = [
        event["tags"][f"{DIGEST}{WEIGHTS}"]
        for event in events
        if event["event"] == "tags" and f"{DIGEST}{WEIGHTS}" in event["tags"]
    ]
    recipes = [event["recipe"] for event in events if event["event"] == "recipe"]
    return RunRow(
        name=run_dir.name,
        recipe=recipes[-1]["name"] if recipes else "",
        run_id=_run_id(run_dir),
        run_dir=str(run_dir.resolve()),
        started=_time(states[0]["time"]),
        status=_status(run_dir, states),
        iterations=int(max(iterations)[1]) if iterations else None,
        em_start=start.get("em"),
        em_final=final.get("em"),
        f1_start=start.get("f1"),
        f1_final=final.get("f1"),
        weights=weights[-1] if weights else None,
    )


def server_rows(server: Server) -> list[RunRow]:
    """Return the newest hundred of hopforge's pipeline runs on an MLflow server, the newest first.

    Raises:
        UserError: the server does not answer.
    """
    return [_server_row(run) for run in server.search_runs(f"tags.`{RUN_DIR}` LIKE '%'")]


def _server_row(run: dict[str, Any]) -> RunRow:
    info, data = run["info"], run["data"]
    params, tags = ({each["key"]: each["value"] for each in data.get(kind, ())} for kind in ("params", "tags"))
    metrics = {each["key"]: float(each["value"]) for each in data.get("metrics", ())}  # NaN is a text in JSON
    iterations = metrics.get("iteration")
    return RunRow(
        name=info["run_name"],
        recipe=params.get("name", ""),
        run_id=info["run_id"],
        run_dir=tags[RUN_DIR],
        started=_time(info["start_time"]),
        status=info["status"],
        iterations=None if iterations is None else int(iterations),
        em_start=metrics.get(f"{START}/em"),
        em_final=metrics.get(f"{FINAL}/em"),
        f1_start=metrics.get(f"{START}/f1"),
        f1_final=metrics.get(f"{FINAL}/f1"),
        weights=tags.get(WEIGHTS),
    )


def _status(run_dir: Path, states: list[Event]) -> str:
    last = states[-1]
    if last["event"] == "ended":
        return str(last["status"])
    started_here = last.get("delivery") == "follower"  # on a cluster, the run's processes are on other machines
    return "KILLED" if started_here and not _is_followed(run_dir) else "RUNNING"


def _is_followed(run_dir: Path) -> bool:
    """Return True if a follower process, which ends with the run's process, delivers the run to MLflow."""
    with suppress(FileNotFoundError), open_regular(run_dir / FOLDER / LOCK_FILE) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _scores(run_dir: Path, phase: str) -> dict[str, float]:
    path = run_dir / phase / SCORES
    if not path.is_file():
        return {}
    metrics: Any = read_object(path).get("metrics")
    try:
        return {name: float(score["value"]) for name, score in metrics.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: contains no scores; run the recipe again in a new --workdir") from error


def _run_id(run_dir: Path) -> str | None:
    state = run_dir / FOLDER / STATE_FILE
    return read_object(state).get("run_id") if state.is_file() else None


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def trained_in(opened: OpenedRun) -> Path | None:
    """Return the model that an opened run trained last; None if it trained none.

    Raises:
        UserError: the model is missing, or the journal names another model than the step's.
    """
    run_dir = opened.run_dir
    steps = {path: name.removeprefix("steps/") for name, path in journals(run_dir).items()}
    models = [
        (_place(opened, step), event["time"], step, event) for path, step in steps.items() for event in read(path)[0]
        if event["event"] == "model"
    ]  # fmt: skip
    if not models:
        return None
    *_, step, last = max(models, key=lambda model: model[:2])
    path = relocated(run_dir, last["path"])
    if not path.is_dir():
        raise UserError(f"{run_dir}: its model {path} is missing; restore it, or run the recipe again")
    if not opened.altered and (last["digest"] != opened.recorded(step, "weights") or not opened.sealed_in(path)):
        raise UserError(f"{run_dir}: its journal names {path}, which is not the model of step {step}; {REMEDY}")
    return path


def _place(opened: OpenedRun, step: str) -> int:
    """Return the place of a step in the manifest, since clocks may be set back."""
    entry = opened.step(step)
    return -1 if entry is None else entry.sequence


def find_local_run(reference: str, folder: Path) -> Path | None:
    """Return the run directory at a path, or with that name in ``folder``; None if neither exists."""
    return next((path for path in (Path(reference), folder / reference) if (path / RECIPE).is_file()), None)


def find_run_dir(reference: str, folder: Path) -> Path:
    """Return the run directory of ``reference``: a path, a name in ``folder``, or a run's id in MLflow.

    Raises:
        UserError: no such run exists, or it is not a run of hopforge.
    """
    if (local := find_local_run(reference, folder)) is not None:
        return local
    path = Path(reference)
    if path.exists():
        raise UserError(f"{path}: not a run directory (it contains no recipe.json)", code="run.not-a-run")
    if (known := next(_with_id(reference, folder), None)) is not None:
        return known
    server = tracking_server()
    if server is None:
        raise UserError(
            f"{reference}: no run directory, and no run in {folder}; check the path, or name the folder of the run "
            "with --folder",
            code="run.unknown",
        )
    tags = server.tags_of(reference)
    if tags is None:
        raise UserError(
            f"{reference}: no run directory, and no run in {folder} or on {server.name}", code="run.unknown"
        )
    if RUN_DIR not in tags:
        raise UserError(f"{reference}: an MLflow run, but none of hopforge's pipeline runs")
    run_dir = Path(tags[RUN_DIR])
    if not (run_dir / RECIPE).is_file():
        raise UserError(f"{reference}: its run directory {run_dir} is not on this machine")
    return run_dir


def _with_id(run_id: str, folder: Path) -> Iterator[Path]:
    for state in folder.glob(f"*/{FOLDER}/{STATE_FILE}"):
        run_dir = state.parent.parent
        with suppress(UserError):  # the record of another run is damaged
            if (run_dir / RECIPE).is_file() and _run_id(run_dir) == run_id:
                yield run_dir
