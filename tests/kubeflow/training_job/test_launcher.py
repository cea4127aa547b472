"""The launcher against an API server, through what a cluster does to a job: each ends in the right state, nothing is
left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from platform_sdk.config.cluster import Resources
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job import pytorchjob
from platform_sdk.kubeflow.training_job.launcher import stamp
from tests.kubeflow.training_job.recordings import recording
from tests.kubeflow.training_job.scripted import HOUR, IMAGE, JOB, MINUTE, SPEC, Cluster


def states(cluster: Cluster) -> list[str]:
    """Return the reported states without the job's name."""
    return [line.removeprefix(f"{JOB.name}: ") for line in cluster.told]


def test_job_passes_from_queued_to_succeeded(cluster: Cluster) -> None:
    cluster.clock.at(1, lambda: cluster.queue("needs 8 more GPUs of flavour h100"))
    cluster.clock.at(1 * HOUR, cluster.admit)
    cluster.clock.at(1 * HOUR + 30, cluster.start)
    cluster.clock.at(1 * HOUR + 20 * MINUTE, cluster.succeed)
    cluster.run()
    assert states(cluster) == [
        "created",
        "Queued (Kueue has not processed it yet)",
        "Queued (Pending: needs 8 more GPUs of flavour h100)",
        "Admitted (its pods do not exist yet)",
        "Running (2 of 2 pods run)",
        "Succeeded",
    ]
    job = cluster.server.job()
    assert job["metadata"]["ownerReferences"][0]["uid"] == "uid-wf"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    # A heartbeat a minute, for those who clean up.
    beats = sum(method == "PATCH" for method, _ in cluster.server.requests)
    assert beats == pytest.approx(80, abs=2)


def test_twice_preempted_job_succeeds_without_a_new_job(cluster: Cluster) -> None:
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
    assert cluster.jobs == []

    later = cluster.clock.time() - 1_800_000_000 + 1
    cluster.clock.at(later, lambda: cluster.queue("needs 8 more GPUs"))
    cluster.clock.at(later + HOUR, cluster.admit)
    cluster.clock.at(later + HOUR, cluster.start)
    with pytest.raises(UserError, match="ran for more than 600 s"):
        cluster.run(replace(JOB, spec=SPEC.model_copy(update={"run_timeout_seconds": 600})))


def test_out_of_memory_is_named_as_the_cause(cluster: Cluster) -> None:
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


def test_failure_is_reported_although_the_log_of_its_pod_cannot_be_read(cluster: Cluster) -> None:
    """The kubelet of a lost node gives no log; the pod's status still has the cause."""
    cluster.server.fault = lambda method, path: (500, "InternalError") if path.endswith("/log") else None
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(20, lambda: cluster.fail({"exitCode": 137, "reason": "OOMKilled"}))
    began = cluster.clock.time()
    with pytest.raises(UserError) as failed:
        cluster.run()
    assert 80 <= cluster.clock.time() - began < 100
    first, *details = str(failed.value).splitlines()
    assert "exit code 137, out of memory" in first
    assert any("its log cannot be read: the API server answered 500" in line for line in details)


def test_log_of_a_failed_pod_is_requested_again(cluster: Cluster) -> None:
    faults = [(503, "Unavailable")]
    cluster.server.fault = lambda method, path: faults.pop() if path.endswith("/log") and faults else None
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(20, lambda: cluster.fail({"exitCode": 1}))
    with pytest.raises(UserError) as failed:
        cluster.run()
    assert not faults
    assert "cannot be read" not in str(failed.value)


def test_failure_of_a_new_attempt_leaves_out_warnings_of_the_first(cluster: Cluster) -> None:
    """A PyTorchJob's pods have the same names in every attempt."""
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(2, cluster.start)
    cluster.clock.at(3, lambda: cluster.fail({"exitCode": 137, "reason": "OOMKilled"}))
    with pytest.raises(UserError, match="OOMKilling"):
        cluster.run()

    def fail() -> None:
        cluster.server.job()["metadata"]["creationTimestamp"] = "2027-01-15T08:30:00Z"
        cluster.fail({"exitCode": 1})

    for seconds, action in ((11, cluster.admit), (12, cluster.start), (13, fail)):
        cluster.clock.after(seconds, action)
    with pytest.raises(UserError) as failed:
        cluster.run()
    assert "exit code 1" in str(failed.value)
    assert "OOMKilling" not in str(failed.value)


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
    assert cluster.jobs == [JOB.name]


