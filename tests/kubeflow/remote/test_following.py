"""A run on a cluster looked at, followed, read and ended: against servers that speak the real protocols."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from kubeflow.training import TrainingClient
from kubernetes.client import Configuration

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.following import Container, cancel, containers, follow, read_log
from platform_sdk.kubeflow.remote.runs import Jobs, Run, RunState, changes, find_run
from platform_sdk.kubeflow.remote.submit import submit
from platform_sdk.kubeflow.training_job.description import Description
from platform_sdk.kubeflow.training_job.launcher import BACKENDS, api_for
from tests.kubeflow.remote.kfp_server import KfpServer
from tests.kubeflow.training_job.api_server import ApiServer

PLACE = read_as(ClusterSpec, Path(__file__).parents[3] / "pipelines/cluster.yaml")


class Cluster:
    """A run on both servers, moved by the test."""

    def __init__(self, kfp: KfpServer, kubernetes: ApiServer, recipe: Path) -> None:
        self.kfp, self.kubernetes, self.recipe = kfp, kubernetes, recipe
        self.server = Server(kfp.url, sleep=lambda seconds: None)
        configuration = Configuration(host=kubernetes.url)
        configuration.retries = False
        self.connection = TrainingClient(client_configuration=configuration)
        self.jobs = Jobs("team-a", connection=self.connection)
        self.run = self.start()

    def start(self) -> Run:
        made = submit(self.server, self.recipe, (), PLACE, namespace="team-a")
        return find_run(self.server, made.run_id, "team-a")

    def job(self, run: Run, task: str, backend: str = "pytorchjob") -> str:
        """Make the job that a step of the run makes; its name."""
        job = Description(
            run=f"small-{run.run_id}", step=f"train-{task}", namespace="team-a", module="m", spec_file="/w/spec.json",
            spec=PLACE.job.model_copy(update={"backend": backend, "queue": "hopforge"}), workspace=PLACE.workspace,
            environment=(("HOPFORGE_TASK", task),),
        )  # fmt: skip
        api_for(job, self.connection).create(BACKENDS[backend].render(job))
        return job.name

    def pod(self, name: str, labels: dict[str, str], log: str | None = None) -> None:
        container = {"name": "pytorch"} if "job-name" in str(labels) else {"name": "main"}
        pod = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]},
               "status": {"phase": "Running"}}  # fmt: skip
        self.kubernetes.pods[name] = pod
        if log is not None:
            self.kubernetes.logs[name] = log


@pytest.fixture
def cluster(kfp: KfpServer, kubernetes: ApiServer, recipe: Path) -> Cluster:
    return Cluster(kfp, kubernetes, recipe)


def test_a_run_is_found_by_what_people_have_of_it(cluster: Cluster) -> None:
    run = cluster.run
    assert run.steps == ("begin", "make", "use-01", "use-02", "last", "end")
    assert run.namespace == "team-a"
    assert run.label == f"small-{run.run_id}"
    assert find_run(cluster.server, run.run_id[:8], "team-a") == run
    assert find_run(cluster.server, run.name, "team-a") == run
    with pytest.raises(UserError, match="no run 'other' in team-a"):
        find_run(cluster.server, "other", "team-a")
    cluster.start()
    for one in cluster.kfp.runs:
        one["display_name"] = "twins"
    with pytest.raises(UserError, match="2 runs are called 'twins'") as caught:
        find_run(cluster.server, "twins", "team-a")
    assert run.run_id in str(caught.value)


def test_a_long_name_leaves_a_label_that_finds_the_jobs(cluster: Cluster) -> None:
    text = cluster.recipe.read_text().replace("name: small", f"name: {'long' * 12}")
    cluster.recipe.write_text(text)
    one, other = cluster.start(), cluster.start()
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
    kfp, kubernetes = cluster.kfp, cluster.kubernetes
    name = ""

    def training() -> None:
        nonlocal name
        kfp.run()["state"] = "RUNNING"
        kfp.steps(begin="SUCCEEDED", make="RUNNING")
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
        kfp.steps(begin="SUCCEEDED", make="SUCCEEDED")
        kfp.run()["state"] = "SUCCEEDED"

    end, told = followed(cluster, training, lambda: None, admitted, done)
    job = {"step": "make", "job": name}
    assert told == [
        {"run": cluster.run.run_id, "name": cluster.run.name, "state": "PENDING", "error": ""},
        {"step": "begin", "state": "SUCCEEDED"},
        {"step": "make", "state": "RUNNING"},
        job | {"state": "Queued", "reason": "Pending: needs 8 more GPUs"},
        {"run": cluster.run.run_id, "name": cluster.run.name, "state": "RUNNING", "error": ""},
        job | {"state": "Running", "reason": "1 of 1 pods run"},
        {"step": "make", "state": "SUCCEEDED"},
        job | {"state": "Succeeded", "reason": ""},
        {"run": cluster.run.run_id, "name": cluster.run.name, "state": "SUCCEEDED", "error": ""},
    ]
    assert [(step.name, step.seconds) for step in end.steps][:3] == [("begin", 90.0), ("make", 90.0), ("use-01", None)]


def test_servers_that_are_away_are_waited_for(cluster: Cluster) -> None:
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
    found = list(containers(cluster.jobs, run, None))
    assert {(one.step, one.name) for one in found} == {("make", "main"), ("make", "pytorch"), ("last", "pytorch")}
    assert list(containers(cluster.jobs, run, "last")) == [one for one in found if one.step == "last"]
    [trainer] = [one for one in found if (one.step, one.name) == ("make", "pytorch")]
    assert list(read_log(cluster.jobs, trainer, 100, follow=True)) == ["make", "löss 1"]
    assert list(read_log(cluster.jobs, trainer, 1, follow=False)) == ["löss 1"]
    assert list(read_log(cluster.jobs, Container("make", "gone", "main"), 9, follow=False)) == []


def test_cancelling_leaves_nothing_of_the_run_and_all_of_others(cluster: Cluster) -> None:
    kfp, kubernetes = cluster.kfp, cluster.kubernetes
    kfp.run()["state"] = "RUNNING"
    names = [cluster.job(cluster.run, "use-01"), cluster.job(cluster.run, "use-02", "trainjob")]
    foreign = cluster.job(cluster.start(), "use-01")
    told: list[str] = []
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        assert len(kubernetes.objects) == 3  # the jobs go when the run has ended
        looks += 1
        kfp.runs[0]["state"] = "CANCELED" if looks == 2 else "CANCELING"

    deleted = cancel(cluster.server, cluster.run, cluster.jobs, told.append, sleep)
    assert [one.split()[1] for one in deleted] == names
    assert told == [f"run {cluster.run.name}: CANCELED"]
    assert [name for _, name in kubernetes.objects] == [foreign]
    assert cancel(cluster.server, cluster.run, cluster.jobs, told.append, sleep) == []
    assert told[1:] == [f"run {cluster.run.name} has ended before: CANCELED"]


def test_a_run_that_ends_while_it_is_being_ended(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(method: str, path: str) -> None:
        if path.endswith(":terminate"):
            cluster.kfp.run()["state"] = "SUCCEEDED"

    cluster.kfp.fault = ends
    told: list[str] = []
    cancel(cluster.server, cluster.run, cluster.jobs, told.append, lambda seconds: None)
    assert told == [f"run {cluster.run.name}: SUCCEEDED"]


def test_what_was_not_deleted_is_said(cluster: Cluster) -> None:
    cluster.kfp.run()["state"] = "FAILED"
    cluster.job(cluster.run, "make")
    cluster.kubernetes.fault = lambda method, path: (500, "etcd") if method == "DELETE" else None
    with pytest.raises(UserError, match="its jobs may still be there: repeat the command"):
        cancel(cluster.server, cluster.run, cluster.jobs, lambda text: None, lambda seconds: None)


def test_other_peoples_pipelines_can_be_watched_too(cluster: Cluster) -> None:
    """A run that hopforge did not submit has steps, and no jobs of which anybody knows."""
    dag = {"dag": {"tasks": {"b": {"componentRef": {"name": "c"}, "dependentTasks": ["a"]},
                             "a": {"componentRef": {"name": "c"}}}}}  # fmt: skip
    spec: dict[str, Any] = {"root": dag, "components": {"c": {"executorLabel": "e"}}}
    cluster.kfp.run()["pipeline_spec"] = spec
    run = find_run(cluster.server, cluster.run.run_id, "team-a")
    assert (run.steps, run.label) == (("a", "b"), "")
    assert list(cluster.jobs.states(run)) == []
