"""Duration and GPU-hours of earlier runs with equal settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import Recipe
from platform_sdk.config.struct import Struct
from platform_sdk.execution.claim import FILE as CLAIM
from platform_sdk.files import read_object
from platform_sdk.tracking.journal import STATE_EVENTS, read, run_file
from platform_sdk.tracking.listing import RUN_DIR, run_dirs, tracking_server
from platform_sdk.tracking.params import recipe_params
from platform_sdk.tracking.usage import GPU_HOURS, gpu_hours_of_run

IGNORED = frozenset({"name", "seed", "data_dir"})
"""Settings that affect neither the duration nor the GPU-hours of a run."""


class EarlierRuns(Struct):
    """Medians over finished runs of the same pipeline with the same settings, apart from name, seed and data_dir.

    Attributes:
        runs: number of the runs.
        seconds: median of their durations, without pauses (a server's include them); None without a run.
        gpu_hours: median of their GPU-hours; None if no run recorded them.
        gpu_hour_runs: number of runs that recorded GPU-hours.
        note: the reason why runs could not be read.
    """

    runs: int = 0
    seconds: float | None = None
    gpu_hours: float | None = None
    gpu_hour_runs: int = 0
    note: str = ""


def earlier_runs(recipe: Recipe, folder: Path | None) -> EarlierRuns:
    """Return the medians of the newest hundred runs on the MLflow server, or of the run directories in a folder.

    Args:
        folder: the folder, if ``MLFLOW_TRACKING_URI`` names no server; None for no folder.
    """
    wanted = _compared(recipe_params(recipe.resolved()))
    try:
        server = tracking_server()
        if server is not None:
            query = f"attributes.status = 'FINISHED' and params.pipeline = '{recipe.pipeline.name}'"
            runs = list(_of_server(server.search_runs(f"{query} and tags.`{RUN_DIR}` LIKE '%'"), wanted))
        elif folder is not None:
            runs = list(_of_folder(folder, wanted))
        else:
            return EarlierRuns(note="MLFLOW_TRACKING_URI names no MLflow server")
    except UserError as error:
        return EarlierRuns(note=str(error))
    hours = [used for _, used in runs if used is not None]
    return EarlierRuns(
        runs=len(runs),
        seconds=median(seconds for seconds, _ in runs) if runs else None,
        gpu_hours=median(hours) if hours else None,
        gpu_hour_runs=len(hours),
    )


def _compared(params: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in params.items() if name not in IGNORED}


def _of_server(found: list[dict[str, Any]], wanted: Mapping[str, str]) -> Iterator[tuple[float, float | None]]:
    """Yield the seconds and GPU-hours of the runs with equal settings."""
    for run in found:
        info, data = run["info"], run["data"]
        params = {each["key"]: each["value"] for each in data.get("params", ())}
        metrics = {each["key"]: each["value"] for each in data.get("metrics", ())}
        # A run also has parameters of its steps, e.g. of the base model.
        if "end_time" in info and all(params.get(name) == value for name, value in wanted.items()):
            yield (int(info["end_time"]) - int(info["start_time"])) / 1000, metrics.get(GPU_HOURS)


def _of_folder(folder: Path, wanted: Mapping[str, str]) -> Iterator[tuple[float, float | None]]:
    """Yield the seconds and GPU-hours of the finished runs with equal settings in a folder."""
    if not any(folder.glob(f"*/{run_file(Path())}")):
        return
    for run_dir in run_dirs(folder):
        states = [event for event in read(run_file(run_dir))[0] if event["event"] in STATE_EVENTS]
        finished = states and states[-1].get("status") == "FINISHED"
        if finished and _compared(recipe_params(read_object(run_dir / CLAIM))) == wanted:
            yield _seconds(states), gpu_hours_of_run(run_dir) or None


def _seconds(states: list[dict[str, Any]]) -> float:
    """Return the time in which a run was not stopped; the time before a kill, which leaves no event, is unknown."""
    pairs = [(old, new) for old, new in pairwise(states) if (old["event"], new["event"]) == ("started", "ended")]
    return sum(int(new["time"]) - int(old["time"]) for old, new in pairs) / 1000
