"""Job that a step's processes become: image, GPUs, processes, and what stands beside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from platform_sdk.config.cluster import ClusterSpec, JobSpec, Resources, SamplerSpec, Workspace
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow import shutdown
from platform_sdk.kubeflow.training_job import here, launcher, pytorchjob
from platform_sdk.kubeflow.training_job.backend import api_for
from platform_sdk.kubeflow.training_job.description import Description
from platform_sdk.kubeflow.training_job.here import describe, job_runner
from platform_sdk.processes.launch import StepProcesses

if TYPE_CHECKING:
    from tests.kubeflow.training_job.scripted import Cluster

RUN = Path("/workspace/runs/hotpot-1")
SAMPLER = SamplerSpec(image="sampler")
CLUSTER = ClusterSpec(
    workspace=Workspace(claim="w"), launcher_image="launcher",
    job=JobSpec(image="trainer", nodes=2, resources=Resources(gpus=8), sampler=SAMPLER),
)  # fmt: skip
TRAINING = StepProcesses("platform_sdk.training", RUN / "iteration-03/train-step.json", "train")
SAMPLING = StepProcesses("platform_sdk.methods", RUN / "iteration-03/sample-step.json", "sample", trains=False)
ONLINE = StepProcesses("platform_sdk.methods", RUN / "online/online-step.json", "online")


def job(processes: StepProcesses, cluster: ClusterSpec = CLUSTER) -> Description:
    return describe(processes, cluster, RUN, "team-a")


def summary(job: Description) -> tuple[str, str, int, int, bool]:
    return job.step, job.spec.image, job.spec.resources.gpus, job.processes_per_node, job.sidecar is not None


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        (TRAINING, ("train-iteration-03", "trainer", 8, 8, False)),
        (SAMPLING, ("sample-iteration-03", "trainer", 8, 8, False)),  # with the transformers engine
        (replace(SAMPLING, vllm=True), ("sample-iteration-03", "sampler", 8, 8, False)),
        (replace(SAMPLING, vllm=True, gpus_each=4), ("sample-iteration-03", "sampler", 8, 2, False)),
        # A client of the server beside it needs no GPU.
        (replace(SAMPLING, server_spec=RUN / "s.json"), ("sample-iteration-03", "trainer", 0, 1, True)),
        (ONLINE, ("online-online", "trainer", 8, 8, False)),
        (replace(ONLINE, server_spec=RUN / "s.json"), ("online-online", "trainer", 8, 8, True)),
    ],
)
def test_processes_become_the_expected_job(processes: StepProcesses, expected: tuple[str, str, int, int, bool]) -> None:
    assert summary(job(processes)) == expected


def test_a_job_writes_its_own_run_and_caches_only() -> None:
    described = job(replace(ONLINE, server_spec=RUN / "s.json"))
    [role, *_] = pytorchjob.render(described)["spec"]["pytorchReplicaSpecs"].values()
    pod = role["template"]["spec"]
    for container in (*pod["containers"], *pod["initContainers"]):
        mounts = [one for one in container["volumeMounts"] if one["name"] == "workspace"]
        assert {"name": "workspace", "mountPath": "/workspace", "readOnly": True} in mounts
        written = {one["mountPath"]: one["subPath"] for one in mounts if not one.get("readOnly")}
        assert written == {
            "/workspace/runs/hotpot-1": "runs/hotpot-1", "/workspace/cache": "cache",
            "/workspace/huggingface": "huggingface",
        }  # fmt: skip
    for folder in ("/cache", "../cache", "a/../b", ""):
        with pytest.raises(ValidationError):
            Workspace(claim="w", writable=(folder,))


def test_a_cluster_without_gpus_runs_one_process_a_pod() -> None:
    spec = CLUSTER.job.model_copy(update={"resources": Resources(gpus=0), "sampler": None})
    cluster = CLUSTER.model_copy(update={"job": spec})
    for processes in (TRAINING, SAMPLING):
        assert summary(job(processes, cluster))[2:] == (0, 1, False)


def test_job_without_a_sampler_image_or_enough_gpus_is_refused() -> None:
    without = CLUSTER.model_copy(update={"job": CLUSTER.job.model_copy(update={"sampler": None})})
    served = (replace(SAMPLING, server_spec=RUN / "s"), replace(ONLINE, server_spec=RUN / "s"))
    for processes in (replace(SAMPLING, vllm=True), *served):
        with pytest.raises(UserError, match=r"give job\.sampler an image"):
            job(processes, without)
    with pytest.raises(UserError, match=r"an engine takes 16 GPUs, but a pod has 8 \(job\.resources\.gpus\)"):
        job(replace(SAMPLING, vllm=True, gpus_each=16))


def owned(name: str) -> dict[str, Any]:
    """The pod of a step, as Argo makes it."""
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "arena-x1", "uid": "uid-wf"}
    other = {**workflow, "kind": "Reader", "uid": "uid-other"}
    metadata = {"name": name, "labels": {}, "ownerReferences": [other, {**workflow, "controller": True}]}
    return {"metadata": metadata, "status": {"phase": "Running"}}


@pytest.mark.parametrize("faults", [[], [503], [503, 429, 500]])
def test_the_workflow_owns_the_job_whatever_its_pod_is_called(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: list[int]
) -> None:
    pod = "arena-baselines-x7k2p-metadata-0-2-system-container-impl-1234567890"
    assert len(pod) == 67  # and a host's name ends at 63
    cluster.server.pods[pod] = owned(pod)
    cluster.server.unknown.add("trainjobs")
    cluster.server.fault = lambda method, path: (faults.pop(), "") if "/pods/" in path and faults else None
    place = CLUSTER.model_copy(update={"workspace": Workspace(claim="w", path=str(tmp_path))})
    for name, value in (("HOPFORGE_CLUSTER", place.model_dump_json()), ("HOSTNAME", pod[:63]), ("KFP_POD_NAME", pod)):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(here, "namespace", lambda: "team-a")
    monkeypatch.setattr(here, "connect", lambda: cluster.connection)
    monkeypatch.setattr(launcher, "CLOCK", cluster.clock)
    cluster.clock.at(10 * len(faults) + 5, cluster.succeed)
    run = job_runner(tmp_path / "runs/hotpot-1")
    assert run is not None
    run(replace(TRAINING, spec_file=tmp_path / "runs/hotpot-1/iteration-03/train-step.json"))
    assert faults == []
    [owner] = cluster.server.job()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Workflow", "arena-x1", "uid-wf")


def test_outside_of_kubeflow_pipelines_a_pod_is_called_as_its_host(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KFP_POD_NAME", raising=False)
    monkeypatch.setenv("HOSTNAME", "by-hand")
    cluster.server.pods["by-hand"] = {"metadata": {"name": "by-hand"}}
    described = job(TRAINING)
    assert here.owner_of_this_pod(api_for(described, cluster.connection)) is None
    cluster.server.pods.clear()
    with pytest.raises(UserError, match="by-hand"):
        here.owner_of_this_pod(api_for(described, cluster.connection))


def test_end_of_a_terminated_step_does_not_wait_for_an_unavailable_api_server(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "namespace").write_text("team-a")
    for module in (shutdown, here):
        monkeypatch.setattr(module, "NAMESPACE_FILE", tmp_path / "namespace")
    monkeypatch.setenv("KFP_POD_NAME", "step-1")
    monkeypatch.setattr(shutdown, "connect", lambda: cluster.connection)
    monkeypatch.setattr(launcher, "CLOCK", cluster.clock)
    cluster.server.fault = lambda method, path: (503, "")
    began = cluster.clock.time()
    assert shutdown.was_terminated() is None
    assert cluster.clock.time() == began