@pytest.mark.parametrize("absent", [0.0, 900.0], ids=["adopted-running", "adopted-ended"])
def test_gpu_hours_are_those_from_admission_to_end_whichever_launchers_are_killed(
    cluster: Cluster, absent: float
) -> None:
    cluster.clock.at(1, lambda: cluster.queue("busy"))
    cluster.clock.at(300, cluster.admit)

    def kill() -> None:
        raise KeyboardInterrupt

    def succeed() -> None:
        cluster.succeed()
        [done] = [one for one in cluster.server.job()["status"]["conditions"] if one["type"] == "Succeeded"]
        done["lastTransitionTime"] = stamp(cluster.clock.time())

    cluster.clock.at(310, cluster.start)
    cluster.clock.at(500, kill)
    cluster.clock.at(900, succeed)
    with pytest.raises(KeyboardInterrupt):
        cluster.run()
    cluster.clock.sleep(absent)
    cluster.run()
    first, last = cluster.uses
    assert first.uid == last.uid == cluster.server.job()["metadata"]["uid"]
    assert last.images == {"registry/trainer": IMAGE}
    gpus = 2 * 4
    assert (first.gpus, last.gpus) == (gpus, gpus)
    assert first.gpu_hours * 3600 == pytest.approx(200 * gpus, abs=gpus)
    assert last.gpu_hours * 3600 == pytest.approx(600 * gpus, abs=2 * gpus), "the last figure counts all"
    assert (first.seconds, last.seconds) == (pytest.approx(200, abs=1), pytest.approx(600, abs=2))
    assert last.queued_seconds == pytest.approx(first.queued_seconds, abs=2), "also after a kill"


def test_gpu_hours_end_with_the_job_although_the_launcher_sees_the_end_later(cluster: Cluster) -> None:
    def lose() -> None:
        cluster.server.watches.drop()
        cluster.server.fault = lambda method, path: (503, "ServiceUnavailable")

    def succeed() -> None:
        cluster.succeed()
        cluster.server.job()["status"]["conditions"][-1]["lastTransitionTime"] = stamp(cluster.clock.time())

    def come_back() -> None:
        cluster.server.fault = lambda method, path: None

    for seconds, action in ((1, cluster.admit), (10, cluster.start), (100, lose), (121, succeed), (1500, come_back)):
        cluster.clock.at(seconds, action)
    cluster.run()
    assert cluster.uses[0].gpu_hours * 3600 == pytest.approx(120 * 8, abs=8)


def test_gpu_hours_of_an_indexed_job_count_the_admitted_pods(cluster: Cluster) -> None:
    """Kueue admits fewer pods at once than the job has where the quota is too small for all."""
    indexed = replace(JOB, indexed=True, spec=SPEC.model_copy(update={"nodes": 8, "resources": Resources(gpus=1)}))

    def admit() -> None:
        job = cluster.server.job("jobs")
        label = {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}
        cluster.server.objects["workloads", "w"] = {"metadata": {"name": "w", "labels": label}}
        job["spec"] |= {"suspend": False, "parallelism": 2}
        cluster.server.changed(job)

    cluster.clock.at(1, admit)
    cluster.clock.at(1 + HOUR, lambda: cluster.server.condition(cluster.server.job("jobs"), "Complete"))
    cluster.run(indexed)
    [used] = cluster.uses
    assert (used.gpus, used.gpu_hours) == (2, pytest.approx(2, abs=0.01))


def test_gpu_hours_of_an_indexed_job_admitted_twice_count_the_pods_of_each_time(cluster: Cluster) -> None:
    indexed = replace(JOB, indexed=True, spec=SPEC.model_copy(update={"nodes": 8, "resources": Resources(gpus=1)}))

    def change(**spec: Any) -> None:
        job = cluster.server.job("jobs")
        label = {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}
        cluster.server.objects["workloads", "w"] = {"metadata": {"name": "w", "labels": label}}
        job["spec"] |= spec
        cluster.server.changed(job)

    cluster.clock.at(1, lambda: change(suspend=False, parallelism=8))
    cluster.clock.at(1 + HOUR, lambda: change(suspend=True, parallelism=8))
    cluster.clock.at(1 + 2 * HOUR, lambda: change(suspend=False, parallelism=2))
    cluster.clock.at(1 + 3 * HOUR, lambda: cluster.server.condition(cluster.server.job("jobs"), "Complete"))
    cluster.run(indexed)
    [used] = cluster.uses
    assert used.gpu_hours == pytest.approx(10, abs=0.1)


