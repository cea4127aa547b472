"""The launcher through jobs as a real cluster recorded them: Kubernetes 1.34, training-operator 1.9.4, Trainer 2.3."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from platform_sdk.config.cluster import JobSpec, Workspace
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.api import Item
from platform_sdk.kubeflow.training_job.description import Description
from platform_sdk.kubeflow.training_job.state import image_digests, observe
from platform_sdk.processes.torchrun import NODE_LOST
from tests.kubeflow.training_job.recordings import FOLDER, life, recording, replay
from tests.kubeflow.training_job.scripted import MINUTE, Cluster
from tests.kubeflow.training_job.trainer import rewrite

WHOLE = Path(__file__).parents[3] / "../shared/kubeflow/cluster"


def follow(cluster: Cluster, run: str, kind: str = "PyTorchJob", restarts: int = 1, queue: str | None = None) -> str:
    """Run the recorded job of a run; return its name."""
    spec = JobSpec.model_validate({"backend": kind.lower(), "image": "i", "restarts": restarts, "queue": queue})
    job = Description(
        run=run, step="train", namespace="kubeflow", module="m", spec_file="/workspace/spec.json", spec=spec,
        workspace=Workspace(claim="workspace"), run_folder="runs/pt1",
    )  # fmt: skip
    replay(cluster.server, cluster.clock, job.name, kind)
    cluster.run(job)
    return job.name


def states(cluster: Cluster) -> list[str]:
    """Return the reported lines without the job's name."""
    return [line.split(": ", 1)[1] for line in cluster.told]


def test_pod_that_runs_out_of_memory_ends_the_job_after_its_restarts(cluster: Cluster) -> None:
    """Ten pods in 135 s were recorded, with ``backoffLimit: 1`` and no end."""
    with pytest.raises(UserError) as failed:
        follow(cluster, "oom", restarts=1)
    first, *details = str(failed.value).splitlines()
    assert first == (
        "job oom-train-f3029f6d failed: pod oom-train-f3029f6d-master-0: exit code 137, out of memory (OOMKilled): "
        "raise job.resources.memory, or lower batches; the pod ended so 2 times, job.restarts allows 1 restarts, and "
        "the job was deleted"
    )
    assert any("exit code 137" in line for line in details)
    assert sum("out of memory" in line for line in states(cluster)) == 2
    assert cluster.jobs == []
    assert cluster.clock.time() - 1_800_000_000 < MINUTE


def test_use_of_a_job_has_its_pods(cluster: Cluster) -> None:
    name = follow(cluster, "tq-usual-1", "TrainJob", queue="team-a")
    [used] = cluster.uses
    assert used.name == name
    assert used.pods == (f"{name}-node-0-0-q6jls", f"{name}-node-0-0-vln7p")  # the first was preempted
    assert used.gpus == 1
    assert used.gpu_hours == pytest.approx(used.seconds / 3600, abs=1e-6)


def test_image_digests_are_those_of_the_pods_status() -> None:
    pod = {
        "status": {
            "initContainerStatuses": [{"image": "alpine:3", "imageID": "docker.io/library/alpine@sha256:a7"}],
            "containerStatuses": [{"image": "trainer:1", "imageID": ""}, {"image": "own:2", "imageID": "sha256:1a"}],
        }
    }
    assert image_digests(pod) == {"alpine:3": "sha256:a7", "own:2": "sha256:1a"}
    assert image_digests({"metadata": {}}) == {}


@pytest.mark.skipif(not WHOLE.is_dir(), reason="the recorded objects of a cluster are not beside this checkout")
def test_image_digests_of_recorded_pods_are_complete() -> None:
    """The project's own recordings lack the digests."""
    own = "sha256:1ac864f1910fba4f096581af4fddaed39ad0455e0b8e18fe6d7deabb3b865184"
    versions = json.loads((WHOLE / "life-Pod.two-train-d3c57684-worker-0.json").read_text())
    found = [image_digests(version["object"]) for version in versions if "object" in version]
    assert found[0] == {}, "not started yet"
    assert found[-1] == {
        "docker.io/library/alpine:3.10": "sha256:a7cde8fa2ef2dd2254fd42b68f855f838b16566b62f39d50962a148b3d51d1a2",
        "localhost/hopforge/launcher:0.1.0": own,
    }
    step = image_digests(json.loads((WHOLE / "pod-kfp-step.json").read_text()))
    assert step["localhost/hopforge/launcher:0.1.0"] == own
    assert step.keys() > {"ghcr.io/kubeflow/kfp-launcher:2.17.0", "quay.io/argoproj/argoexec:v4.0.5"}


