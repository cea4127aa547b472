"""Verification of finished and running runs, for ``hopforge verify``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.errors import UserError
from platform_sdk.tracking import manifest
from platform_sdk.tracking.findings import Verification
from platform_sdk.tracking.journal import run_file
from platform_sdk.tracking.listing import find_run_dir
from platform_sdk.tracking.opened import RECIPE
from platform_sdk.tracking.store import WEIGHTS, folder_uri
from platform_sdk.tracking.verify_files import FileCheck

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

MODEL = re.compile(r"(?P<name>[^/:@]+)(?:@(?P<alias>[\w-]+)|/(?P<version>\d+))")
"""A registered model: ``name@alias`` or ``name/3``."""


def verify_target(target: str, folder: Path) -> list[Verification]:
    """Verify a run, all runs in a folder, or the run of a registered model.

    Args:
        target: A run directory, its name in ``folder``, its id in MLflow, a folder of run directories, or a model.
        folder: The folder of the run directories.

    Raises:
        UserError: there is no such run, folder or model.
    """
    for path in (Path(target), folder / target):
        if _is_run(path):
            return [verify_run(path)]
    path = Path(target)
    if path.is_dir() and (runs := [inner for inner in sorted(path.iterdir()) if _is_run(inner)]):
        return [verify_run(run) for run in runs]
    if not path.exists() and (model := MODEL.fullmatch(target)):
        return [verify_run(find_run_dir(_run_of(model, folder), folder))]
    return [verify_run(find_run_dir(target, folder))]


def verify_run(run_dir: Path) -> Verification:
    """Compare a run's files with its manifest, and MLflow with its journals; read every file and change none.

    Of a run under way, the finished steps are compared.
    """
    from platform_sdk.tracking.verify_mlflow import check_mlflow

    files = FileCheck(run_dir.resolve())
    stored, compared = check_mlflow(files)
    return Verification(
        run=files.run_dir.name,
        head=files.head,
        finished=files.finished,
        findings=(*files.findings, *stored),
        detects=("files", "mlflow") if compared else ("files",),
    )


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in (RECIPE, manifest.FILE_NAME, run_file(Path())))


def model_digest(model: re.Match[str], folder: Path) -> str:
    """Return the digest of a registered model's weights; empty if the version records none."""
    return str(_version_of(model, folder).tags.get(WEIGHTS, ""))


def _run_of(model: re.Match[str], folder: Path) -> str:
    """Return the id in MLflow of the run that registered a model."""
    return str(_version_of(model, folder).run_id)


def _version_of(model: re.Match[str], folder: Path) -> ModelVersion:
    """Return a version of a registered model from MLflow."""
    from mlflow.exceptions import MlflowException

    from platform_sdk.tracking.stored import Store

    uri = os.environ.get("MLFLOW_TRACKING_URI") or folder_uri(folder)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).is_file():
        raise UserError(f"{model[0]}: no run directory, and {folder} has no MLflow store; name it with --folder")
    try:
        with Store(uri) as store:
            client, name = store.client, model["name"]
            if model["alias"]:
                return client.get_model_version_by_alias(name, model["alias"])
            return client.get_model_version(name, model["version"])
    except MlflowException as error:
        raise UserError(f"{model[0]}: no run directory, and no registered model ({error.message})") from error
