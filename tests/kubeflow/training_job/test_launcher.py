"""The launcher against an API server, through what a cluster does to a job: each ends in the right state, nothing is
left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from kubeflow.training import TrainingClient
from kubernetes.client import Configuration

from platform_sdk.config.cluster import JobSpec, Resources, Workspace
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.description import Description, Owner
from platform_sdk.kubeflow.training_job.launcher import api_for, run_job
from platform_sdk.kubeflow.training_job.reaper import reap
from tests.kubeflow.training_job.api_server import ApiServer, VirtualClock

SPEC = JobSpec(image="registry/trainer@sha256:0", queue="team-a", nodes=2, resources=Resources(gpus=4))
JOB = Description(
    run="hotpot 7B", step="train-iteration-03", namespace="team-a", module="platform_sdk.training",
    spec_file="/workspace/runs/x/job.json", spec=SPEC, workspace=Workspace(claim="runs"),
    owner=Owner("argoproj.io/v1alpha1", "Workflow", "run-abc", "uid-wf"),
)  # fmt: skip
MINUTE, HOUR = 60.0, 3600.0


class Cluster:
    """A cluster's controllers, moved by the test: Kueue, the operator, the kubelet."""

    def __init__(self, server: ApiServer, job: Description = JOB) -> None:
        self.server, self.clock, self.told = server, VirtualClock(), list[str]()
        configuration = Configuration(host=server.url)
        configuration.retries = False
        self.connection = TrainingClient(client_configuration=configuration)
        self.described = job

    def run(self, job: Description | None = None) -> None:
        job = job or self.described
        run_job(job, api_for(job, self.connection), self.told.append, self.clock)

    def queue(self, why: str) -> None:
        job = self.server.job()
        workload = {"metadata": {"name": "w", "labels": {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}}}
        self.server.objects["workloads", "w"] = workload
        self.server.condition(workload, "QuotaReserved", "False", "Pending", why)

    def admit(self) -> None:
        self.server.job()["spec"]["runPolicy"]["suspend"] = False
        workload = self.server.objects.get(("workloads", "w"))
        if workload is not None:
            self.server.condition(workload, "QuotaReserved", "True", "QuotaReserved")
            self.server.condition(workload, "Evicted", "False")

    def start(self) -> None:
        name = self.server.job()["metadata"]["name"]
        for pod in ("master-0", "worker-0"):
            self.server.pods[f"{name}-{pod}"] = {
                "metadata": {"name": f"{name}-{pod}", "labels": {"training.kubeflow.org/job-name": name}},
                "status": {"phase": "Running"},
            }
        self.server.condition(self.server.job(), "Running")

    def preempt(self) -> None:
        self.server.job()["spec"]["runPolicy"]["suspend"] = True
        self.server.pods.clear()
        workload = self.server.objects["workloads", "w"]
        self.server.condition(workload, "Evicted", "True", "Preempted", "to make room for team-b")
        self.server.condition(workload, "QuotaReserved", "False", "Pending", "needs 8 more GPUs")

    def succeed(self) -> None:
        for pod in self.server.pods.values():
            pod["status"]["phase"] = "Succeeded"
        self.server.condition(self.server.job(), "Running", "False")
        self.server.condition(self.server.job(), "Succeeded")

    def fail(self, ended: dict[str, Any]) -> None:
        name = self.server.job()["metadata"]["name"]
        pod = self.server.pods[f"{name}-worker-0"]
        pod["status"] = {
            "phase": "Failed",
            "containerStatuses": [{"name": "pytorch", "state": {"terminated": ended}}],
        }
        self.server.logs[f"{name}-worker-0"] = "".join(f"line {n}\n" for n in range(100))
        self.server.events.append(
            {"involvedObject": {"name": f"{name}-worker-0"}, "reason": "OOMKilling", "message": "Memory cgroup"}
        )
        self.server.condition(self.server.job(), "Failed", "True", "PyTorchJobFailed", "1 replica failed")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ApiServer() as server:
        yield Cluster(server)


def states(cluster: Cluster) -> list[str]:
    """What was told, without the job's name."""
    return [line.removeprefix(f"{JOB.name}: ") for line in cluster.told]


