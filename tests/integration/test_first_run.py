"""``make test-cluster``: its parts, without a cluster, and the whole of it where ``HOPFORGE_TEST_HOST`` names one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("kubernetes", reason="the extra [cluster] is not installed")

from typer.main import get_command

from platform_sdk.cli import app
from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.kubeflow.training_job.description import Description
from tests.integration.first_run.__main__ import main, run
from tests.integration.first_run.checks import Check, Skipped, Unmet, run_checks, table
from tests.integration.first_run.commands import Cluster, Watched, is_running_job, parsed, pod_names
from tests.integration.first_run.jobs import JobChecks, Launcher
from tests.integration.scripted import HERE, SHIPPED, Scripted


def test_every_check_runs_whatever_becomes_of_the_others() -> None:
    def fails() -> str:
        raise Unmet("saw another | thing")

    def crashes() -> str:
        raise OSError("no route to host")

    def lacks() -> str:
        raise Skipped("the cluster has no Kueue")

    seconds = iter(range(0, 100, 3))
    acts = {"fails": fails, "crashes": crashes, "lacks": lacks, "works": lambda: "as meant"}
    reported: list[str] = []
    outcomes = run_checks(
        [Check(name, "as meant", act) for name, act in acts.items()],
        lambda outcome: reported.append(outcome.check.name),
        lambda: float(next(seconds)),
    )
    assert reported == list(acts)
    assert table(outcomes).splitlines() == [
        "| step    | expected | seen                      | seconds | ok      |",
        "|---------|----------|---------------------------|---------|---------|",
        "| fails   | as meant | saw another \\| thing      | 3       | NO      |",
        "| crashes | as meant | OSError: no route to host | 3       | NO      |",
        "| lacks   | as meant | the cluster has no Kueue  | 3       | skipped |",
        "| works   | as meant | as meant                  | 3       | yes     |",
        "",
        "1 ok, 2 not ok, 1 skipped",
    ]


def test_an_interrupted_run_skips_the_rest_and_still_has_a_table() -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    checks = [Check("first", "e", interrupted), Check("second", "e", lambda: "not reached")]
    assert [outcome.cells[-1] for outcome in run_checks(checks, lambda outcome: None)] == ["skipped", "skipped"]


@pytest.mark.parametrize("cluster", [HERE, replace(HERE, namespace=None, queue=None)], ids=["team", "single user"])
def test_hopforge_accepts_the_command_lines(cluster: Cluster) -> None:
    """Parsed by the commands themselves; none is executed."""
    lines = [
        cluster.upload("mygo"), cluster.submit(), cluster.submit("seed=1"), cluster.watch("r"), cluster.logs("r"),
        cluster.cancel("r"), cluster.gc(), cluster.gc("--dry-run"),
    ]  # fmt: skip
    group = get_command(app)
    for name, *words in lines:
        command = group.commands[name]  # type: ignore[attr-defined]
        context = command.make_context(name, list(words))
        assert context.params["namespace"] == (cluster.pods_namespace if name == "gc" else cluster.namespace)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("words", [HERE.pods("a=b,c=d"), HERE.delete_pod("p"), HERE.resources("kueue.x-k8s.io")])
def test_kubectl_accepts_the_command_lines(words: list[str]) -> None:
    """Let kubectl parse the options; with --help it does nothing else."""
    done = subprocess.run(["kubectl", *words, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert subprocess.run(["kubectl", *words, "--no-such", "--help"], capture_output=True, timeout=60).returncode != 0


def test_records_of_watch_give_states_steps_jobs_and_reasons() -> None:
    """Records in the form that ``hopforge watch --json`` prints; a run's own record has no step."""
    watched = Watched(
        [
            {"run": "id", "name": "n", "state": "RUNNING", "error": ""},
            {"step": "corpus", "state": "SUCCEEDED", "reason": ""},
            {"step": "iterations", "state": "RUNNING", "reason": ""},
            {"step": "iterations", "part": "train-iteration-01", "job": "a", "state": "Queued", "reason": "no quota"},
            {"step": "iterations", "part": "train-iteration-01", "job": "a", "state": "Running", "reason": ""},
            {"step": "iterations", "state": "FAILED", "reason": "pod deleted"},
            {"run": "id", "name": "n", "state": "FAILED", "error": "later"},
            {"unseen": "pods"},
        ]
    )
    assert (watched.state, watched.steps("SUCCEEDED"), watched.jobs) == ("FAILED", ["corpus"], ["a"])
    assert watched.reason() == "pod deleted"
    assert [is_running_job(record) for record in watched.records] == [False] * 4 + [True] + [False] * 3
    assert Watched().state == "unknown"


