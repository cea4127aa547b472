"""Runner of a step's GPU processes as a job on the cluster of the step's pod."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from platform_sdk.config.cluster import CLUSTER, ClusterSpec
from platform_sdk.config.errors import UserError
from platform_sdk.credentials import has_credentials
from platform_sdk.kubeflow.training_job.api import ClusterApi, Item, connect
from platform_sdk.kubeflow.training_job.backend import api_for, choose_backend
from platform_sdk.kubeflow.training_job.description import TASK, Description, Owner, ProgramSidecar, Sidecar
from platform_sdk.kubeflow.training_job.launcher import Record, reached, run_job
from platform_sdk.processes.launch import ProcessRunner, StepProcesses, check_process_count
from platform_sdk.tracking.provenance import POD

log = logging.getLogger(__name__)

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
PASSED_ON = (
    "MLFLOW_TRACKING_URI", "MLFLOW_WORKSPACE", "HOPFORGE_CACHE", "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE",
    "HOPFORGE_RETRIEVER_CA", "PYTHONPATH", TASK,
)  # fmt: skip


def job_runner(run_dir: Path, record: Record | None = None) -> ProcessRunner | None:
    """Return the runner of a step's processes as a job of this cluster; None outside of a cluster.

    A job is named by the run, its verb, and the folder of its specification in the run directory.

    Args:
        record: called with the use of each job, as by ``launcher.run_job``.

    Raises:
        UserError: raised by the returned runner: see ``launcher.run_job``; the API server cannot be reached; the run
            directory is not on the jobs' volume; or the cluster's description lacks a part that the processes need.
    """
    text = os.environ.get(CLUSTER)
    if text is None:
        return None
    cluster = ClusterSpec.model_validate_json(text)

    def run(processes: StepProcesses) -> None:
        workspace = Path(cluster.workspace.path)
        spec_file = processes.spec_file
        if not spec_file.resolve().is_relative_to(workspace):
            raise UserError(
                f"{spec_file}: is not under {workspace}, the volume that jobs see; move the run there",
                code="cluster.outside-workspace",
            )
        connection = connect()
        described = describe(processes, cluster, run_dir, namespace())
        choose = partial(choose_backend, described, connection, log.warning)
        job = reached(choose, log.warning, "no job was created; run the step again")
        api = api_for(job, connection)
        owner = reached(partial(owner_of_this_pod, api), log.warning, "no job was created; run the step again")
        run_job(replace(job, owner=owner), api, log.warning, record=record)

    return run


def describe(
    processes: StepProcesses, cluster: ClusterSpec, run_dir: Path, namespace: str,
    variables: Mapping[str, str] = os.environ,
) -> Description:  # fmt: skip
    """Return the job that runs some processes of a run.

    Training uses the trainer's image. Sampling with vLLM in its processes uses the sampler's image and the trainer's
    GPUs. A vLLM server runs next to the processes with separate GPUs; processes that only send it requests have none.
    Independent processes become one pod each, with the GPUs of one process; without GPUs, with the image and the
    resources of a step.

    Args:
        variables: the environment of the step's pod.

    Raises:
        UserError: vLLM is needed, and the cluster has no ``job.sampler``; a process needs more GPUs than a pod has;
            only one process can do the work, and the cluster's jobs have several.
    """
    spec, sampler, served = cluster.job, cluster.job.sampler, processes.server_spec
    if sampler is None and (served is not None or (processes.vllm and not processes.trains)):
        raise UserError(
            "the recipe samples with vLLM, but the cluster file names no image with vLLM: give job.sampler an image "
            "(and resources), or take sampling.engine transformers"
        )
    if processes.vllm and not processes.trains and sampler is not None:
        spec = spec.model_copy(update={"image": sampler.image})
    if served is not None and not processes.trains:
        spec = spec.model_copy(update={"resources": spec.resources.model_copy(update={"gpus": 0})})
    gpus_each = max(processes.gpus_each, 1)
    if gpus_each > max(spec.resources.gpus, 1):
        raise UserError(
            f"sampling.engine.extra: an engine takes {processes.gpus_each} GPUs, but a pod has {spec.resources.gpus} "
            "(job.resources.gpus)"
        )
    if processes.shards is not None:
        resources = spec.resources.model_copy(update={"gpus": min(processes.gpus_each, spec.resources.gpus)})
        if processes.gpus_each == 0:
            resources = resources.model_copy(update={**cluster.launcher.model_dump(), "others": {}})
            spec = spec.model_copy(update={"image": cluster.launcher_image})
        spec = spec.model_copy(update={"nodes": processes.shards, "minimum_nodes": None, "resources": resources})
    check_process_count(processes, spec.nodes * (spec.resources.gpus // gpus_each or 1))
    folder = processes.spec_file.parent.resolve().relative_to(run_dir.resolve())
    return Description(
        run=run_dir.name,
        step="-".join((processes.verb, *folder.parts)),
        namespace=namespace,
        module=processes.module,
        spec_file=str(processes.spec_file.resolve()),
        spec=spec,
        workspace=cluster.workspace,
        gpus_each=gpus_each,
        run_folder=str(run_dir.resolve().relative_to(Path(cluster.workspace.path).resolve())),
        environment=tuple((name, _passed_on(name, variables)) for name in PASSED_ON if name in variables),
        sidecar=None if served is None or sampler is None else Sidecar(sampler, str(served.resolve())),
        indexed=processes.shards is not None,
        program=None if processes.program is None else ProgramSidecar(processes.program, cluster.job.image),
    )


def _passed_on(name: str, variables: Mapping[str, str]) -> str:
    """Return the value of an environment variable; everyone with read access to jobs can see it."""
    value = variables[name]
    if has_credentials(value):
        raise UserError(
            f"{name} holds user:password@, which the job's description would show; leave it out and give "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD by secrets and job.secrets in the cluster's file"
        )
    return value


def namespace() -> str:
    """Return the namespace of this pod.

    Raises:
        UserError: the process does not run in a pod.
    """
    try:
        return NAMESPACE_FILE.read_text().strip()
    except OSError as error:
        raise UserError(f"{NAMESPACE_FILE}: {error.strerror}; this is not a pod: pass --namespace") from error


def pod_name() -> str:
    """Return the name of this pod. The host's name is the pod's only up to 63 characters, and KFP's are longer."""
    return os.environ.get(POD) or os.environ["HOSTNAME"]


def own_pod() -> Item | None:
    """Return this process's pod as the API server describes it; None outside a cluster, or if it cannot be read."""
    if not NAMESPACE_FILE.is_file():
        return None
    try:
        # The kind of job does not matter for reading pods.
        return ClusterApi(namespace(), group="batch", version="v1", plural="jobs", selector="").pod(pod_name())
    except UserError as error:
        log.warning("the images and the account of this pod are not recorded: %s", error)
        return None


def owner_of_this_pod(api: ClusterApi) -> Owner | None:
    """Return the owner of this process's pod, e.g. a KFP run's workflow, with which the job is deleted too.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    for one in api.pod(pod_name())["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            return Owner(one["apiVersion"], one["kind"], one["name"], one["uid"])
    return None
