"""Verification of finished and running runs, for ``hopforge verify``."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from platform_sdk.credentials import without_credentials
from platform_sdk.errors import UserError
from platform_sdk.tracking.findings import Verification
from platform_sdk.tracking.journal import run_file
from platform_sdk.tracking.listing import find_run_dir
from platform_sdk.tracking.log.approvers import Approvers
from platform_sdk.tracking.log.checkpoint import Checkpoint
from platform_sdk.tracking.opened import contains_run
from platform_sdk.tracking.store import WEIGHTS, folder_uri
from platform_sdk.tracking.store_errors import reason, store_errors
from platform_sdk.tracking.verify_files import FileCheck
from platform_sdk.tracking.verify_log import LogCheck


@dataclass(frozen=True)
class RegisteredModel:
    """A version of a registered model, its weight digest, and the id in MLflow of the run that registered it."""

    name: str
    version: str
    weights: str
    run_id: str


MODEL = re.compile(r"(?P<name>[^/:@]+)(?:@(?P<alias>[\w-]+)|/(?P<version>\d+))")
"""A registered model: ``name@alias`` or ``name/3``."""


def verify_target(
    target: str, folder: Path, checkpoint: Checkpoint | None = None, approvers: Approvers | None = None
) -> list[Verification]:
    """Verify a run, all runs in a folder, or the run of a registered model.

    Args:
        target: A run directory, its name in ``folder``, its id in MLflow, a folder of run directories, or a model.
        folder: The folder of the run directories.
        checkpoint: A checkpoint of the log that was kept elsewhere.
        approvers: Keys with which signatures of approvals are compared.

    Raises:
        UserError: there is no such run, folder or model.
    """
    path = Path(target)
    runs = [one for one in (path, folder / target) if _is_run(one)][:1]
    model = None
    if not (runs or path.exists()) and MODEL.fullmatch(target):
        model = registered_model(target, folder)
        with suppress(UserError):  # its run directory is not at hand
            runs = [find_run_dir(model.run_id, folder)]
    if not runs and model is None and not path.is_dir():
        runs = [find_run_dir(target, folder)]
    log = LogCheck(runs[0].resolve().parent if runs else folder if model else path, checkpoint, approvers)
    if runs:
        results = [verify_run(runs[0], log)]
    elif model is not None:
        results = [_verify_model(model, folder, log)]
    else:
        inside = [inner for inner in sorted(path.iterdir()) if _is_run(inner)]
        results = [verify_run(run, log) for run in inside] + log.absent(inside)
        if not results:
            raise UserError(f"{path}: is no run directory, and contains none; check the path")
    of_log = log.verification()
    return results if of_log is None else [*results, of_log]


def _verify_model(model: RegisteredModel, folder: Path, log: LogCheck) -> Verification:
    """Verify a registered model whose run directory is not at hand."""
    from platform_sdk.tracking.stored import Store
    from platform_sdk.tracking.verify_model import ModelCheck

    uri = registry_uri(folder)
    try:
        with store_errors(uri), Store(uri) as store:
            return ModelCheck(store, model.run_id, model.version, log).verification(f"{model.name}/{model.version}")
    except OSError as error:  # of its artifacts
        raise UserError(f"MLflow store {without_credentials(uri)}: {reason(error)}") from error


def verify_run(run_dir: Path, log: LogCheck | None = None) -> Verification:
    """Compare a run's files with its manifest, MLflow with its journals, and the manifest with the log.

    Every file is read and none changed. Of a run under way, the finished steps are compared. ``log`` is the log of the
    run's folder if the caller has read it already.
    """
    from platform_sdk.tracking.verify_mlflow import check_mlflow

    files = FileCheck(run_dir.resolve())
    log = log or LogCheck(files.run_dir.parent)
    log.explain_missing(files)
    stored = check_mlflow(files)
    logged, rows = log.check_run(files, stored.findings)
    approvals = log.check_approvals(files.run_dir.name, files.chain.entries, stored.versions or ())
    return Verification(
        run=files.run_dir.name,
        head=files.head,
        finished=files.finished,
        findings=(*files.findings, *stored.findings, *logged, *approvals),
        detects=("files", *(("mlflow",) if stored.versions is not None else ()), *rows),
        run_id=stored.run_id,
    )


def _is_run(path: Path) -> bool:
    return contains_run(path) or run_file(path).is_file()


def registry_uri(folder: Path) -> str:
    """Return the store of the registered models of a folder of runs."""
    return os.environ.get("MLFLOW_TRACKING_URI") or folder_uri(folder)


def registered_model(target: str, folder: Path) -> RegisteredModel:
    """Return a version of a registered model: ``name@alias`` or ``name/3``.

    Raises:
        UserError: there is no such model, or the store cannot be read.
    """
    from mlflow.exceptions import MlflowException

    from platform_sdk.tracking.stored import Store

    model = MODEL.fullmatch(target)
    if model is None:
        raise UserError(f"{target}: is no registered model; write name@alias or name/3")
    uri = registry_uri(folder)
    if uri == folder_uri(folder) and not Path(uri.removeprefix("sqlite:///")).is_file():
        raise UserError(f"{model[0]}: no run directory, and {folder} has no MLflow store; name it with --folder")
    with store_errors(uri), Store(uri) as store:
        client, name = store.client, model["name"]
        try:
            if model["alias"]:
                version = client.get_model_version_by_alias(name, model["alias"])
            else:
                version = client.get_model_version(name, model["version"])
        except MlflowException as error:
            raise UserError(f"{model[0]}: no run directory, and no registered model ({reason(error)})") from error
    weights = str(version.tags.get(WEIGHTS, ""))
    return RegisteredModel(str(version.name), str(version.version), weights, str(version.run_id))
