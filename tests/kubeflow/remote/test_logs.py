"""Logs of a run's containers, read and followed through whatever ends a stream before its log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote import logs, readers
from platform_sdk.kubeflow.remote.logs import Container, containers, follow_log, follow_own, read_log
from platform_sdk.kubeflow.remote.readers import follow_logs
from platform_sdk.kubeflow.training_job.api import ApiUnavailable
from tests.kubeflow.remote.cluster import Cluster
from tests.kubeflow.remote.cluster_server import BROKEN, CLEAN
from tests.process_watch import wait_for

MAIN = Container("make", "make-pod", "main", "make")
# Some are equal; they were written over nine seconds.
LINES = ["step 1", "löss 0.5", "", *[f"line {number // 2}" for number in range(26)], "end"]
TEXT = "\n".join(LINES) + "\n"
BYTES = len(TEXT.encode()) + 31 * len(LINES)  # each with its time before it


@pytest.fixture
def pod(cluster: Cluster) -> dict[str, Any]:
    cluster.pod("make-pod", {"pipeline/runid": cluster.run.run_id, "hopforge.dev/task": "make"}, TEXT)
    return cluster.kubernetes.pods["make-pod"]


def running(pod: dict[str, Any], **terminated: Any) -> None:
    state = {"terminated": terminated} if terminated else {"running": {}}
    pod["status"] = {"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]}


def followed(cluster: Cluster, *events: Callable[[], object], lines: int | None = None) -> list[str]:
    """Return the lines read while events happen one after another, whenever the log is read again."""
    rest = list(events)
    over = threading.Event()
    read = list(follow_log(cluster.jobs, MAIN, lines, over, lambda seconds: rest.pop(0)()))
    assert rest == []
    return read


def test_logs_are_those_of_the_steps_and_of_their_jobs(cluster: Cluster) -> None:
    run = cluster.run
    own = {"pipeline/runid": run.run_id}
    cluster.pod("make-pod", own | {"hopforge.dev/task": "make"}, "a\nb\n")
    cluster.pod("make-driver", own)
    cluster.pod("foreign", {"pipeline/runid": "other", "hopforge.dev/task": "make"}, "x")
    for task in ("make", "last"):
        name = cluster.job(run, task)
        cluster.pod(f"{name}-master-0", {"training.kubeflow.org/job-name": name}, f"{task}\nlöss 1")
    cluster.job(run, "use-01", "trainjob")  # not begun: no pods
    found, notes = containers(cluster.jobs, run, None)
    assert {(one.step, one.name) for one in found} == {("make", "main"), ("make", "pytorch"), ("last", "pytorch")}
    assert notes == []
    assert containers(cluster.jobs, run, "last")[0] == [one for one in found if one.step == "last"]
    [trainer] = [one for one in found if (one.step, one.name) == ("make", "pytorch")]
    assert list(read_log(cluster.jobs, trainer, 100) or ()) == ["make", "löss 1"]
    assert list(read_log(cluster.jobs, trainer, 1) or ()) == ["löss 1"]
    assert [str(one) for one in found] == ["make", "train-make", "train-last"]
    assert containers(cluster.jobs, run, "train-last")[0] == containers(cluster.jobs, run, "last")[0]
    assert read_log(cluster.jobs, Container("make", "gone", "main", "make"), 9) is None

    cluster.kubernetes.forbidden = {"trainjobs"}
    again, notes = containers(cluster.jobs, run, None)
    assert again == found
    assert ["TrainJobs" in note for note in notes] == [True]


@pytest.mark.parametrize("how", [CLEAN, BROKEN])
def test_a_log_is_taken_up_where_its_stream_was_cut(cluster: Cluster, pod: dict[str, Any], how: str) -> None:
    """Every line comes once, wherever the stream was cut, twice."""
    for first in range(1, BYTES, 23):
        running(pod)
        cluster.kubernetes.cuts = [(first, how), (40, how)]
        read = followed(cluster, lambda: None, lambda: pod["status"].update(phase="Succeeded"))
        assert read == LINES, first
    since = {query.get("sinceTime") for query in cluster.kubernetes.log_queries}
    assert len(since) > 5  # it was not read from the beginning


def test_a_log_is_followed_from_before_its_container_starts(cluster: Cluster, pod: dict[str, Any]) -> None:
    logs_, cuts = cluster.kubernetes.logs, cluster.kubernetes.cuts
    text = logs_.pop("make-pod")
    pod["status"] = {"phase": "Pending"}

    def starts() -> None:
        running(pod)
        logs_["make-pod"] = text
        cuts.append((200, CLEAN))

    def ends() -> None:
        logs_["make-pod"] += "last words"  # without an end of its line
        running(pod, exitCode=1)
        pod["spec"]["restartPolicy"] = "Never"

    # What comes later is new, however much: the number of last lines is for what is there at first.
    assert followed(cluster, lambda: None, starts, ends, lines=3) == [*LINES, "last words"]


def test_logs_with_a_line_limit_give_the_last_lines(cluster: Cluster, pod: dict[str, Any]) -> None:
    running(pod)
    cluster.kubernetes.cuts = [(100, BROKEN)]
    assert followed(cluster, lambda: pod["status"].update(phase="Failed"), lines=4) == LINES[-4:]


def test_restartable_container_is_not_taken_for_ended(cluster: Cluster, pod: dict[str, Any]) -> None:
    running(pod, exitCode=1)
    pod["spec"]["restartPolicy"] = "OnFailure"
    cluster.kubernetes.cuts = [(BYTES, CLEAN)]

    def starts_again() -> None:
        cluster.kubernetes.logs["make-pod"] += "second try\n"
        running(pod, exitCode=0)

    assert followed(cluster, starts_again) == [*LINES, "second try"]


def test_log_of_a_deleted_pod_is_complete(cluster: Cluster, pod: dict[str, Any]) -> None:
    running(pod)
    cluster.kubernetes.cuts = [(BYTES, CLEAN)]

    def goes() -> None:
        del cluster.kubernetes.pods["make-pod"], cluster.kubernetes.logs["make-pod"]

    assert followed(cluster, goes) == LINES


def test_unavailable_api_server_is_waited_for(cluster: Cluster, pod: dict[str, Any]) -> None:
    running(pod)
    cluster.kubernetes.cuts = [(300, BROKEN)]

    def away() -> None:
        cluster.kubernetes.fault = lambda method, path: (503, "away")

    def back() -> None:
        cluster.kubernetes.fault = lambda method, path: None
        pod["status"]["phase"] = "Succeeded"

    assert followed(cluster, away, lambda: None, back) == LINES


@pytest.mark.parametrize("of_step", [False, True], ids=["job", "step"])
def test_unavailable_api_server_at_the_begin_of_a_log_is_waited_for(
    cluster: Cluster, pod: dict[str, Any], of_step: bool
) -> None:
    container = replace(MAIN, of_step=of_step)

    def back(seconds: float) -> None:
        cluster.kubernetes.fault = lambda method, path: None
        pod["status"]["phase"] = "Succeeded"

    def away(method: str, path: str) -> tuple[int, str]:
        return 503, "away"

    cluster.kubernetes.fault = away
    assert list(follow_own(cluster.jobs, container, 4, threading.Event(), back)) == LINES[-4:]
    cluster.kubernetes.fault = away
    waited: list[float] = []
    with pytest.raises(ApiUnavailable):
        list(follow_own(cluster.jobs, container, 9, threading.Event(), waited.append))
    assert 1700 < sum(waited) < 1900


def test_interrupted_log_is_not_taken_for_complete(cluster: Cluster, pod: dict[str, Any]) -> None:
    class Cut:
        def stream(self, size: int, decode_content: bool) -> Iterator[bytes]:
            from urllib3.exceptions import ProtocolError

            yield b"half\nof"
            raise ProtocolError("Connection broken")

        def close(self) -> None: ...

    cluster.jobs.log = lambda *_, **__: Cut()  # type: ignore[method-assign]
    read = read_log(cluster.jobs, MAIN, 9)
    assert read is not None
    assert next(read) == "half"
    with pytest.raises(UserError, match="the connection to the API server was lost: ProtocolError"):
        next(read)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((logs, "LOOK_SECONDS"), (logs, "AGAIN_SECONDS"), (readers, "LOOK_SECONDS")):
        monkeypatch.setattr(module, name, 0.02)


def whole(cluster: Cluster, step: str | None, script: Callable[[list[str]], None]) -> tuple[list[str], list[str]]:
    """Return the output and events while the script moves the cluster; the script sees the output."""
    said: list[str] = []
    told: list[str] = []
    mover = threading.Thread(target=script, args=(said,))
    mover.start()
    try:
        follow_logs(cluster.server, cluster.run, cluster.jobs, step, 1000,
                    lambda container, line: said.append(f"{container.pod} {line}"), told.append)  # fmt: skip
    finally:
        mover.join()
    return said, told


def test_a_run_is_followed_from_its_submission_to_its_end(cluster: Cluster, quick: None) -> None:
    kfp, kubernetes = cluster.kfp, cluster.kubernetes
    own = {"pipeline/runid": cluster.run.run_id}

    def script(said: list[str]) -> None:
        kfp.run()["state"] = "RUNNING"
        cluster.pod("one", own | {"hopforge.dev/task": "make"})  # being created
        wait_for(lambda: ("GET", "/api/v1/namespaces/team-a/pods/one/log") in kubernetes.requests)
        kubernetes.cuts = [(40, CLEAN)]
        kubernetes.logs["one"] = "a\nb\n"
        name = cluster.job(cluster.run, "make")
        wait_for(lambda: "one b" in said)
        cluster.pod("two", {"training.kubeflow.org/job-name": name}, "loss 1\n")
        wait_for(lambda: "two loss 1" in said)
        kubernetes.fault = lambda method, path: (503, "away")
        kfp.fault = lambda method, path: 503
        wait_for(lambda: kfp.requests.count(("GET", f"/apis/v2beta1/runs/{cluster.run.run_id}")) > 20)
        kubernetes.fault, kfp.fault = lambda method, path: None, lambda method, path: None
        cluster.pod("three", own | {"hopforge.dev/task": "last"}, "late\n")
        for pod in kubernetes.pods.values():
            pod["status"]["phase"] = "Succeeded"
        kfp.run()["state"] = "SUCCEEDED"

    said, told = whole(cluster, None, script)
    assert sorted(said) == ["one a", "one b", "three late", "two loss 1"]
    assert len(told) == 1
    assert "503" in told[0]


def test_a_step_is_followed_to_its_own_end(cluster: Cluster, quick: None) -> None:
    cluster.kfp.run()["state"] = "RUNNING"

    def script(said: list[str]) -> None:
        cluster.pod("one", {"pipeline/runid": cluster.run.run_id, "hopforge.dev/task": "make"}, "a\n")
        cluster.pod("hung", {"pipeline/runid": cluster.run.run_id, "hopforge.dev/task": "make"})  # never starts
        wait_for(lambda: "one a" in said)
        cluster.kubernetes.pods["one"]["status"]["phase"] = "Failed"
        cluster.kubernetes.pods["hung"]["status"]["phase"] = "Failed"

    assert whole(cluster, "make", script) == (["one a"], [])


def test_part_of_a_step_is_followed_to_the_end_of_its_job(cluster: Cluster, quick: None) -> None:
    cluster.kfp.run()["state"] = "RUNNING"
    run_ended = threading.Event()

    def script(said: list[str]) -> None:
        name = cluster.job(cluster.run, "make", part="train-iteration-01")
        cluster.pod("one", {"training.kubeflow.org/job-name": name}, "a\n")
        wait_for(lambda: "one a" in said)
        cluster.kubernetes.pods["one"]["status"]["phase"] = "Succeeded"
        cluster.kubernetes.condition(cluster.kubernetes.objects["pytorchjobs", name], "Succeeded")
        if not run_ended.wait(10):
            cluster.kfp.run()["state"] = "SUCCEEDED"

    mover = threading.Thread(target=script, args=(said := list[str](),))
    mover.start()
    follow_logs(cluster.server, cluster.run, cluster.jobs, "train-iteration-01", 1000,
                lambda container, line: said.append(f"{container.pod} {line}"), said.append)  # fmt: skip
    run_ended.set()
    mover.join()
    assert said == ["one a"]
    assert cluster.kfp.run()["state"] == "RUNNING"


def test_forbidden_log_does_not_end_the_others(cluster: Cluster, quick: None) -> None:
    cluster.kubernetes.fault = lambda method, path: (403, "no logs") if path.endswith("secret/log") else None

    def script(said: list[str]) -> None:
        for name in ("open", "secret"):
            cluster.pod(name, {"pipeline/runid": cluster.run.run_id, "hopforge.dev/task": "make"}, "a\n")
        wait_for(lambda: "open a" in said)
        cluster.kubernetes.logs["open"] += "b\n"
        wait_for(lambda: "open b" in said)
        for pod in cluster.kubernetes.pods.values():
            pod["status"]["phase"] = "Succeeded"
        cluster.kfp.run()["state"] = "SUCCEEDED"

    with pytest.raises(UserError, match="not read to the end: make"):
        whole(cluster, None, script)


def test_a_closed_pipe_ends_the_following(cluster: Cluster, pod: dict[str, Any], quick: None) -> None:
    running(pod)

    def say(container: Container, line: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        follow_logs(cluster.server, cluster.run, cluster.jobs, None, 9, say, lambda text: None)
    pod["status"]["phase"] = "Succeeded"