def test_out_of_memory_of_a_child_is_reported(cluster: Cluster) -> None:
    with pytest.raises(UserError, match=r"^job oom2-train-3eb9cc56 failed: pod oom2-train-3eb9cc56-master-0: exit code 1, out of memory"):  # fmt: skip # noqa: E501
        follow(cluster, "oom2", restarts=0)


def test_exit_code_of_the_program_fails_the_job_with_the_reason_first(cluster: Cluster) -> None:
    cluster.server.logs["exit3-train-b6d6301a-master-0"] = "some words\nerror: the data has no rows; give others\n"
    with pytest.raises(UserError) as failed:
        follow(cluster, "exit3", restarts=0)
    lines = str(failed.value).splitlines()
    assert lines[0] == (
        "job exit3-train-b6d6301a failed: pod exit3-train-b6d6301a-master-0: exit code 3: the data has no rows; give "
        "others"
    )
    assert lines[1].startswith("PyTorchJobFailed: job")


def test_pod_stopped_from_outside_is_restarted_and_not_counted(cluster: Cluster) -> None:
    follow(cluster, "term143", restarts=0)
    assert states(cluster)[-1].startswith("Succeeded")


def test_pods_that_lose_the_first_node_are_replaced_and_not_counted(cluster: Cluster) -> None:
    """One drain of the first node ends every other pod with this code."""

    def lose(time: str) -> None:
        cluster.start()
        ended = {"exitCode": NODE_LOST, "finishedAt": time}
        pod = cluster.server.pods[f"{cluster.server.job()['metadata']['name']}-worker-0"]
        pod["status"] = {"phase": "Failed", "containerStatuses": [{"name": "pytorch", "state": {"terminated": ended}}]}

    job = replace(cluster.described, spec=cluster.described.spec.model_copy(update={"queue": None, "restarts": 1}))
    for second in (10, 20, 30):
        cluster.clock.at(second, partial(lose, f"2027-01-15T08:00:{second}Z"))
    cluster.clock.at(40, cluster.start)
    cluster.clock.at(50, cluster.succeed)
    cluster.run(job)
    assert states(cluster)[-1].startswith("Succeeded")


def test_preempted_pytorchjob_is_reported_without_contradictions(cluster: Cluster) -> None:
    follow(cluster, "py-usual-1", queue="team-a")
    preempted = (
        "Preempted (Preempted: Preempted to accommodate a workload (UID: 6f87b113-7692-4078-84a5-4474bf01511f, JobUID: "
        "a7559176-cd44-4b1f-9e94-fba626e9a849) due to prioritization in the ClusterQueue; preemptor path: /hopforge; "
        "preemptee path: /hopforge"
    )
    pod = "pod py-usual-1-train-a88b9bf7-master-0"
    lines = states(cluster)
    assert lines[0] == "created"
    assert next(line for line in lines if line.startswith("Preempted")) == f"{preempted})"
    assert f"Admitted ({pod}: ContainerCreating)" in lines
    assert lines[-1] == (
        "Succeeded (PyTorchJobSucceeded: PyTorchJob py-usual-1-train-a88b9bf7 is successfully completed.)"
    )
    check_wording(lines)


def test_preempted_trainjob_is_reported_without_contradictions(cluster: Cluster) -> None:
    follow(cluster, "tq-usual-1", "TrainJob", queue="team-a")
    lines = states(cluster)
    assert lines[-1] == "Succeeded (AllJobsCompleted: jobset completed successfully)"
    assert sum(line == "Running (1 of 1 pods run)" for line in lines) == 2
    check_wording(lines)


def check_wording(lines: list[str]) -> None:
    """Fail if a job waits for a quota that it has, or for pods that have ended."""
    assert not [line for line in lines if "Quota reserved" in line]
    ran = next(number for number, line in enumerate(lines) if line.startswith("Running"))
    ended = [line for line in lines[ran:] if line == "Admitted (its pods have not started yet)"]
    assert len(ended) <= sum(line.startswith("Preempted") for line in lines)


