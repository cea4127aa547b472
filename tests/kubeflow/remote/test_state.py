"""States of runs and steps, by pods, by the run's history, and by the recorded answers of a real server."""

from __future__ import annotations

import pytest

from platform_sdk.kubeflow.remote.following import cancel
from platform_sdk.kubeflow.remote.runs import Run, Step
from platform_sdk.kubeflow.remote.state import changes, look
from platform_sdk.kubeflow.training_job.reaper import reap
from tests.kubeflow.remote.cluster import Cluster
from tests.kubeflow.remote.recorded import recorded

PRODUCT = ("begin", "policy", "corpus", "index", "sample-warmup", "score-warmup", "train-warmup", "eval-start",
           "eval-final", "report")  # fmt: skip


def steps(cluster: Cluster, run: Run | None = None, *, pods: bool = True) -> dict[str, str]:
    state = look(cluster.server, run or cluster.run, cluster.jobs if pods else None)
    return {step.name: step.state for step in state.steps}


def chain(*names: str) -> tuple[Step, ...]:
    """Steps of which each waits for the one before, and an exit task."""
    inner = [Step(name, frozenset(names[:number][-1:])) for number, name in enumerate(names)]
    return (*inner, Step("end", frozenset(names), at_exit=True))


@pytest.mark.parametrize(
    ("name", "state", "expected"),
    [
        ("run-get-PENDING-product", "PENDING", {"begin": "PENDING", "end": "PENDING"}),
        ("run-get-RUNNING-product", "RUNNING", {"begin": "SUCCEEDED", "corpus": "RUNNING", "index": "PENDING"}),
        ("run-get-CANCELING", "CANCELING", {"begin": "CANCELED", "corpus": "PENDING", "end": "PENDING"}),
        ("run-get-CANCELED", "CANCELED", {"begin": "CANCELED", "corpus": "PENDING", "end": "SUCCEEDED"}),
        ("run-get-after-hopforge-cancel", "CANCELED", {"corpus": "SUCCEEDED", "eval-start": "CANCELED"}),
        ("run-get-FAILED-product", "FAILED", {"sample-warmup": "FAILED", "train-warmup": "PENDING"}),
        # Its details froze before the last three steps: they have no state there.
        ("run-get-SUCCEEDED-product", "SUCCEEDED", dict.fromkeys((*PRODUCT, "end"), "SUCCEEDED")),
    ],
)
def test_recorded_runs_without_pods_are_shown_as_they_were(
    cluster: Cluster, name: str, state: str, expected: dict[str, str]
) -> None:
    answer = recorded(name)
    cluster.kfp.runs.append(answer)
    run = Run(answer["run_id"], "recorded", "team-a", chain(*PRODUCT), "")
    seen = look(cluster.server, run, None)
    assert seen.state == state
    assert expected.items() <= {step.name: step.state for step in seen.steps}.items()
    assert all(step.seconds is None or 0 <= step.seconds < 600 for step in seen.steps)  # no times of 1970 and 0001


def test_steps_are_followed_by_their_pods_when_the_details_freeze(cluster: Cluster) -> None:
    names = [f"step-{number:02d}" for number in range(1, 16)]
    run = cluster.start(steps=names)
    execution = cluster.kfp.executions[run.run_id]
    for step in ("begin", *names[:13]):
        execution.step(step)
    execution.begin(names[13])
    assert execution.frozen
    assert steps(cluster, run) == {
        "begin": "SUCCEEDED", **dict.fromkeys(names[:13], "SUCCEEDED"), names[13]: "RUNNING", names[14]: "PENDING",
        "end": "PENDING",
    }  # fmt: skip
    assert steps(cluster, run, pods=False)[names[13]] == "PENDING"  # as the details alone have it
    cluster.kubernetes.forbidden = {"pods"}
    unseen = look(cluster.server, run, cluster.jobs).unseen
    assert "steps are shown as Kubeflow Pipelines lists them, which may stop after about ten steps" in unseen


def test_cached_steps_without_pods_have_succeeded(cluster: Cluster) -> None:
    cluster.execution.step("begin")
    cluster.execution.cached("make")
    cluster.execution.begin("iterations")
    assert steps(cluster)["make"] == "SUCCEEDED"
    cluster.kfp.run()["run_details"] = None  # not listed at all, but a later step runs
    assert steps(cluster) == {
        "begin": "SUCCEEDED", "make": "SUCCEEDED", "iterations": "RUNNING", "last": "PENDING", "end": "PENDING"
    }  # fmt: skip


