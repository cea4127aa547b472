"""``hopforge explain`` of a run on servers that speak the protocols of Kubeflow Pipelines and Kubernetes."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("kfp.kubernetes", reason="the extra [cluster] is not installed")
pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from platform_sdk.diagnosis.explain import explain
from platform_sdk.diagnosis.facts import Facts
from platform_sdk.kubeflow.remote.facts import collect
from platform_sdk.kubeflow.remote.state import look
from tests.kubeflow.remote.cluster import Cluster
from tests.kubeflow.remote.conftest import cluster, kfp, kubernetes, no_credentials  # noqa: F401

QUOTA = (
    "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor a, 2 more needed"
)

ENDED = {"exitCode": 1, "reason": "Error", "finishedAt": "2027-01-15T08:00:00Z"}
"""State of a container that failed."""


def running_job(cluster: Cluster) -> str:  # noqa: F811
    """Start the step ``make`` with a job and its pod; return the job's name."""
    cluster.execution.step("begin")
    cluster.execution.begin("make")
    name = cluster.job(cluster.run, "make")
    cluster.kubernetes.objects["pytorchjobs", name]["spec"]["runPolicy"]["suspend"] = False
    cluster.pod(f"{name}-master-0", {"training.kubeflow.org/job-name": name})
    return name


def test_queued_job_is_explained(cluster: Cluster) -> None:  # noqa: F811
    cluster.execution.step("begin")
    cluster.execution.begin("make")
    name = cluster.job(cluster.run, "make")
    server = cluster.kubernetes
    job = server.objects["pytorchjobs", name]
    label = {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}
    server.objects["workloads", "w"] = {"metadata": {"name": "w", "labels": label}}
    server.condition(server.objects["workloads", "w"], "QuotaReserved", "False", "Pending", QUOTA)
    facts, _ = collect(cluster.server, cluster.run, cluster.jobs)
    assert [(job.name, job.queue, job.state) for job in facts.jobs] == [(name, "hopforge", "Queued")]
    first = explain(facts).findings[0]
    assert first.rule == "queued_WaitingForQuota"
    assert first.where == f"job {name}"
    (watched,) = look(cluster.server, cluster.run, cluster.jobs).jobs
    assert watched.reason == f"Pending: {QUOTA}; {first.remedy}"


def test_restarted_sidecar_is_explained_by_the_log_of_its_failure(cluster: Cluster) -> None:  # noqa: F811
    name, server = running_job(cluster), cluster.kubernetes
    sampler = {"name": "sampler", "state": {"running": {}}, "lastState": {"terminated": ENDED}}
    server.pods[f"{name}-master-0"]["status"] = {"phase": "Running", "initContainerStatuses": [sampler]}
    server.logs[f"{name}-master-0"] = "loading weights\n"
    server.logs[f"{name}-master-0/previous"] = "OSError: [Errno 28] No space left on device\n"
    [job] = collect(cluster.server, cluster.run, cluster.jobs)[0].jobs
    [container] = job.pods[0].containers
    assert [line.text for line in container.lines] == ["OSError: [Errno 28] No space left on device"]


def test_failed_pod_is_explained_and_its_secrets_are_not_saved(cluster: Cluster) -> None:  # noqa: F811
    name, server = running_job(cluster), cluster.kubernetes
    server.pods[f"{name}-master-0"]["status"] = {
        "phase": "Failed", "containerStatuses": [{"name": "pytorch", "state": {"terminated": ENDED}}],
    }  # fmt: skip
    server.logs[f"{name}-master-0"] = (
        "connecting to https://u:hunter22@mlflow\nAuthorization: Bearer abcdefgh12345678\n"
        "OSError: [Errno 28] No space left on device\n"
    )
    server.condition(server.objects["pytorchjobs", name], "Failed", "True", "PyTorchJobFailed", "1 replica failed")
    cluster.execution.end("make", "FAILED", f"job {name} failed: PyTorchJobFailed")
    cluster.execution.state("FAILED")
    facts, _ = collect(cluster.server, cluster.run, cluster.jobs)
    saved = facts.model_dump_json()
    assert "hunter22" not in saved
    assert "abcdefgh12345678" not in saved
    explained = explain(Facts.model_validate(json.loads(saved)))
    assert explained.state == "FAILED"
    first = explained.findings[0]
    assert (first.rule, first.where) == ("disk_full", f"pod {name}-master-0")
    assert first.evidence[0].line == 3


def test_unreadable_jobs_are_noted_and_the_rest_is_explained(cluster: Cluster) -> None:  # noqa: F811
    cluster.kubernetes.forbidden.add("pytorchjobs")
    cluster.execution.step("begin", "FAILED", "selection.attempts must be at most 16, but is 20")
    cluster.execution.state("FAILED")
    facts, notes = collect(cluster.server, cluster.run, cluster.jobs)
    assert any("pytorchjobs" in note for note in notes)
    first = explain(facts).findings[0]
    assert (first.rule, first.where) == ("first_error", "step begin")
    assert "selection.attempts must be at most 16, but is 20" in first.cause


def test_terminated_run_is_explained_by_its_state(cluster: Cluster) -> None:  # noqa: F811
    cluster.execution.step("begin")
    cluster.execution.state("CANCELED")
    facts, _ = collect(cluster.server, cluster.run, cluster.jobs)
    [found] = explain(facts).findings
    assert (found.rule, found.cause) == ("run_stopped", "the run was terminated in Kubeflow Pipelines")
    assert [evidence.text for evidence in found.evidence] == ["state CANCELED"]


def test_run_that_succeeded_has_no_findings(cluster: Cluster) -> None:  # noqa: F811
    for step in ("begin", "make", "use", "last"):
        if step in cluster.run.step_names:
            cluster.execution.step(step)
    cluster.execution.state("SUCCEEDED")
    facts, _ = collect(cluster.server, cluster.run, cluster.jobs)
    assert explain(facts).findings == ()
