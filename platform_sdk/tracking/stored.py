"""Contents of MLflow for one run, in the records of ``replay``."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from platform_sdk.errors import UserError
from platform_sdk.files import sha256
from platform_sdk.tracking.replay import StoredModel, StoredRun, StoredVersion, comparable, dataset_key
from platform_sdk.tracking.server import Server
from platform_sdk.tracking.store import ARTIFACTS

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Trace


class Store:
    """Read access to an MLflow store. Use as a context: downloaded artifacts are removed at its end.

    Raises:
        UserError: the store is a server that does not answer or is too old, or a file that does not exist.
    """

    def __init__(self, uri: str) -> None:
        if uri.startswith(("http://", "https://")):
            Server(uri).check()  # MLflow's client tries again for minutes
        path = Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None
        if path is not None and not path.is_file():  # MLflow would create it
            raise UserError(f"MLflow store {uri}: no such file; check MLFLOW_TRACKING_URI")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # a bar for each run
        from mlflow import MlflowClient

        self.client: MlflowClient = MlflowClient(tracking_uri=uri, registry_uri=uri)
        self._folder = None if path is None else path.parent
        self._temporary = ExitStack()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self._temporary.close()

    def find(self, tag: str, value: str) -> str | None:
        """Return the id of the newest run with a tag; None if there is none."""
        experiments = [experiment.experiment_id for experiment in self.client.search_experiments()]
        quoted = value.replace("'", "’")
        found = self.client.search_runs(experiments, f"tags.`{tag}` = '{quoted}'", max_results=1)
        return str(found[0].info.run_id) if found else None

    def run(self, run_id: str) -> tuple[StoredRun, str] | None:
        """Return a run and its experiment; None if it does not exist or is deleted."""
        from mlflow.exceptions import MlflowException

        try:
            found = self.client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        info, data = found.info, found.data
        if info.lifecycle_stage == "deleted":
            return None
        metrics = {name: self._points(run_id, name, value) for name, value in data.metrics.items()}
        inputs, outputs = found.inputs, found.outputs
        run = StoredRun(
            info.run_name, info.start_time, info.status, info.end_time, dict(data.tags), dict(data.params), metrics,
            {dataset_key(used) for used in (inputs.dataset_inputs if inputs else ())},
            {used.model_id for used in (inputs.model_inputs if inputs else ())},
            {made.model_id for made in (outputs.model_outputs if outputs else ())},
            self._artifacts(info.artifact_uri),
        )  # fmt: skip
        return run, str(info.experiment_id)

    def models(self, experiment: str, run_id: str) -> list[tuple[StoredModel, LoggedModel]]:
        """Return the logged models of a run."""
        found: list[LoggedModel] = []
        token: str | None = ""
        while token is not None:
            page = self.client.search_logged_models(
                [experiment], f"source_run_id = '{run_id}'", max_results=100, page_token=token or None
            )
            found += page
            token = page.token or None
        return [
            (
                StoredModel(
                    model.model_id, model.name, dict(model.tags), str(model.model_type), str(model.status),
                    _by_name(model.metrics or ()), artifact_location=model.artifact_location,
                ),
                model,
            )
            for model in found
        ]  # fmt: skip

    def versions(self, run_id: str) -> list[StoredVersion]:
        """Return the registered versions of a run's models."""
        found = self.client.search_model_versions(f"run_id = '{run_id}'")
        aliases = {name: self.aliases(name) for name in {one.name for one in found}}
        return [
            StoredVersion(
                one.name, str(one.version), str(one.source).removeprefix("models:/"), dict(one.tags),
                one.description or "",
                frozenset(alias for alias, number in aliases[one.name].items() if number == str(one.version)),
            )
            for one in found
        ]  # fmt: skip

    def aliases(self, name: str) -> dict[str, str]:
        """Return the aliases of a registered model with their versions; empty if it does not exist."""
        from mlflow.exceptions import MlflowException

        try:
            aliases = self.client.get_registered_model(name).aliases
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return {}
        return {alias: str(version) for alias, version in aliases.items()}

    def traces(self, experiment: str, run_id: str) -> dict[str, Trace]:
        """Return the traces of a step's run by id."""
        found: dict[str, Trace] = {}
        page: str | None = None
        while True:
            part = self.client.search_traces(
                locations=[experiment], filter_string=f"metadata.`mlflow.sourceRun` = '{run_id}'", page_token=page
            )
            found |= {trace.info.trace_id: trace for trace in part}
            page = part.token
            if not page:
                return found

    def folder(self, uri: str) -> Path:
        """Return the directory of artifacts at a location, downloaded unless it is a directory on this machine."""
        parsed = urlparse(uri)
        if parsed.scheme in ("", "file"):
            return self._moved(Path(unquote(parsed.path)))
        from mlflow.artifacts import download_artifacts, list_artifacts

        target = self._temporary.enter_context(tempfile.TemporaryDirectory())
        where = {"artifact_uri": uri, "tracking_uri": self.client.tracking_uri}
        # MLflow takes a folder without files for a file, and fails.
        return Path(download_artifacts(**where, dst_path=target) if list_artifacts(**where) else target)

    def _moved(self, path: Path) -> Path:
        """Return the location of a recorded directory next to the store, which may have been moved or copied."""
        if self._folder is None or ARTIFACTS not in path.parts:
            return path
        start = len(path.parts) - path.parts[::-1].index(ARTIFACTS)
        return self._folder.joinpath(ARTIFACTS, *path.parts[start:])

    def _artifacts(self, uri: str) -> dict[str, Any]:
        folder = self.folder(uri)
        files = (path for path in sorted(folder.rglob("*")) if path.is_file()) if folder.is_dir() else ()
        return {path.relative_to(folder).as_posix(): path for path in files}

    def _points(self, run_id: str, name: str, latest: float) -> set[tuple[int, int, float]]:
        """Return the points of a metric; with the latest value, which MLflow stores apart, if it is another."""
        history = self.client.get_metric_history(run_id, name)
        points = {(one.step, one.timestamp, comparable(one.value)) for one in history}
        last, value = max(points, default=(0, 0)), comparable(latest)
        return points if value in last[2:] else points | {(last[0], last[1], value)}


def artifact_matches(path: Path, expected: Any, accepted: set[str]) -> bool:
    """Return True if an artifact has an expected digest, or the expected JSON value."""
    if isinstance(expected, str):
        return sha256(path) in {expected, *accepted}
    try:
        return bool(json.loads(path.read_bytes()) == expected)
    except (ValueError, RecursionError):
        return False


def _by_name(metrics: Any) -> dict[str, set[tuple[int, int, float]]]:
    found: dict[str, set[tuple[int, int, float]]] = {}
    for one in metrics:
        found.setdefault(one.key, set()).add((one.step, one.timestamp, comparable(one.value)))
    return found
