"""Read runs back from MLflow: the rows of ``hopforge runs``, and the run directory of an MLflow run."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from platform_sdk.config.errors import UserError
from platform_sdk.tracking.journal import STATE_EVENTS, all_events, read, run_file
from platform_sdk.tracking.models import WEIGHTS
from platform_sdk.tracking.store import DATABASE, folder_uri

START, FINAL = "eval-start", "eval-final"
RECIPE = "recipe.json"


class RunRow(BaseModel):
    """One run. Scores are in 0..1 and None before they exist; ``started`` is UTC, ISO 8601."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    recipe: str
    run_id: str
    run_dir: str
    started: str
    status: str
    iterations: int | None
    em_start: float | None
    em_final: float | None
    f1_start: float | None
    f1_final: float | None
    weights: str | None


def listing_uri(folder: Path) -> str:
    """Return the store to list: ``MLFLOW_TRACKING_URI``, or else the one of a folder of run directories.

    Raises:
        UserError: there is no store.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        return uri
    if not (folder / DATABASE).is_file():
        raise UserError(
            f"{folder / DATABASE}: no such store of runs; name the folder that holds the run directories, "
            "or set MLFLOW_TRACKING_URI"
        )
    return folder_uri(folder)


def list_runs(uri: str, *, limit: int = 100) -> list[RunRow]:
    """Return hopforge's pipeline runs in a store, the newest first.

    Raises:
        UserError: the store cannot be read.
    """
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        runs = client.search_runs(
            experiments, "tags.`hopforge.run_dir` LIKE '%'", max_results=limit, order_by=["attributes.start_time DESC"]
        )
    except MlflowException as error:
        raise UserError(f"MLflow store {uri}: {error.message}; check MLFLOW_TRACKING_URI") from error
    rows = []
    for run in runs:
        metrics, tags = run.data.metrics, run.data.tags
        iterations = metrics.get("iteration")
        rows.append(
            RunRow(
                name=run.info.run_name,
                recipe=run.data.params.get("name", ""),
                run_id=run.info.run_id,
                run_dir=tags["hopforge.run_dir"],
                started=datetime.fromtimestamp(run.info.start_time / 1000, UTC).isoformat(timespec="seconds"),
                status=run.info.status,
                iterations=None if iterations is None else int(iterations),
                em_start=metrics.get(f"{START}/em"),
                em_final=metrics.get(f"{FINAL}/em"),
                f1_start=metrics.get(f"{START}/f1"),
                f1_final=metrics.get(f"{FINAL}/f1"),
                weights=tags.get(WEIGHTS, tags.get("hopforge.digest.weights")),  # the second: of earlier versions
            )
        )
    return rows


def trained_model(run_dir: Path) -> Path | None:
    """Return the model that a run trained last; None if it trained none.

    Raises:
        UserError: it is no run directory, the run has not finished, or its model is gone.
    """
    if not (run_dir / RECIPE).is_file():
        raise UserError(f"{run_dir}: not a run directory (it holds no recipe.json)")
    ends = [event for event in read(run_file(run_dir))[0] if event["event"] in STATE_EVENTS]
    if not ends or ends[-1].get("status") != "FINISHED":
        raise UserError(f"{run_dir}: the run has not finished, so its model is not final; let it end first")
    models = [event for event in all_events(run_dir) if event["event"] == "model"]
    if not models:
        return None
    written = Path(models[-1]["path"])
    # The run directory may have been moved or copied since: its own files count, not those of the place it came from.
    inside = (run_dir.joinpath(*written.parts[start:]) for start in range(1, len(written.parts)))
    path = next((path for path in inside if path.is_dir()), written)
    if not path.is_dir():
        raise UserError(f"{run_dir}: its model {path} is gone")
    return path


def find_local_run(reference: str, folder: Path) -> Path | None:
    """Return the run directory at a path, or of that name in ``folder``; None if there is neither."""
    return next((place for place in (Path(reference), folder / reference) if (place / RECIPE).is_file()), None)


def find_run_dir(reference: str, folder: Path) -> Path:
    """Return the run directory that ``reference`` means: a path, a name in ``folder``, or a run's id in MLflow.

    Raises:
        UserError: there is no such run, or it is not a run of hopforge.
    """
    if (local := find_local_run(reference, folder)) is not None:
        return local
    path = Path(reference)
    if path.exists():
        raise UserError(f"{path}: not a run directory (it holds no recipe.json)")
    try:
        uri = listing_uri(folder)
    except UserError as error:
        raise UserError(
            f"{reference}: no run directory, and no run in {folder}; check the path, or name the folder of the run "
            "with --folder"
        ) from error
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        tags = mlflow.MlflowClient(tracking_uri=uri).get_run(reference).data.tags
    except MlflowException as error:
        raise UserError(f"{reference}: no run directory, and no run in {folder} or {uri}") from error
    if "hopforge.run_dir" not in tags:
        raise UserError(f"{reference}: an MLflow run, but none of hopforge's pipeline runs")
    found = Path(tags["hopforge.run_dir"])
    if not (found / RECIPE).is_file():
        raise UserError(f"{reference}: its run directory {found} is gone")
    return found