def test_different_job_with_the_same_name_is_left_alone(cluster: Cluster) -> None:
    other = replace(JOB, spec=SPEC.model_copy(update={"nodes": 3}))
    assert other.name == JOB.name
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(2, cluster.succeed)
    cluster.run(other)
    before = dict(cluster.server.objects)
    with pytest.raises(UserError, match=r"already exists with another specification.*kubectl -n team-a delete"):
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
        cluster.clock.at(cluster.clock.time() - 1_800_000_000 + seconds, action)
    cluster.run()
    assert cluster.server.job()["metadata"]["uid"] != first
    assert "an earlier attempt had failed; created again" in states(cluster)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_api_server_unavailable_for_a_minute_is_waited_for(cluster: Cluster, status: int) -> None:
    away = range(30, 90)
    began = cluster.clock.time()

    def fault(method: str, path: str) -> tuple[int, str] | None:
        return (status, "ServiceUnavailable") if int(cluster.clock.time() - began) in away else None

    cluster.server.fault = fault
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(200, cluster.succeed)
    cluster.run()
    assert states(cluster)[-1] == "Succeeded"
    assert any("waiting for it" in line for line in cluster.told)


def test_job_created_despite_a_lost_answer_is_adopted(cluster: Cluster) -> None:
    """The create may have gone through though its answer was lost: then the job is adopted, not made twice."""
    first = True

    def fault(method: str, path: str) -> tuple[int, str] | None:
        nonlocal first
        if method == "POST" and first:
            first = False
            cluster.server.fault = lambda method, path: None
            cluster.server.answer("POST", path, {"fieldValidation": "Strict"}, pytorchjob.render(JOB))
            return 500, "InternalError"
        return None

    cluster.server.fault = fault
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(20, cluster.succeed)
    cluster.run()
    assert "adopted" in states(cluster)
    assert cluster.jobs == [JOB.name]


UNAUTHORIZED = 'pytorchjobs.kubeflow.org is forbidden: User "launcher" cannot create resource "pytorchjobs"'


