"""A run on a cluster looked at, followed, read and ended: against servers that speak the real protocols."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.following import cancel, follow
from platform_sdk.kubeflow.remote.runs import find_run
from platform_sdk.kubeflow.remote.state import RunState, changes, look
from tests.kubeflow.remote.cluster import Cluster
from tests.kubeflow.remote.kfp_server import LOGIN_PAGE, TO_LOGIN


def test_run_is_found_by_name_or_prefix_of_its_id(cluster: Cluster) -> None:
    run = cluster.run
    assert run.step_names == ("begin", "make", "iterations", "last", "end")
    assert [step.name for step in run.steps if step.at_exit] == ["end"]
    assert run.namespace == "team-a"
    assert run.label == f"small-{run.run_id}"
    assert find_run(cluster.server, run.run_id[:6], "team-a") == run
    assert find_run(cluster.server, run.name, "team-a") == run
    with pytest.raises(UserError, match="no run 'other' in team-a"):
        find_run(cluster.server, "other", "team-a")
    cluster.start()
    for one in cluster.kfp.runs:
        one["display_name"] = "twins"
        one["run_id"] = "abcdef" + one["run_id"][6:]
    for text in ("twins", "abcdef"):
        with pytest.raises(UserError, match=f"2 runs match '{text}'; give more of the id") as caught:
            find_run(cluster.server, text, "team-a")
        assert f"abcdef{run.run_id[6:]}" in str(caught.value)


def test_run_of_another_pipeline_with_a_task_called_begin_has_no_jobs(cluster: Cluster) -> None:
    root = {"dag": {"tasks": {"begin": {"componentRef": {"name": "comp-begin"}, "taskInfo": {"name": "begin"}}}}}
    foreign = {"pipelineInfo": {"name": "theirs"}, "root": root, "components": {"comp-begin": {"executorLabel": "e"}},
               "deploymentSpec": {"executors": {"e": {"container": {"image": "i"}}}}}  # fmt: skip
    made = cluster.kfp.start(foreign, "theirs-1", "team-a")
    assert find_run(cluster.server, made["run_id"], "team-a").label == ""


@pytest.mark.parametrize("text", ["", "d", "ddfce", "-", "make"])
def test_run_is_not_found_by_a_short_prefix_of_its_id(cluster: Cluster, text: str) -> None:
    cluster.kfp.run()["run_id"] = "ddfce45d-ad8d-5fd2-9a00-43ebb0513d67"
    with pytest.raises(UserError, match="its whole name, its id, or at least the first 6 characters"):
        find_run(cluster.server, text, "team-a")


def test_a_name_is_found_among_many_without_reading_them_all(cluster: Cluster) -> None:
    kfp = cluster.kfp
    kfp.runs += [kfp.run() | {"run_id": f"{number:08d}", "display_name": f"r{number}"} for number in range(250)]
    kfp.runs[0]["display_name"] = "00000007"  # as another's id begins, too: the name counts
    kfp.requests.clear()
    assert find_run(cluster.server, "00000007", "team-a").run_id == cluster.run.run_id
    assert [path for _, path in kfp.requests].count("/apis/v2beta1/runs") == 1


def test_a_long_name_leaves_a_label_that_finds_the_jobs(cluster: Cluster) -> None:
    one, other = cluster.start("long" * 12), cluster.start("long" * 12)
    for run in (one, other):
        assert re.fullmatch(r"(long){12}-[0-9a-f-]{14}", run.label)  # 63 characters
    assert one.label != other.label


def followed(cluster: Cluster, *events: Callable[[], None]) -> tuple[RunState, list[dict[str, str]]]:
    """The last state, and the changes seen while events happen one after another."""
    told: list[dict[str, str]] = []
    last: RunState | None = None
    rest = list(events)

    def show(state: RunState) -> None:
        nonlocal last
        told.extend(changes(last, state))
        last = state

    def sleep(seconds: float) -> None:
        rest.pop(0)()

    end = follow(cluster.server, cluster.run, cluster.jobs, show, sleep)
    assert rest == []
    return end, [{key: value for key, value in one.items() if key != "time"} for one in told]


def test_a_run_is_followed_to_its_end(cluster: Cluster) -> None:
    execution, kubernetes = cluster.execution, cluster.kubernetes
    name = ""

    def training() -> None:
        nonlocal name
        execution.step("begin")
        execution.begin("make")
        name = cluster.job(cluster.run, "make")
        uid = kubernetes.job()["metadata"]["uid"]
        workload = {"metadata": {"name": "w", "labels": {"kueue.x-k8s.io/job-uid": uid}}}
        kubernetes.objects["workloads", "w"] = workload
        kubernetes.condition(workload, "QuotaReserved", "False", "Pending", "needs 8 more GPUs")

    def admitted() -> None:
        kubernetes.job()["spec"]["runPolicy"]["suspend"] = False
        cluster.pod("p-0", {"training.kubeflow.org/job-name": name})

    def done() -> None:
        kubernetes.condition(kubernetes.job(), "Succeeded")
        execution.end("make")
        for step in ("iterations", "last", "end"):
            execution.step(step)
        execution.state("SUCCEEDED")

    end, told = followed(cluster, training, lambda: None, admitted, done)
    job = {"step": "make", "part": "train-make", "job": name}
    run = {"run": cluster.run.run_id, "name": cluster.run.name, "error": ""}

    def step(name: str, state: str) -> dict[str, str]:
        return {"step": name, "state": state, "reason": ""}

    assert told == [
        run | {"state": "PENDING"},
        step("begin", "SUCCEEDED"),
        step("make", "RUNNING"),
        job | {"state": "Queued", "reason": "Pending: needs 8 more GPUs"},
        run | {"state": "RUNNING"},
        job | {"state": "Running", "reason": "1 of 1 pods run"},
        *(step(name, "SUCCEEDED") for name in ("make", "iterations", "last", "end")),
        job | {"state": "Succeeded", "reason": ""},
        run | {"state": "SUCCEEDED"},
    ]
    assert [(step.name, step.seconds) for step in end.steps][:2] == [("begin", 30.0), ("make", 30.0)]


def test_unavailable_servers_are_waited_for(cluster: Cluster) -> None:
    cluster.execution.begin("begin")

    def away() -> None:
        cluster.kfp.fault = lambda method, path: 503
        cluster.kubernetes.fault = lambda method, path: (503, "away")

    def half() -> None:
        cluster.kfp.fault = lambda method, path: None

    def back() -> None:
        cluster.kubernetes.fault = lambda method, path: None
        cluster.kfp.run().update(state="FAILED", error={"message": "the step make failed"})

    end, told = followed(cluster, away, half, back)
    assert (end.state, end.error, end.unseen) == ("FAILED", "the step make failed", "")
    assert ["503" in one.get("unseen", "") for one in told].count(True) == 2
    assert [one["state"] for one in told if "step" in one] == ["RUNNING"]  # not lost while the cluster was away


def test_ended_jobs_are_not_requested_again(cluster: Cluster) -> None:
    kubernetes = cluster.kubernetes
    for task in ("make", "iterations", "last"):
        cluster.job(cluster.run, task)
    done, failed, running = (item for (plural, _), item in sorted(kubernetes.objects.items()) if plural != "workflows")
    kubernetes.condition(done, "Succeeded")
    kubernetes.condition(failed, "Failed", reason="OOM")
    running["spec"]["runPolicy"]["suspend"] = False
    kubernetes.requests.clear()
    states, _ = cluster.jobs.states(cluster.run.label)
    assert sorted(job.state for job in states) == ["Admitted", "Failed", "Succeeded"]
    assert sorted(path.rpartition("/")[2] for _, path in kubernetes.requests) == [
        "jobs",
        "pods",
        "pytorchjobs",
        "trainjobs",
    ]


def test_forbidden_resources_do_not_hide_visible_jobs(cluster: Cluster) -> None:
    kubernetes = cluster.kubernetes
    cluster.job(cluster.run, "make")
    kubernetes.forbidden = {"workloads", "trainjobs"}
    states, unseen = cluster.jobs.states(cluster.run.label)
    [job] = states
    assert (job.step, job.state) == ("make", "Unknown")
    assert "why it waits is not known" in job.reason
    assert "TrainJobs are not shown" in unseen
    assert 'cannot list resource "workloads"' in unseen


def test_forbidden_kind_that_the_cluster_lacks_is_ignored(cluster: Cluster) -> None:
    """An account without a right to a kind is refused before the cluster is asked whether it has the kind."""
    kubernetes = cluster.kubernetes
    kubernetes.forbidden = kubernetes.unknown = {"trainjobs"}
    name = cluster.job(cluster.run, "make")
    cluster.kfp.run()["state"] = "FAILED"
    for _ in range(2):
        states, unseen = cluster.jobs.states(cluster.run.label)
        assert ([job.name for job in states], unseen) == ([name], "")
    assert cancel(cluster.server, cluster.run, cluster.jobs, lambda text: None) == [f"PyTorchJob {name}"]
    assert {plural for plural, _ in kubernetes.objects} == {"workflows"}
    assert sum("trainjobs" in path for _, path in kubernetes.requests) == 1  # it does not come in between


@pytest.mark.parametrize("page", [LOGIN_PAGE, TO_LOGIN])
def test_expired_session_is_not_taken_for_a_run_state(cluster: Cluster, page: str) -> None:
    run = cluster.kfp.run()
    run["state"] = "RUNNING"
    cluster.job(cluster.run, "make")
    shown: list[RunState] = []

    def ends(seconds: float) -> None:
        cluster.kfp.fault = lambda method, path: page

    with pytest.raises(UserError, match="perhaps a login page, because a session has expired"):
        follow(cluster.server, cluster.run, cluster.jobs, shown.append, ends)
    assert [state.state for state in shown] == ["RUNNING"]
    for only in ("", ":terminate"):  # at any call, and at the one that ends the run
        cluster.kfp.fault = lambda method, path, only=only: page if path.endswith(only) else None  # type: ignore[misc]
        with pytest.raises(UserError, match="a login page"):
            cancel(cluster.server, cluster.run, cluster.jobs, lambda text: None, ends)
        assert run["state"] == "RUNNING"
        assert len(cluster.kubernetes.objects) == 2


def test_cancelling_leaves_nothing_of_the_run_and_all_of_others(cluster: Cluster) -> None:
    kubernetes, execution = cluster.kubernetes, cluster.execution
    execution.step("begin")
    execution.begin("make")
    names = [cluster.job(cluster.run, "make"), cluster.job(cluster.run, "last", "trainjob")]
    foreign = cluster.job(cluster.start(), "make")
    told: list[str] = []
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        assert {"pytorchjobs", "trainjobs"} <= {plural for plural, _ in kubernetes.objects}  # jobs go when it has ended
        looks += 1
        if looks == 2:
            execution.cancel()

    deleted = cancel(cluster.server, cluster.run, cluster.jobs, told.append, sleep)
    assert [one.split()[1] for one in deleted] == names
    assert told == [f"run {cluster.run.name}: CANCELED"]  # which Kubeflow Pipelines ends as FAILED
    assert [name for plural, name in kubernetes.objects if plural.endswith("jobs")] == [foreign]
    assert cancel(cluster.server, cluster.run, cluster.jobs, told.append, sleep) == []
    assert told[1:] == [f"run {cluster.run.name} has ended before: CANCELED"]
    state = look(cluster.server, cluster.run, cluster.jobs)
    assert {step.name: step.state for step in state.steps}["make"] == "CANCELED"


def test_cancel_of_a_run_that_just_succeeded_reports_success(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(method: str, path: str) -> None:
        if path.endswith(":terminate"):
            cluster.execution.state("SUCCEEDED")

    cluster.kfp.fault = ends
    told: list[str] = []
    cancel(cluster.server, cluster.run, cluster.jobs, told.append, lambda seconds: None)
    assert told == [f"run {cluster.run.name}: SUCCEEDED"]


def test_cancel_names_undeleted_jobs_and_deletes_the_rest(cluster: Cluster) -> None:
    kubernetes = cluster.kubernetes
    cluster.kfp.run()["state"] = "FAILED"
    gone, stays = cluster.job(cluster.run, "make"), cluster.job(cluster.run, "last")
    kubernetes.forbidden = {"trainjobs"}
    kubernetes.fault = lambda method, path: (500, "etcd") if (method, path[-8:]) == ("DELETE", stays[-8:]) else None
    with pytest.raises(UserError) as caught:
        cancel(cluster.server, cluster.run, cluster.jobs, lambda text: None, lambda seconds: None)
    head, *rest = str(caught.value).splitlines()
    assert "may be left in team-a; repeat the command" in head
    assert [line.split(":")[0].strip() for line in rest] == [f"PyTorchJob {stays}", "TrainJobs", "deleted"]
    assert rest[-1] == f"deleted: PyTorchJob {gone}"
    assert [name for plural, name in kubernetes.objects if plural.endswith("jobs")] == [stays]


def test_slowly_ending_run_is_not_reported_as_ended(cluster: Cluster) -> None:
    cluster.kfp.run()["state"] = "RUNNING"
    told: list[str] = []
    cancel(cluster.server, cluster.run, cluster.jobs, told.append, lambda seconds: None)
    assert told[0].startswith(f"run {cluster.run.name}: CANCELING still, after 60 s")


def test_foreign_pipelines_can_be_watched(cluster: Cluster) -> None:
    """A run that hopforge did not submit has steps, and no known jobs."""
    dag = {"dag": {"tasks": {"b": {"componentRef": {"name": "c"}, "dependentTasks": ["a"]},
                             "a": {"componentRef": {"name": "c"}}}}}  # fmt: skip
    spec: dict[str, Any] = {"root": dag, "components": {"c": {"executorLabel": "e"}}}
    cluster.kfp.run()["pipeline_spec"] = spec
    run = find_run(cluster.server, cluster.run.run_id, "team-a")
    assert (run.step_names, run.label) == (("a", "b"), "")
    assert cluster.jobs.states(run.label) == ((), "")