def test_from_the_queue_to_the_end(cluster: Cluster) -> None:
    cluster.clock.at(1, lambda: cluster.queue("needs 8 more GPUs of flavour h100"))
    cluster.clock.at(1 * HOUR, cluster.admit)
    cluster.clock.at(1 * HOUR + 30, cluster.start)
    cluster.clock.at(1 * HOUR + 20 * MINUTE, cluster.succeed)
    cluster.run()
    assert states(cluster) == [
        "created",
        "Queued (Kueue has not looked at it yet)",
        "Queued (Pending: needs 8 more GPUs of flavour h100)",
        "Admitted (its pods are not there yet)",
        "Running (2 of 2 pods run)",
        "Succeeded",
    ]
    job = cluster.server.job()
    assert job["metadata"]["ownerReferences"][0]["uid"] == "uid-wf"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    # A heartbeat a minute, for those who clean up.
    beats = sum(method == "PATCH" for method, _ in cluster.server.requests)
    assert beats == pytest.approx(80, abs=2)


def test_preempted_twice(cluster: Cluster) -> None:
    cluster.clock.at(1, lambda: cluster.queue("busy"))
    for start in (10 * MINUTE, 30 * MINUTE, 50 * MINUTE):
        cluster.clock.at(start, cluster.admit)
        cluster.clock.at(start + 30, cluster.start)
    for moment in (20 * MINUTE, 40 * MINUTE):
        cluster.clock.at(moment, cluster.preempt)
    cluster.clock.at(60 * MINUTE, cluster.succeed)
    cluster.run()
    short = [line.split(" ")[0] for line in states(cluster)]
    again = ["Preempted", "Admitted", "Running"]
    assert short == ["created", "Queued", "Queued", "Admitted", "Running", *again, *again, "Succeeded"]
    assert "Preempted (Preempted: to make room for team-b; Pending: needs 8 more GPUs)" in states(cluster)
    assert sum(method == "POST" for method, _ in cluster.server.requests) == 1


def test_waiting_and_running_have_limits_of_their_own(cluster: Cluster) -> None:
    cluster.clock.at(1, lambda: cluster.queue("needs 8 more GPUs"))
    with pytest.raises(UserError, match=r"waited for more than 1800 s and was deleted .*needs 8 more GPUs"):
        cluster.run(replace(JOB, spec=SPEC.model_copy(update={"queue_timeout_seconds": 1800})))
    assert not any(kind == "pytorchjobs" for kind, _ in cluster.server.objects)

    later = cluster.clock.now() - 1_800_000_000 + 1
    cluster.clock.at(later, lambda: cluster.queue("needs 8 more GPUs"))
    cluster.clock.at(later + HOUR, cluster.admit)
    cluster.clock.at(later + HOUR, cluster.start)
    with pytest.raises(UserError, match="ran for more than 600 s"):
        cluster.run(replace(JOB, spec=SPEC.model_copy(update={"run_timeout_seconds": 600})))


def test_out_of_memory_is_told_as_such(cluster: Cluster) -> None:
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(20, lambda: cluster.fail({"exitCode": 137, "reason": "OOMKilled"}))
    with pytest.raises(UserError) as failed:
        cluster.run()
    message = str(failed.value)
    assert f"pod {JOB.name}-worker-0: exit code 137, out of memory (OOMKilled)" in message
    assert "line 99" in message
    assert "line 79" not in message  # the last twenty lines
    assert "OOMKilling: Memory cgroup" in message
    assert "1 replica failed" in message


def test_a_killed_launcher_is_followed_by_one_that_adopts(cluster: Cluster) -> None:
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)

    def kill() -> None:
        raise KeyboardInterrupt

    cluster.clock.at(60, kill)
    with pytest.raises(KeyboardInterrupt):
        cluster.run()
    cluster.clock.at(600, cluster.succeed)
    cluster.run()
    assert states(cluster)[-3:] == ["adopted", "Running (2 of 2 pods run)", "Succeeded"]
    assert len(cluster.server.objects) == 1


