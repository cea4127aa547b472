"""Jobs with a queue label where Kueue manages their kind, where it ignores it, and where it is slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from platform_sdk.config.cluster import JobSpec
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.backend import choose_backend
from platform_sdk.kubeflow.training_job.kueue import check_queueing, manages
from tests.kubeflow.training_job.scripted import JOB, MINUTE, SPEC, Cluster

OPEN = replace(JOB, spec=SPEC.model_copy(update={"backend": None}))
SHIPPED = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks:
  - "batch/job"
  - "jobset.x-k8s.io/jobset"
  - "trainer.kubeflow.org/trainjob"
# - "kubeflow.org/pytorchjob"
"""
WITH_PYTORCH = SHIPPED.replace("# -", "  -")


def configure(cluster: Cluster, text: str) -> None:
    cluster.server.config_maps["kueue-system/kueue-manager-config"] = {"controller_manager_config.yaml": text}


@pytest.mark.parametrize("running", [False, True], ids=["suspended", "running"])
def test_a_job_that_kueue_ignores_is_deleted_with_what_to_do(cluster: Cluster, running: bool) -> None:
    began = cluster.clock.time()
    if running:  # somebody has resumed it by hand: it runs past every quota
        cluster.clock.at(5, cluster.resume)
        cluster.clock.at(6, cluster.start)
    with pytest.raises(UserError) as failed:
        cluster.run()
    message = str(failed.value)
    assert "Kueue created no Workload for it within 120 s" in message
    assert "add kubeflow.org/pytorchjob to integrations.frameworks in the ConfigMap kueue-manager-config" in message
    assert cluster.jobs == []
    assert cluster.clock.time() - began < 3 * MINUTE


@pytest.mark.parametrize("seconds", [1, 110])
def test_a_job_that_kueue_takes_over_in_time_runs(cluster: Cluster, seconds: int) -> None:
    cluster.clock.at(seconds, lambda: cluster.queue("needs 8 more GPUs"))
    cluster.clock.at(600, cluster.admit)
    cluster.clock.at(610, cluster.start)
    # Kueue may delete its Workload again: the job was admitted once.
    cluster.clock.at(620, lambda: cluster.server.objects.pop(("workloads", "w")))
    cluster.clock.at(1200, cluster.succeed)
    cluster.run()
    assert cluster.told[-1].endswith("Succeeded")


def test_unavailable_api_server_does_not_count_against_kueue(cluster: Cluster) -> None:
    began = cluster.clock.time()
    cluster.server.fault = lambda method, path: (
        (503, "ServiceUnavailable") if 15 < cluster.clock.time() - began < 600 else None
    )
    cluster.clock.at(610, cluster.admit)
    cluster.clock.at(620, cluster.succeed)
    cluster.run()
    assert cluster.told[-1].endswith("Succeeded")


def test_a_job_without_a_queue_needs_no_kueue(cluster: Cluster) -> None:
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(600, cluster.succeed)
    cluster.run(replace(JOB, spec=SPEC.model_copy(update={"queue": None})))
    assert cluster.told[-1].endswith("Succeeded")


@pytest.mark.parametrize(
    ("text", "pytorchjob", "trainjob"),
    [
        (SHIPPED, False, True),
        (WITH_PYTORCH, True, True),
        (
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n",
            False,
            False,
        ),  # Kueue's default: batch/job
        ("integrations: {frameworks: [], externalFrameworks: [PyTorchJob.v1.kubeflow.org]}", True, False),
    ],
)
def test_kueues_configuration_says_which_kinds_it_manages(text: str, pytorchjob: bool, trainjob: bool) -> None:
    assert (manages(text, "pytorchjob"), manages(text, "trainjob")) == (pytorchjob, trainjob)


@pytest.mark.parametrize("text", ["a list", "- a", "integrations: [x]", "integrations: {frameworks: 3}", "{", ""])
def test_invalid_kueue_configuration_is_a_user_error(text: str) -> None:
    with pytest.raises(UserError, match="is not a Kueue configuration"):
        manages(text, "pytorchjob")