def test_exit_task_of_a_retried_run_is_shown_after_the_other_steps(cluster: Cluster) -> None:
    execution = cluster.execution
    execution.step("begin")
    execution.step("make", "FAILED", "HTTP 422: volumeMounts[1]: Duplicate value")
    execution.step("end")
    execution.state("FAILED")
    execution.omit("iterations", "last")
    before = look(cluster.server, cluster.run, cluster.jobs)
    assert (before.state, before.steps[-1].state) == ("FAILED", "SUCCEEDED")
    cluster.server.ask(cluster.server.api.runs.run_service_retry_run, cluster.run.run_id)
    first = look(cluster.server, cluster.run, cluster.jobs)
    assert [record for record in changes(None, first) if "step" in record][1:] == []  # only begin, which is kept
    for pods in (True, False):
        assert steps(cluster, pods=pods)["end"] == "PENDING"
    for step in ("make", "iterations", "last"):
        execution.step(step)
    execution.state("SUCCEEDED")  # the exit task is not repeated
    last = look(cluster.server, cluster.run, cluster.jobs)
    order = [record.get("step", "run") for record in changes(first, last)]
    assert order == ["make", "iterations", "last", "end", "run"]


def test_failed_step_gives_its_reason_in_one_line(cluster: Cluster) -> None:
    execution = cluster.execution
    execution.begin("begin", {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                              "message": "0/1 nodes are available"}]})  # fmt: skip
    [begin, *_] = look(cluster.server, cluster.run, cluster.jobs).steps
    assert (begin.state, begin.reason) == ("PENDING", "Unschedulable: 0/1 nodes are available")
    execution.end("begin")
    execution.step("make", "FAILED", "selection.attempts must be at most 16, but is 20\nin a second line")
    execution.begin("last")
    execution.end("last", "FAILED", reason="OOMKilled", exitCode=137)
    reasons = {step.name: step.reason for step in look(cluster.server, cluster.run, cluster.jobs).steps if step.reason}
    assert reasons == {
        "make": "selection.attempts must be at most 16, but is 20",
        "last": "out of memory (OOMKilled): raise launcher.memory in the cluster's file",
    }


def test_jobs_of_one_step_are_listed_in_the_order_of_their_creation(cluster: Cluster) -> None:
    cluster.execution.step("begin")
    cluster.execution.begin("iterations")
    for number, part in enumerate(("train-iteration-01", "sample-iteration-02", "train-iteration-02")):
        cluster.job(cluster.run, "iterations", part=part)
        newest = list(cluster.kubernetes.objects.values())[-1]
        newest["metadata"]["creationTimestamp"] = f"2027-01-15T08:0{number}:00Z"
    jobs = look(cluster.server, cluster.run, cluster.jobs).jobs
    assert [(job.step, job.part) for job in jobs] == [
        ("iterations", "train-iteration-01"),
        ("iterations", "sample-iteration-02"),
        ("iterations", "train-iteration-02"),
    ]


def test_two_runs_of_one_recipe_have_their_own_directories_and_jobs(cluster: Cluster) -> None:
    runs = [cluster.start(seed=seed) for seed in (1, 2)]
    begun = [cluster.kfp.inputs(cluster.kfp.executions[run.run_id].run, "begin") for run in runs]
    directories = [f"{one['workspace']}/runs/{one['run_name']}-{one['run_id']}" for one in begun]
    assert directories == [f"/workspace/runs/small-{run.run_id}" for run in runs]
    assert [one["seed"] for one in begun] == [1, 2]
    names = []
    for run in runs:
        cluster.kfp.executions[run.run_id].step("begin")
        cluster.kfp.executions[run.run_id].begin("make")
        names.append(cluster.job(run, "make"))
    for run, name in zip(runs, names, strict=True):
        state = look(cluster.server, run, cluster.jobs)
        assert [job.name for job in state.jobs] == [name]
        assert steps(cluster, run)["make"] == "RUNNING"
    assert cancel(cluster.server, runs[0], cluster.jobs, lambda text: None, lambda seconds: None) == [
        f"PyTorchJob {names[0]}"
    ]
    later = 1_800_000_000 + 10 * 365 * 86_400
    assert [one.name for one in reap("team-a", later, connection=cluster.connection)] == [names[1]]
