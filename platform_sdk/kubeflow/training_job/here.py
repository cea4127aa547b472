"""The cluster that a step runs in, if it runs in one: then its processes with GPUs become a job."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.api import connect
from platform_sdk.kubeflow.training_job.description import TASK, Description, Owner
from platform_sdk.kubeflow.training_job.launcher import api_for, run_job
from platform_sdk.training.launch import Elsewhere

log = logging.getLogger(__name__)

CLUSTER = "HOPFORGE_CLUSTER"
"""The environment variable that compilation for a cluster sets in every step: a ``ClusterSpec`` as JSON."""
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
PASSED_ON = ("MLFLOW_TRACKING_URI", "HOPFORGE_CACHE", "HF_HOME", "HF_ENDPOINT", TASK)


def job_runner(run_dir: Path) -> Elsewhere | None:
    """What runs a module's processes as a job of this cluster; None outside of one.

    A job is named by the run, the module, and the folder of its specification in the run directory.

    Raises:
        UserError: by what is returned: see ``launcher.run_job``; the cluster cannot be spoken to; the run directory is
            not on the volume that jobs see.
    """
    text = os.environ.get(CLUSTER)
    if text is None:
        return None
    cluster = ClusterSpec.model_validate_json(text)

    def run(module: str, spec_file: Path) -> None:
        workspace = Path(cluster.workspace.path)
        folder = spec_file.parent.resolve().relative_to(run_dir.resolve())
        if not spec_file.resolve().is_relative_to(workspace):
            raise UserError(f"{spec_file}: is not under {workspace}, the volume that jobs see; move the run there")
        connection = connect()
        job = Description(
            run=run_dir.name,
            step="-".join((module.rpartition(".")[2], *folder.parts)),
            namespace=namespace(),
            module=module,
            spec_file=str(spec_file.resolve()),
            spec=cluster.job,
            workspace=cluster.workspace,
            owner=_owner(connection),
            environment=tuple((name, os.environ[name]) for name in PASSED_ON if name in os.environ),
        )
        run_job(job, api_for(job, connection), log.warning)

    return run


def namespace() -> str:
    """The namespace of the pod that this runs in.

    Raises:
        UserError: this is no pod.
    """
    try:
        return NAMESPACE_FILE.read_text().strip()
    except OSError as error:
        raise UserError(f"{NAMESPACE_FILE}: {error.strerror}; name a namespace, this is no pod") from error


def _owner(connection: Any) -> Owner | None:
    """What owns this pod, as the workflow of a KFP run does: with it the job goes too."""
    pod = connection.core_api.read_namespaced_pod(os.environ["HOSTNAME"], namespace())
    for reference in pod.metadata.owner_references or ():
        if reference.controller:
            return Owner(reference.api_version, reference.kind, reference.name, reference.uid)
    return None