def test_another_job_of_the_name_is_not_touched(cluster: Cluster) -> None:
    other = replace(JOB, spec=SPEC.model_copy(update={"nodes": 3}))
    assert other.name == JOB.name
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(2, cluster.succeed)
    cluster.run(other)
    before = dict(cluster.server.objects)
    with pytest.raises(UserError, match=r"is there already, with another specification.*kubectl -n team-a delete"):
        cluster.run()
    assert cluster.server.objects == before


def test_a_new_attempt_replaces_a_failed_job(cluster: Cluster) -> None:
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(2, cluster.start)
    cluster.clock.at(3, lambda: cluster.fail({"exitCode": 1}))
    with pytest.raises(UserError, match="exit code 1"):
        cluster.run()
    first = cluster.server.job()["metadata"]["uid"]
    for seconds, action in ((11, cluster.admit), (12, cluster.start), (13, cluster.succeed)):
        cluster.clock.at(cluster.clock.now() - 1_800_000_000 + seconds, action)
    cluster.run()
    assert cluster.server.job()["metadata"]["uid"] != first
    assert "an earlier attempt had failed; made anew" in states(cluster)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_api_server_that_is_away_for_a_minute_is_waited_for(cluster: Cluster, status: int) -> None:
    away = range(30, 90)
    began = cluster.clock.now()

    def fault(method: str, path: str) -> tuple[int, str] | None:
        return (status, "ServiceUnavailable") if int(cluster.clock.now() - began) in away else None

    cluster.server.fault = fault
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(200, cluster.succeed)
    cluster.run()
    assert states(cluster)[-1] == "Succeeded"
    assert any("waiting for it" in line for line in cluster.told)


def test_an_api_server_that_is_away_when_the_job_is_created(cluster: Cluster) -> None:
    """The create may have gone through though its answer was lost: then the job is adopted, not made twice."""
    first = True

    def fault(method: str, path: str) -> tuple[int, str] | None:
        nonlocal first
        if method == "POST" and first:
            first = False
            cluster.server.fault = lambda method, path: None
            run = replace(JOB)
            cluster.server.answer("POST", path, {"fieldValidation": "Strict"}, _body(run))
            return 500, "InternalError"
        return None

    cluster.server.fault = fault
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(20, cluster.succeed)
    cluster.run()
    assert "adopted" in states(cluster)
    assert len(cluster.server.objects) == 1


def _body(job: Description) -> dict[str, Any]:
    from platform_sdk.kubeflow.training_job import pytorchjob

    return pytorchjob.render(job)


def test_a_refused_job_fails_at_once_and_says_why(cluster: Cluster) -> None:
    cluster.server.fault = lambda method, path: (403, "Forbidden") if method == "POST" else None
    with pytest.raises(UserError, match="HTTP 403"):
        cluster.run()


def test_a_job_that_somebody_deleted(cluster: Cluster) -> None:
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(30, lambda: cluster.server.objects.clear())
    with pytest.raises(UserError, match="was deleted while it was followed"):
        cluster.run()


def test_what_a_terminated_run_leaves_is_reaped(cluster: Cluster) -> None:
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)

    def terminate() -> None:
        raise SystemExit  # the pod is gone, and nobody was told

    cluster.clock.at(10 * MINUTE, terminate)
    with pytest.raises(SystemExit):
        cluster.run()
    now = cluster.clock.now()
    assert reap("team-a", now + 10 * MINUTE, connection=cluster.connection) == []
    would = reap("team-a", now + 20 * MINUTE, dry_run=True, connection=cluster.connection)
    assert [(orphan.name, orphan.run) for orphan in would] == [(JOB.name, "hotpot-7B")]
    assert len(cluster.server.objects) == 1
    assert reap("team-a", now + 20 * MINUTE, connection=cluster.connection) == would
    assert cluster.server.objects == {}
    assert cluster.server.pods == {}


def test_finished_jobs_are_not_reaped(cluster: Cluster) -> None:
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(2, cluster.succeed)
    cluster.run()
    assert reap("team-a", cluster.clock.now() + 100 * HOUR, connection=cluster.connection) == []
