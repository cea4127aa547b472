"""GPU-hours of teams, from the runs in their workspaces of MLflow."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.config.teams import TeamsSpec
from platform_sdk.tracking.listing import RUN_DIR, tracking_server
from platform_sdk.tracking.usage import GPU_HOURS

UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class TeamHours(Struct):
    """GPU-hours of a team's runs. A run logs its sum when it ends: unfinished runs count earlier attempts only."""

    team: str
    runs: int
    unfinished: int
    gpu_hours: float


class Usage(Struct):
    """GPU-hours of the runs that started since a time; ``unseen`` lists workspaces that could not be read."""

    since: datetime
    teams: tuple[TeamHours, ...]
    unseen: tuple[str, ...] = ()


def duration(text: str) -> timedelta:
    """Return the duration in a text such as ``12h``, ``7d`` or ``2w``.

    Raises:
        UserError: the text is no duration.
    """
    found = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", text)
    if found is None:
        raise UserError(f"{text!r}: not a duration; write hours, days or weeks, e.g. 12h, 7d or 2w")
    return int(found[1]) * UNITS[found[2]]


def read_usage(spec: TeamsSpec, since: timedelta) -> Usage:
    """Return the GPU-hours in MLflow of each team's runs that started within the last ``since``.

    Raises:
        UserError: ``MLFLOW_TRACKING_URI`` names no server, or the server does not answer.
    """
    start = datetime.now(UTC) - since
    server = tracking_server()
    if server is None:
        raise UserError(
            "GPU-hours are read from MLflow, but MLFLOW_TRACKING_URI names no server; set it to the address of the "
            "teams' server"
        )
    seen = server.workspaces()
    query = f"tags.`{RUN_DIR}` LIKE '%' and attributes.start_time >= {int(start.timestamp() * 1000)}"
    teams = []
    for name in sorted(spec.teams.keys() & seen):
        workspace = tracking_server(name)
        assert workspace is not None
        runs = list(workspace.all_runs(query))
        hours = [
            float(metric["value"])
            for run in runs
            for metric in run["data"].get("metrics", ())
            if metric["key"] == GPU_HOURS
        ]
        unfinished = sum(run["info"]["status"] == "RUNNING" for run in runs)
        teams.append(TeamHours(team=name, runs=len(runs), unfinished=unfinished, gpu_hours=round(math.fsum(hours), 6)))
    unseen = tuple(
        f"GPU-hours of {name}: MLflow shows this user no workspace of that name"
        for name in sorted(spec.teams.keys() - seen)
    )
    return Usage(since=start, teams=tuple(teams), unseen=unseen)