@pytest.mark.parametrize("seconds", [40, 90])
def test_forbidden_request_is_repeated_for_a_minute(cluster: Cluster, seconds: int) -> None:
    """A restarted API server refuses everybody until it has read the roles."""
    began = cluster.clock.time()
    answer = cluster.server.answer

    def restarted(method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if cluster.clock.time() - began < seconds:
            return 403, {"kind": "Status", "reason": "Forbidden", "message": UNAUTHORIZED}
        return answer(method, path, query, body)

    cluster.server.answer = restarted  # type: ignore[method-assign]
    cluster.clock.at(seconds + 20, cluster.admit)
    cluster.clock.at(seconds + 30, cluster.succeed)
    if seconds > 60:
        with pytest.raises(UserError, match=r'HTTP 403: .*User "launcher" cannot create'):
            cluster.run()
        assert cluster.clock.time() - began == 60
    else:
        cluster.run()
        assert states(cluster)[-1] == "Succeeded"


def test_job_that_admission_refuses_fails_at_once(cluster: Cluster) -> None:
    refused = recording("pytorchjob-refused.json")
    answer = cluster.server.answer

    def admission(method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        return (403, refused) if method == "POST" else answer(method, path, query, body)

    cluster.server.answer = admission  # type: ignore[method-assign]
    began = cluster.clock.time()
    with pytest.raises(UserError, match="HTTP 403: .*pods of runs use only the Secret run-access"):
        cluster.run()
    assert cluster.clock.time() == began


def test_state_is_reported_when_it_changes(cluster: Cluster) -> None:
    """Changes come by the watch; between them the launcher makes no requests but its heartbeat."""
    times: dict[str, float] = {}
    began = cluster.clock.time()
    cluster.told = _Told(lambda line: times.setdefault(line.split(" ")[1], cluster.clock.time() - began))
    cluster.clock.at(3, cluster.admit)
    cluster.clock.at(1234, cluster.start)
    cluster.clock.at(2345, cluster.succeed)
    cluster.run()
    assert (times["Admitted"], times["Running"], times["Succeeded"]) == (3, 1234, 2345)
    quiet = [method for method, _ in cluster.server.requests if method != "PATCH"]
    assert len(quiet) < 20 + 2345 / 60  # lists, watches, and the warnings of a job without pods


class _Told(list[str]):
    """Reported lines; each is also passed to a function."""

    def __init__(self, see: Callable[[str], object]) -> None:
        super().__init__()
        self._see = see

    def append(self, line: str) -> None:
        super().append(line)
        self._see(line)


def test_deleted_job_is_reported(cluster: Cluster) -> None:
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(30, lambda: cluster.server.objects.clear())
    with pytest.raises(UserError, match="was deleted while it was followed"):
        cluster.run()


def test_undeletable_earlier_job_is_reported_with_its_finalizers(cluster: Cluster) -> None:
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(2, cluster.start)
    cluster.clock.at(3, lambda: cluster.fail({"exitCode": 1}))
    with pytest.raises(UserError, match="exit code 1"):
        cluster.run()
    failed = cluster.server.job()
    failed["metadata"]["finalizers"] = ["foregroundDeletion", "example.com/audit"]
    began = cluster.clock.time()
    with pytest.raises(UserError) as caught:
        cluster.run()
    assert "foregroundDeletion, example.com/audit" in str(caught.value)
    assert "kubectl -n team-a describe pytorchjob" in str(caught.value)
    assert 5 * MINUTE < cluster.clock.time() - began < 15 * MINUTE
    told = [line for line in cluster.told if "is being deleted" in line]
    assert len(told) == 1
    assert cluster.jobs == [JOB.name]

    # The finalizer is removed after all: then the job is created again.
    now = cluster.clock.time() - 1_800_000_000
    cluster.clock.at(now + 60, lambda: cluster.server.release("pytorchjobs", JOB.name))
    for seconds, action in ((75, cluster.admit), (76, cluster.start), (90, cluster.succeed)):
        cluster.clock.at(now + seconds, action)
    cluster.run()
    assert states(cluster)[-1] == "Succeeded"
    assert cluster.server.job()["metadata"]["uid"] != failed["metadata"]["uid"]


@pytest.mark.parametrize(
    ("lacks", "said"),
    [("localqueues", "no Kueue that serves kueue.x-k8s.io/v1beta2"), (None, "there is no LocalQueue nobodys")],
)
def test_job_for_a_missing_queue_fails_at_once(cluster: Cluster, lacks: str | None, said: str) -> None:
    cluster.server.unknown |= {lacks, "workloads"} if lacks else set()
    began = cluster.clock.time()
    with pytest.raises(UserError, match=rf"cannot be queued: .*{said}.*job\.queue"):
        cluster.run(replace(JOB, spec=SPEC.model_copy(update={"queue": "nobodys"})))
    assert cluster.clock.time() == began
    assert cluster.jobs == []


def test_forbidden_queue_lookup_does_not_stop_the_job(cluster: Cluster) -> None:
    cluster.server.fault = lambda method, path: (403, "Forbidden") if "/localqueues/" in path else None
    cluster.clock.at(71, cluster.admit)
    cluster.clock.at(80, cluster.start)
    cluster.clock.at(90, cluster.succeed)
    cluster.run()
    assert "no right to see whether LocalQueue team-a exists (the API server refuses: HTTP 403" in cluster.told[1]
    assert states(cluster)[-1] == "Succeeded"


def test_existing_job_is_followed_without_its_queue(cluster: Cluster) -> None:
    def kill() -> None:
        raise KeyboardInterrupt

    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(60, kill)
    with pytest.raises(KeyboardInterrupt):
        cluster.run()
    del cluster.server.objects["localqueues", "team-a"]
    cluster.clock.at(600, cluster.succeed)
    cluster.run()
    assert states(cluster)[-1] == "Succeeded"


def test_a_heartbeat_that_another_writer_came_before_is_written_again(cluster: Cluster) -> None:
    conflicts = iter([(409, "Conflict")])
    cluster.server.fault = lambda method, path: next(conflicts, None) if method == "PATCH" else None
    cluster.clock.at(1, cluster.admit)
    cluster.clock.at(10, cluster.start)
    cluster.clock.at(20, cluster.succeed)
    cluster.run()
    assert states(cluster)[-1] == "Succeeded"
    assert "hopforge.dev/heartbeat" in cluster.server.job()["metadata"]["annotations"]
