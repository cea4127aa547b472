"""Watch of a job's objects over real connections and in real time: changes at once, and lost or expired watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from platform_sdk.kubeflow.training_job import watch as watching
from platform_sdk.kubeflow.training_job.api import ApiUnavailable, Forbidden
from platform_sdk.kubeflow.training_job.backend import api_for
from platform_sdk.kubeflow.training_job.watch import JobWatch, SystemClock
from tests.kubeflow.training_job.scripted import JOB, Cluster


@pytest.fixture
def seen() -> list[str]:
    """The phases of the pods that the watch delivered."""
    return []


@pytest.fixture
def watch(cluster: Cluster, seen: list[str]) -> Iterator[JobWatch]:
    """An open watch of a job that exists."""
    api = api_for(JOB, cluster.connection)
    path = "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs"
    body = {"metadata": {"name": JOB.name}, "spec": {"runPolicy": {"suspend": False}}}
    cluster.server.answer("POST", path, {"fieldValidation": "Strict"}, body)
    made = JobWatch(api, JOB.name, True, lambda pod: seen.append(pod["status"]["phase"]), SystemClock())
    with closing(made):
        made.refresh()
        yield made


def until(watch: JobWatch, condition: Callable[[], Any]) -> float:
    """Wait for changes until the condition holds; return the seconds that passed."""
    began = time.monotonic()
    while not condition():
        watch.refresh()
        watch.wait(1.0)
        assert time.monotonic() - began < 60
    return time.monotonic() - began


def test_changes_arrive_without_further_requests(cluster: Cluster, watch: JobWatch, seen: list[str]) -> None:
    asked = len(cluster.server.requests)
    cluster.start()
    cluster.queue("busy")
    cluster.server.watches.flush()
    # The streams of jobs, pods and Workloads come in any order.
    until(watch, lambda: len(watch.pods) == 2 and watch.workload is not None and "status" in (watch.job or {}))
    assert watch.job is not None
    assert watch.job["status"]["conditions"][0]["type"] == "Running"
    cluster.server.pods.popitem()
    cluster.server.watches.flush()
    until(watch, lambda: len(watch.pods) == 1)
    assert seen == ["Running"] * 3  # the last version of a pod that is deleted, too
    assert len(cluster.server.requests) == asked


@pytest.mark.parametrize("expired", [False, True], ids=["lost", "too old"])
def test_watch_continues_after_a_lost_connection(
    cluster: Cluster, watch: JobWatch, expired: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "RETRY_SECONDS", 0.1)
    cluster.server.watches.drop()
    if expired:  # the history that the next watch needs goes between its list and its start: 410
        list_pods = JobWatch._replace

        def compacting(self: JobWatch, source: str, items: list[Any]) -> None:
            list_pods(self, source, items)
            cluster.server.watches.forget()
            monkeypatch.setattr(JobWatch, "_replace", list_pods)

        monkeypatch.setattr(JobWatch, "_replace", compacting)
    cluster.start()  # while nobody watches
    until(watch, lambda: len(watch.pods) == 2)
    until(watch, lambda: cluster.server.watches.opened >= 6)
    cluster.server.pods.clear()
    cluster.server.watches.flush()
    until(watch, lambda: not watch.pods)


def test_watch_that_is_lost_at_once_is_replaced_after_a_pause(cluster: Cluster, watch: JobWatch) -> None:
    until(watch, lambda: cluster.server.watches.opened >= len(watch._streams))
    opened = cluster.server.watches.opened
    cluster.server.watches.drop()
    until(watch, lambda: not watch._streams)
    watch.refresh()
    assert cluster.server.watches.opened == opened


@pytest.mark.parametrize(("status", "raised"), [(403, Forbidden), (503, ApiUnavailable)])
def test_refused_watch_is_an_error(cluster: Cluster, status: int, raised: type[Exception]) -> None:
    cluster.server.fault = lambda method, path: (status, "") if method == "WATCH" else None
    with closing(JobWatch(api_for(JOB, cluster.connection), "j", False, lambda pod: None, SystemClock())) as watch:
        with pytest.raises(raised):
            watch.refresh()
        cluster.server.fault = lambda method, path: None
        watch.refresh()


def test_closed_watch_ends_its_threads(watch: JobWatch) -> None:
    watch.close()
    began = time.monotonic()
    while [thread for thread in threading.enumerate() if thread.name.startswith("watch ")]:
        assert time.monotonic() - began < 30
        time.sleep(0.01)