def test_trainjob_that_never_starts_is_reported_with_its_warning(cluster: Cluster) -> None:
    """Kueue rewrote the patch of the recorded job with the fields of Trainer 2.2, which JobSet refuses."""
    refused = (FOLDER / "trainjob-kueue-jobset-immutable.txt").read_text()
    message = f"TrainJob resources reconciliation failed: {refused}"
    cluster.server.warn("tr-urgent-train-9e1d356c", "TrainJobResourcesCreationFailed", message)
    with pytest.raises(UserError, match="was deleted while it was followed"):  # by hand, after 145 s
        follow(cluster, "tr-urgent", "TrainJob", queue="team-a")
    told = [line for line in states(cluster) if "TrainJobResourcesCreationFailed" in line]
    assert len(told) == 1
    assert told[0].startswith("Admitted (its pods do not exist yet; 0 of 1 pods were created: TrainJobResources")
    assert 'is invalid: spec.replicatedJobs: Invalid value: [{"name":"node"' in told[0]
    assert len(told[0]) < 600


def test_patch_of_a_trainjob_survives_kueue(cluster: Cluster) -> None:
    """The recorded patch lost ``terminationGracePeriodSeconds``; after that JobSet refuses it as changed."""
    assert list(rewrite(recording("trainjob-refused.json")["request"])) == ["terminationGracePeriodSeconds"]
    spec = JobSpec.model_validate(
        {"backend": "trainjob", "image": "i", "node_selector": {"a": "b"}, "tolerations": [{"key": "gpu"}]}
    )
    job = Description("r", "s", "n", "m", "/w/s", spec, Workspace(claim="w"), run_folder="runs/r")
    assert list(rewrite(_created(cluster, job))) == []


def _created(cluster: Cluster, job: Description) -> Item:
    cluster.clock.at(1, lambda: cluster.server.condition(cluster.server.job("trainjobs"), "Complete"))
    cluster.run(job)
    return cluster.server.job("trainjobs")


def test_trainjob_that_mounts_a_volume_twice_is_refused_as_by_the_real_server(cluster: Cluster) -> None:
    recorded = recording("trainjob-refused.json")
    path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/n/trainjobs"
    status, answer = cluster.server.answer("POST", path, {"fieldValidation": "Strict"}, recorded["request"])
    assert (status, answer["reason"], answer["message"]) == (
        recorded["code"], recorded["answer"]["reason"], recorded["answer"]["message"],
    )  # fmt: skip


def test_worker_that_is_never_created_is_reported(cluster: Cluster) -> None:
    """The namespace enforces ``restricted``, and the init container of the operator violates that standard."""
    [warning] = [event for event in recording("events.json") if event["reason"] == "FailedCreatePod"]
    job = replace(cluster.described, spec=cluster.described.spec.model_copy(update={"queue": None}))
    message = warning["message"].replace("psa1-two-e7875b4d", job.name)
    cluster.server.warn(job.name, warning["reason"], message)

    def start() -> None:
        cluster.start()
        del cluster.server.pods[f"{job.name}-worker-0"]

    cluster.clock.at(5, start)
    cluster.clock.at(5 * MINUTE, cluster.succeed)
    cluster.run(job)
    told = [line for line in states(cluster) if "FailedCreatePod" in line]
    assert told == [
        f"Running (1 of 2 pods run; 1 of 2 pods were created: FailedCreatePod: Error creating: pods "
        f'"{job.name}-worker-0" is forbidden: violates PodSecurity "restricted:latest": '
        + told[0].split('"restricted:latest": ')[1]
    ]


def test_job_whose_pods_have_ended_waits_for_its_result() -> None:
    pods = [version["object"] for version in life("Pod", "py-usual-1") if version["type"] == "MODIFIED"]
    assert pods[-1]["status"]["phase"] == "Succeeded"
    seen = observe({"spec": {}}, None, pods[-1:])
    assert (seen.state, seen.reason) == ("Running", "its pods have ended; waiting for the job's result")


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob"])
def test_recorded_jobs_are_never_admitted_and_waiting_for_a_quota(kind: str) -> None:
    """Every recorded version of a Workload, with the job suspended."""
    workloads = [version["object"] for version in life("Workload", kind.lower())]
    spec = {"suspend": True} if kind == "TrainJob" else {"runPolicy": {"suspend": True}}
    assert workloads
    for workload in workloads:
        seen = observe({"spec": spec}, workload, ())
        assert "Quota reserved" not in seen.reason
