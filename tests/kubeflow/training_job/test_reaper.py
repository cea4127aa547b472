"""Reaper that ends the jobs that no launcher follows, and leaves all others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.jobs import Jobs
from platform_sdk.kubeflow.training_job.api import ApiUnavailable
from platform_sdk.kubeflow.training_job.backend import api_for
from platform_sdk.kubeflow.training_job.launcher import stamp
from platform_sdk.kubeflow.training_job.reaper import reap
from tests.kubeflow.training_job.scripted import HOUR, JOB, MINUTE, Cluster


def terminated(cluster: Cluster) -> float:
    """Let a run be terminated whose job is at work; the time of its end."""

    def terminate() -> None:
        raise SystemExit  # the pod is gone, and nobody was told

    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(10 * MINUTE, terminate)
    with pytest.raises(SystemExit):
        cluster.run()
    return cluster.clock.time()


def test_jobs_of_a_terminated_run_are_reaped(cluster: Cluster) -> None:
    end = terminated(cluster)
    assert reap("team-a", end + 40 * MINUTE, connection=cluster.connection) == []
    would = reap("team-a", end + 50 * MINUTE, dry_run=True, connection=cluster.connection)
    assert [orphan.name for orphan in would] == [JOB.name]
    assert cluster.jobs == [JOB.name]
    assert reap("team-a", end + 50 * MINUTE, connection=cluster.connection) == would
    assert cluster.jobs == []
    assert cluster.server.pods == {}


@pytest.mark.parametrize("served", [False, True])
def test_forbidden_kind_stops_the_reaper_only_if_the_cluster_serves_it(cluster: Cluster, served: bool) -> None:
    """The API server refuses the list of a kind that it does not serve to accounts without a role for it."""
    late = terminated(cluster) + HOUR
    cluster.server.unknown = set() if served else {"trainjobs"}
    cluster.server.fault = lambda method, path: (403, "Forbidden") if path.endswith("/trainjobs") else None
    if served:
        with pytest.raises(UserError, match="HTTP 403"):
            reap("team-a", late, connection=cluster.connection)
        assert cluster.jobs == [JOB.name]
    else:
        assert [orphan.name for orphan in reap("team-a", late, connection=cluster.connection)] == [JOB.name]
        assert cluster.jobs == []


@pytest.mark.parametrize("read", [
    lambda connection: reap("team-a", 0.0, connection=connection),
    lambda connection: Jobs("team-a", connection).pods("a=b"),
    lambda connection: api_for(JOB, connection).pods(JOB.name),
], ids=["gc", "pods-of-a-run", "pods-of-a-job"])  # fmt: skip
def test_login_page_is_one_error(cluster: Cluster, read: Callable[[Any], object]) -> None:
    cluster.server.answer = lambda *_: (200, "<html>Log in</html>")  # type: ignore[method-assign]
    with pytest.raises(UserError, match=r"list of \w+ has an unexpected form .*KUBECONFIG may name another server"):
        read(cluster.connection)


def test_finished_jobs_are_not_reaped(cluster: Cluster) -> None:
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(2, cluster.succeed)
    cluster.run()
    assert reap("team-a", cluster.clock.time() + 100 * HOUR, connection=cluster.connection) == []


def test_job_survives_an_api_server_outage_within_its_launchers_patience(cluster: Cluster) -> None:
    """No heartbeat can be written meanwhile; and the reaper, of whose schedule much was missed, is back the sooner."""
    began = cluster.clock.time()
    away = (5 * MINUTE, 34 * MINUTE)
    cluster.server.fault = lambda method, path: (
        (503, "ServiceUnavailable") if away[0] <= cluster.clock.time() - began < away[1] else None
    )
    reaped = []

    def look() -> None:
        with contextlib.suppress(ApiUnavailable):
            reaped.extend(reap("team-a", cluster.clock.time(), connection=cluster.connection))

    for moment in (10 * MINUTE, 20 * MINUTE, 30 * MINUTE, away[1], 40 * MINUTE, 50 * MINUTE):
        cluster.clock.at(moment, look)
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(60 * MINUTE, cluster.succeed)
    cluster.run()
    assert reaped == []
    assert cluster.told[-1] == f"{JOB.name}: Succeeded"


def test_a_heartbeat_between_the_look_and_the_deletion_saves_the_job(cluster: Cluster) -> None:
    late = terminated(cluster) + 2 * HOUR

    def launcher_is_back(method: str, path: str) -> None:
        if method == "DELETE":
            beat = {"metadata": {"annotations": {"hopforge.dev/heartbeat": stamp(late)}}}
            cluster.server.answer("PATCH", path, {}, beat)

    cluster.server.fault = launcher_is_back
    assert reap("team-a", late, connection=cluster.connection) == []
    assert cluster.jobs == [JOB.name]
    cluster.server.fault = lambda method, path: None
    assert reap("team-a", late + 10 * MINUTE, connection=cluster.connection) == []
    assert [orphan.name for orphan in reap("team-a", late + HOUR, connection=cluster.connection)] == [JOB.name]