@pytest.mark.parametrize(
    ("text", "trainer", "backend", "refused"),
    [
        (SHIPPED, True, None, None),
        (SHIPPED, False, None, "PyTorchJobs"),
        (SHIPPED, True, "pytorchjob", "PyTorchJobs"),
        (WITH_PYTORCH, False, None, None),
        ("integrations: {frameworks: [kubeflow.org/pytorchjob]}", True, None, "TrainJobs"),
    ],
)
def test_a_queue_is_checked_before_a_run_starts(
    cluster: Cluster, text: str, trainer: bool, backend: Any, refused: str | None
) -> None:
    configure(cluster, text)
    cluster.server.unknown |= set() if trainer else {"trainjobs"}
    spec = SPEC.model_copy(update={"backend": backend})
    if refused is None:
        assert check_queueing(spec, cluster.connection) == ""
    else:
        with pytest.raises(UserError, match=f"queue team-a: Kueue does not manage {refused} on this cluster"):
            check_queueing(spec, cluster.connection)


def test_unreadable_kueue_configuration_is_reported(cluster: Cluster) -> None:
    assert "cannot check that Kueue manages the jobs of queue team-a: " in check_queueing(SPEC, cluster.connection)
    configure(cluster, SHIPPED)
    cluster.server.fault = lambda method, path: (403, "Forbidden") if "configmaps" in path else None
    assert "HTTP 403" in check_queueing(SPEC, cluster.connection)
    assert check_queueing(SPEC.model_copy(update={"queue": None}), cluster.connection) == ""


@pytest.mark.parametrize(
    ("unknown", "change", "chosen"),
    [
        (set(), {}, "trainjob"),
        ({"trainjobs"}, {}, "pytorchjob"),
        (set(), {"backend": "pytorchjob"}, "pytorchjob"),
        ({"trainjobs"}, {"backend": "trainjob"}, "trainjob"),
        (set(), {"minimum_nodes": 1}, "pytorchjob"),
    ],
)
def test_the_kind_of_a_job_is_the_files_else_a_trainjob_where_that_is_served(
    cluster: Cluster, unknown: set[str], change: dict[str, Any], chosen: str
) -> None:
    cluster.server.unknown |= unknown
    job = replace(OPEN, spec=JobSpec.model_validate(OPEN.spec.model_dump() | change))
    assert choose_backend(job, cluster.connection, cluster.told.append).spec.backend == chosen


def test_existing_job_keeps_its_kind(cluster: Cluster) -> None:
    """Trainer 2 was installed while the run's PyTorchJob ran: its next launcher adopts that, and creates no other."""

    def kill() -> None:
        raise KeyboardInterrupt

    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(30, kill)
    with pytest.raises(KeyboardInterrupt):
        cluster.run()
    assert choose_backend(OPEN, cluster.connection, cluster.told.append).spec.backend == "pytorchjob"


def forbidden(method: str, path: str) -> tuple[int, str] | None:
    return (403, "Forbidden") if path.endswith("v1alpha1") else None


def away(method: str, path: str) -> tuple[int, str] | None:
    return (503, "Unavailable") if path.endswith("v1alpha1") else None


@pytest.mark.parametrize(("fault", "raised"), [(forbidden, False), (away, True)])
def test_discovery_that_fails_is_not_taken_for_an_answer(
    cluster: Cluster, fault: Callable[[str, str], tuple[int, str] | None], raised: bool
) -> None:
    cluster.server.fault = fault
    if raised:
        with pytest.raises(UserError, match="answered 503"):
            choose_backend(OPEN, cluster.connection, cluster.told.append)
    else:
        assert choose_backend(OPEN, cluster.connection, cluster.told.append).spec.backend == "pytorchjob"
        assert "no right to see if the cluster serves TrainJobs" in cluster.told[0]
