"""Start and end of a run on a cluster: its first and last step replace ``execution.runs.execute``.

The first step checks the filled-in form, and writes the resulting recipe and plan into the run directory:
``recipe.json`` and ``plan.json``. Iterations are planned there too, so a version of a pipeline serves any number.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from platform_sdk.config.cluster import CLUSTER, ClusterSpec
from platform_sdk.config.document import validated
from platform_sdk.config.errors import UserError
from platform_sdk.config.form import FormField, check_form
from platform_sdk.config.pipeline import Document, read_pipeline
from platform_sdk.config.plan import make_plan
from platform_sdk.config.source import ConfigError, Source
from platform_sdk.execution.claim import FILE as CLAIM
from platform_sdk.execution.claim import claim
from platform_sdk.execution.plan import FILE as PLAN
from platform_sdk.execution.plan import write_plan
from platform_sdk.files import read_model, read_object, sha256, write_text
from platform_sdk.kubeflow.packing import SUBMITTED_BY
from platform_sdk.kubeflow.training_job.here import NAMESPACE_FILE, own_pod
from platform_sdk.kubeflow.training_job.state import image_digests
from platform_sdk.run_dir import RunDir
from platform_sdk.tracking import finish_run, manifest, start_run
from platform_sdk.tracking.journal import STATE_EVENTS, journals, read, run_file
from platform_sdk.tracking.outcomes import digest_of

Status = Literal["FINISHED", "FAILED", "KILLED"]
CLUSTER_FILE = RunDir.cluster


def run_folder(workspace: str, run_name: str, run_id: str) -> Path:
    """Return the directory of a run on a cluster, which is the same after a retry."""
    return Path(workspace) / "runs" / f"{run_name}-{run_id}"


def enter_cluster(run_dir: Path, cluster: ClusterSpec | None = None) -> None:
    """Set the environment of steps, and enable jobs on the cluster for the steps of this process.

    Args:
        cluster: the cluster's description (default: from the run directory).
    """
    path = run_dir / CLUSTER_FILE
    if cluster is None and path.is_file():
        cluster = read_model(path, ClusterSpec)
    if cluster is not None:
        for variable, value in cluster.environment.items():
            os.environ.setdefault(variable, value)
        os.environ[CLUSTER] = cluster.model_dump_json()


def begin_run(
    run_dir: Path, recipe: Mapping[str, Any], filled: Mapping[str, Any], submitted_by: str = ""
) -> tuple[list[FormField], dict[str, Any]]:
    """Check the form's values, claim the run directory for the resulting recipe, and plan and start the run.

    Args:
        recipe: The content of ``begun_with``.
        filled: The form's values by their Kubeflow names.
        submitted_by: The name that ``hopforge submit`` gave, a claim; empty if the run was started otherwise.

    Returns:
        The form's fields, and the values of all parameters.

    Raises:
        UserError: a value is not allowed, or the directory contains a run of another recipe.
    """
    cluster = None if recipe["cluster"] is None else ClusterSpec.model_validate(recipe["cluster"])
    enter_cluster(run_dir, cluster)
    source = Source("pipeline.yaml", dict(recipe["document"]), {})
    pipeline = read_pipeline(source, validated(Document, source))
    fields = [field for field in pipeline.form if field.name in filled]
    settings = {field.name: field.setting for field in fields}
    parameters = check_form(settings, recipe["parameters"], pipeline.run_time, filled)
    plan, problems = make_plan(pipeline, parameters)
    if problems:
        raise ConfigError(problems)
    resolved = {"pipeline": recipe["pipeline"], "name": recipe["name"], "parameters": parameters}
    claim(run_dir, resolved)
    write_plan(run_dir, plan, parameters)
    if cluster is not None:
        write_text(run_dir / CLUSTER_FILE, cluster.model_dump_json(indent=1) + "\n")
    _start(run_dir, resolved, submitted_by)
    return fields, parameters


def _start(run_dir: Path, recipe: Mapping[str, Any], submitted_by: str) -> None:
    path = run_dir / CLUSTER_FILE
    if not path.is_file():
        start_run(run_dir, recipe, follow=False, in_step=True)
        return
    pod = own_pod() or {}
    place = _place(read_model(path, ClusterSpec), run_dir.name.removeprefix(f"{recipe['name']}-"))
    place |= {"account": str(pod["spec"]["serviceAccountName"])} if pod else {}
    place |= {SUBMITTED_BY: submitted_by} if submitted_by else {}
    start_run(run_dir, recipe, follow=False, in_step=True, place=place, images=image_digests(pod))


def _place(cluster: ClusterSpec, run_id: str) -> dict[str, str]:
    """Return where a run is in the cluster and in Kubeflow Pipelines."""
    url = cluster.pipelines_url and f"{cluster.pipelines_url.rstrip('/')}/#/runs/details/{run_id}"
    own = {
        "namespace": NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.is_file() else None,
        "queue": cluster.job.queue,
        "pipelines_run": run_id,
        "pipelines_url": url,
    }
    return {name: value for name, value in own.items() if value}


def settings_digest(run_dir: Path) -> str:
    """Return the digest of a run's settings: its recipe and its plan."""
    return digest_of(*(sha256(run_dir / name) for name in (CLAIM, PLAN)))


def check_settings(run_dir: Path, digest: str) -> None:
    """Check that a run's settings are unchanged since its start.

    Raises:
        UserError: the run was never started, or a file was altered since.
    """
    for name in (CLAIM, PLAN):
        if not (run_dir / name).is_file():
            raise UserError(f"{run_dir / name}: no such file; the step begin has not run; see its log")
    if settings_digest(run_dir) != digest:
        raise UserError(f"{run_dir}: {CLAIM} or {PLAN} was altered since the step begin wrote it; start the run again")


def reopen(run_dir: Path) -> None:
    """Resume a run that has ended: Kubeflow retries a run from its failed step, not from its first step."""
    events = [event for event in read(run_file(run_dir))[0] if event["event"] in STATE_EVENTS]
    if events and events[-1].get("status"):
        submitted_by = next((entry.origin.get(SUBMITTED_BY, "") for entry in manifest.read(run_dir)), "")
        _start(run_dir, read_object(run_dir / CLAIM), submitted_by)


def end_run(run_dir: Path, status: Status) -> None:
    """Record the end of the run in MLflow; repeated calls are deduplicated.

    Raises:
        UserError: the run was never started, or MLflow could not be reached.
    """
    if not (run_dir / CLAIM).exists():
        raise UserError(f"{run_dir}: the run never started; see the log of the step begin")
    finish_run(run_dir, status)


def failures(run_dir: Path) -> dict[str, str]:
    """Return the errors of the run's failed steps, by their names."""
    found = {}
    for name, path in journals(run_dir).items():
        states = [event for event in read(path)[0] if event["event"] in STATE_EVENTS]
        if name.startswith("steps/") and states and states[-1].get("status") == "FAILED":
            found[name.removeprefix("steps/")] = str(states[-1].get("error", ""))
    return found