def test_pod_names_are_those_of_pods_in_the_phase() -> None:
    items = [{"metadata": {"name": n}, "status": {"phase": p}} for n, p in (("a", "Running"), ("b", "Pending"))]
    assert pod_names(json.dumps({"items": [*items, {"metadata": {"name": "c"}}]})) == ["a"]
    with pytest.raises(Unmet, match="no JSON .*: Error from server"):
        parsed("Error from server")


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr("tests.integration.first_run.jobs.SILENT_SECONDS", 0.0)
    monkeypatch.setattr("tests.integration.first_run.runs.LOOK_SECONDS", 0.0)
    return Scripted(tmp_path)


def rows(printed: str) -> dict[str, tuple[str, str]]:
    """Return what was seen, and the verdict, by the check's name."""
    lines = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    return {cells[0].strip(): (cells[2].strip(), cells[4].strip()) for cells in lines[1:]}


def test_all_checks_of_a_working_cluster_are_ok(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(scripted.cluster, scripted.retried.append, scripted.launcher) == 0
    seen = rows(capsys.readouterr().out)
    assert {name: verdict for name, (_, verdict) in seen.items() if verdict != "yes"} == {}
    assert len(seen) == 22
    assert scripted.retried == ["run-2"]
    assert seen["TrainJob in a queue"][0] == "created → Queued → Admitted → Running → Succeeded"
    assert seen["a step's pod deleted"][0] == "FAILED: pod deleted"
    assert seen["jobs of two runs"][0] == "1 and 1 jobs, none in common"
    # What was deleted: a step's pod by its run and step, and pods of jobs by their jobs.
    for pod in ("pod-of-train", "pod-of-job-run-2"):
        assert f"-n team delete pod {pod} --wait=false" in scripted.log
    assert "-l pipeline/runid=run-2,hopforge.dev/task=train" in scripted.log
    assert len(scripted.deleted) == 9


@pytest.mark.parametrize(
    ("broken", "failed", "skipped"),
    [
        ("upload", {"upload", "upload again"}, set()),
        ("logs", {"logs"}, set()),
        ("gc", {"gc"}, set()),
        ("cancel", {"cancel", "cancel again"}, set()),
        (
            "submit",
            {"submit", "submit with other values", "submit, to be cancelled"},
            {"watch", "logs", "a step's pod deleted", "retry, and a job's pod deleted", "jobs of two runs", "cancel",
             "watch the cancelled run", "cancel again"},
        ),
    ],
)  # fmt: skip
def test_a_broken_command_fails_its_checks_and_no_others(
    broken: str, failed: set[str], skipped: set[str], scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    (scripted.folder / "broken").write_text(broken)
    assert run(scripted.cluster, scripted.retried.append, scripted.launcher) == 1
    seen = rows(capsys.readouterr().out)
    assert {name for name, (_, verdict) in seen.items() if verdict == "NO"} == failed
    assert {name for name, (_, verdict) in seen.items() if verdict == "skipped"} == skipped
    assert seen[min(failed)][0] == f"status 2: Error: {broken} is broken"


def test_a_job_that_restarts_without_end_fails_its_check_alone(scripted: Scripted) -> None:
    """A recorded launcher followed a PyTorchJob whose pod ran out of memory ten times."""

    def endless(job: Description, tell: Callable[[str], None]) -> None:
        if not job.step.endswith("-memory"):
            scripted.launch(job, tell)
            return
        for state in ("created", "Admitted", "Running", "Admitted", "Running"):
            tell(f"{job.name}: {state}")
        Event().wait()

    launcher = Launcher(endless, lambda job: scripted.deleted.append(job.name))
    spec = read_as(ClusterSpec, SHIPPED)
    # A deleted pod needs a process, which this limit is too short for.
    checks = JobChecks(scripted.cluster, spec, lambda: launcher, minutes=0.05).checks()
    within = [check for check in checks if not check.name.endswith("pod deleted")]
    outcomes = {one.check.name: one for one in run_checks(within, lambda outcome: None)}
    assert {name for name, one in outcomes.items() if not one.ok} == {
        "PyTorchJob out of memory",
        "TrainJob out of memory",
    }
    assert outcomes["PyTorchJob out of memory"].seen == (
        "still followed after 0.05 minutes: created → Admitted → Running → Admitted → Running"
    )
    assert len(scripted.deleted) == 7


def test_gc_deletes_nothing_if_jobs_of_others_are_silent_too(scripted: Scripted) -> None:
    scripted_launch = scripted.launch

    def launch(job: Description, tell: Callable[[str], None]) -> None:
        try:
            scripted_launch(job, tell)
        finally:
            others = [{"name": "somebody-s-job"}, {"name": "a-workflow", "kind": "Workflow"}]
            silent = [{"name": job.name}, *others]
            (scripted.folder / "silent").write_text(json.dumps(silent))

    launcher = Launcher(launch, lambda job: None)
    checks = JobChecks(scripted.cluster, read_as(ClusterSpec, SHIPPED), lambda: launcher).checks()
    [outcome] = run_checks([check for check in checks if check.name == "gc"], lambda outcome: None)
    assert outcome.ok is None
    assert "not deleted, because somebody-s-job would be deleted too" in outcome.seen
    assert scripted.log.count("gc ") == scripted.log.count("--dry-run")


@pytest.mark.parametrize(
    ("change", "reason", "skipped"),
    [
        ({"host": ""}, "no address of Kubeflow Pipelines is given (HOST=URL)", 13),
        ({"queue": None}, "no queue is given (QUEUE=NAME)", 2),
        ({"file": Path("absent.yaml")}, "absent.yaml: no such file; docs/cluster.md describes it (CLUSTER=FILE)", 22),
        ({"kubectl": ("no-such-kubectl",)}, "kubectl is not installed", 22),
        ({"kubectl": ("false",)}, "no cluster is reached with KUBECONFIG: status 1: no output", 22),
    ],
    ids=["host", "queue", "file", "kubectl", "cluster"],
)
def test_check_that_cannot_run_is_skipped_with_a_reason(
    change: dict[str, object], reason: str, skipped: int, scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = replace(scripted.cluster, **change)  # type: ignore[arg-type]
    assert run(cluster, scripted.retried.append, scripted.launcher) == 0
    printed = capsys.readouterr().out
    assert [why for why, verdict in rows(printed).values() if verdict == "skipped"] == [reason] * skipped
    assert printed.endswith(f"{22 - skipped} ok, 0 not ok, {skipped} skipped\n")


@pytest.mark.skipif(
    "HOPFORGE_TEST_HOST" not in os.environ, reason="HOPFORGE_TEST_HOST is not set; see make test-cluster"
)
def test_first_run_on_the_cluster_of_kubeconfig() -> None:
    options = [("--host", "HOST"), ("--namespace", "NAMESPACE"), ("--queue", "QUEUE"), ("--cluster", "CLUSTER")]
    given = [(option, os.environ.get(f"HOPFORGE_TEST_{name}")) for option, name in options]
    assert main([word for option, value in given if value for word in (option, value)]) == 0
