"""``hopforge submit``, ``upload``, ``watch``, ``logs`` and ``cancel``: what a shell would show of them.

Commands that end by themselves run in this process: of a process of their own nine tenths are imports.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import mlflow
import pytest

pytest.importorskip("kfp.kubernetes", reason="the extra [cluster] is not installed")
pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from platform_sdk import cli
from platform_sdk.kubeflow.packing import unpacked
from tests.kubeflow.remote.cluster_server import ClusterServer
from tests.kubeflow.remote.kfp_server import LOGIN_PAGE, KfpServer
from tests.kubeflow.remote.pipelines import pipeline
from tests.kubeflow.toy import write_toy
from tests.planning.plan_server import KUEUE, cluster_queue
from tests.process_watch import wait_for

HOME = Path(__file__).parents[2]
CLUSTER = HOME / "pipelines/cluster.yaml"
FOLLOW = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a script
from platform_sdk.kubeflow.packing import unpacked
from platform_sdk.kubeflow.remote import following

following.LOOK_SECONDS = 0.2
from platform_sdk.cli import main

main()
"""
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
# What runs of CLUSTER need, in the namespace of a single-user Pipelines.
RUN_OBJECTS = (
    "/api/v1/namespaces/kubeflow/secrets/run-access", "/api/v1/namespaces/kubeflow/persistentvolumeclaims/workspace",
)  # fmt: skip


class Shell:
    """Both servers, and a shell that knows them."""

    def __init__(self, kfp: KfpServer, kubernetes: ClusterServer, folder: Path) -> None:
        self.kfp, self.kubernetes, self.folder = kfp, kubernetes, folder
        kfp.cluster = kubernetes
        (folder / "kubeconfig").write_text(KUBECONFIG.format(url=kubernetes.url))
        hidden = {name: value for name, value in os.environ.items() if not name.startswith("KF_PIPELINES")}
        self.environment = hidden | {
            "PYTHONPATH": str(HOME), "KF_PIPELINES_ENDPOINT": kfp.url, "KUBECONFIG": str(folder / "kubeconfig"),
            "HOME": str(folder), "PYTHONUNBUFFERED": "1",
        }  # fmt: skip

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that goes on until something happens; it looks at the servers five times a second."""
        return subprocess.Popen(
            [sys.executable, "-c", FOLLOW, *arguments],
            cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def __call__(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            mock.patch("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", self.environment["KUBECONFIG"]),
            mock.patch.object(sys, "argv", ["hopforge", *arguments]),
            contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        ):  # fmt: skip
            try:
                cli.main()
                ended = 0
            except SystemExit as end:
                ended = end.code or 0
        assert ended == status, err.getvalue()
        return out.getvalue(), err.getvalue()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with KfpServer() as kfp, ClusterServer() as kubernetes:
        kubernetes.paths |= {path: {"metadata": {}} for path in RUN_OBJECTS}
        for queue in ("urgent", "hopforge"):
            kubernetes.paths[f"{KUEUE}/namespaces/kubeflow/localqueues/{queue}"] = {
                "metadata": {"name": queue}, "spec": {"clusterQueue": "q"},
            }  # fmt: skip
        kubernetes.paths[f"{KUEUE}/clusterqueues/q"] = cluster_queue("q", {"nominalQuota": "8"})
        images = [f"registry.example/hopforge/{name}:0.1.0" for name in ("launcher", "trainer", "sampler")]
        kubernetes.paths["/api/v1/nodes"] = {"items": [{"status": {"images": [{"names": images}]}}]}
        yield Shell(kfp, kubernetes, tmp_path)


def test_submitted_run_can_be_watched_and_its_logs_read(shell: Shell) -> None:
    recipe = write_toy(shell.folder)
    out, _ = shell("submit", str(recipe), "--cluster", str(CLUSTER), "--queue", "urgent", "--set", "seed=3", "--json")
    made = json.loads(out)
    run = shell.kfp.run()
    assert made["run_id"] == run["run_id"]
    assert run["runtime_config"]["parameters"]["f1_run_seed"] == 3
    spec = shell.kfp.versions[0]["pipeline_spec"]["pipeline_spec"]
    dags = [one["dag"]["tasks"] for one in spec["components"].values() if "dag" in one]
    [begin] = [tasks["begin"]["inputs"]["parameters"] for tasks in dags if "begin" in tasks]
    assert unpacked(begin["recipe"]["runtimeValue"]["constant"])["cluster"]["job"]["queue"] == "urgent"

    watching = shell.start("watch", made["run_id"][:8], "--json")
    looks = f"/apis/v2beta1/runs/{run['run_id']}"
    wait_for(lambda: shell.kfp.requests.count(("GET", looks)) >= 2)  # once to find it
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=60)
    assert watching.returncode == 130
    assert "the run continues" in err
    assert run["state"] == "PENDING"

    labels = {"pipeline/runid": run["run_id"], "hopforge.dev/task": "make"}
    _, err = shell("logs", made["run_id"], "make", status=2)
    assert "step make has not started yet" in err
    _, err = shell("logs", made["run_id"], "meke", status=2)
    assert "did you mean make?" in err
    shell.kubernetes.pods["p"] = {"metadata": {"name": "p", "labels": labels}}
    shell.kubernetes.logs["p"] = "first\nsecond\n"
    out, _ = shell("logs", made["run_id"], "make")
    assert out == "first\nsecond\n"

    shell.kubernetes.pods.clear()
    shell.kfp.execution.step("begin")
    shell.kfp.execution.step("make", "FAILED", "selection.attempts must be at most 16, but is 20")
    shell.kfp.execution.state("FAILED")
    out, err = shell("watch", run["display_name"], status=1)
    reason = "selection.attempts must be at most 16, but is 20"
    assert f"step make: failed ({reason})" in out
    assert f"step make failed: {reason}; see hopforge logs {run['run_id']} make" in err
    shell.kubernetes.pods.clear()
    _, err = shell("logs", made["run_id"], "make", status=2)
    assert "step make no longer has pods" in err
    out, _ = shell("cancel", made["run_id"])
    assert "has ended before: FAILED" in out


def test_cancel_without_access_to_jobs_is_refused(shell: Shell) -> None:
    recipe = write_toy(shell.folder)
    shell("submit", str(recipe), "--cluster", str(CLUSTER))
    (shell.folder / "kubeconfig").unlink()
    run = shell.kfp.run()
    _, err = shell("cancel", run["run_id"], status=2)
    assert "the run's jobs would not be deleted" in err
    assert run["state"] == "PENDING"
    run["state"] = "CANCELED"
    _, err = shell("watch", run["run_id"], status=3)
    assert "jobs are not shown, and steps only as Kubeflow Pipelines lists them: no cluster found" in err


def test_logs_are_waited_for_from_the_submission_on(shell: Shell) -> None:
    shell("submit", str(write_toy(shell.folder)), "--cluster", str(CLUSTER))
    run = shell.kfp.run()
    following = shell.start("logs", "-f", run["run_id"], "make")
    assert following.stderr is not None
    assert "step make has not started yet; waiting for it" in following.stderr.readline()
    pod = {"metadata": {"name": "p", "labels": {"pipeline/runid": run["run_id"], "hopforge.dev/task": "make"}}}
    shell.kubernetes.logs["p"] = "first\nsecond\n"
    shell.kubernetes.pods["p"] = pod | {"status": {"phase": "Succeeded"}}
    out, err = following.communicate(timeout=60)
    assert (following.returncode, out, err) == (0, "first\nsecond\n", "")

    shell.kubernetes.logs.clear()
    shell.kubernetes.pods["p"]["status"]["phase"] = "Pending"
    out, err = shell("logs", run["run_id"])
    assert (out, err) == ("", "make has not started yet\n")
    run["state"] = "FAILED"
    _, err = shell("logs", run["run_id"], "-f", "last", status=2)
    assert "step last never started, and the run has ended: failed" in err


def test_unavailable_api_server_is_reported_without_a_traceback(shell: Shell) -> None:
    run = start(shell)
    run["state"] = "FAILED"
    config = shell.folder / "kubeconfig"
    config.write_text(config.read_text().replace(shell.kubernetes.url, "http://127.0.0.1:9"))
    for command in ("logs", "cancel"):
        _, err = shell(command, run["run_id"], status=2)
        assert "the API server cannot be reached" in err
        assert "Traceback" not in err


def test_expired_session_is_reported_and_no_success_claimed(shell: Shell) -> None:
    shell("submit", str(write_toy(shell.folder)), "--cluster", str(CLUSTER))
    run = shell.kfp.run()
    watching = shell.start("watch", run["run_id"])
    wait_for(lambda: shell.kfp.requests.count(("GET", f"/apis/v2beta1/runs/{run['run_id']}")) >= 2)
    shell.kfp.fault = lambda method, path: LOGIN_PAGE if path.endswith((run["run_id"], "terminate")) else None
    out, err = watching.communicate(timeout=60)
    assert watching.returncode == 2
    assert "pending" in out
    assert "perhaps a login page" in err
    out, err = shell("cancel", run["display_name"], status=2)
    assert out == ""
    assert "perhaps a login page" in err
    assert run["state"] == "PENDING"


def start(shell: Shell, **more: Any) -> dict[str, Any]:
    """Start a run of a pipeline as hopforge compiles it."""
    return shell.kfp.start(pipeline(**more), f"run-{len(shell.kfp.runs)}")


def job(shell: Shell, run: dict[str, Any], task: str, part: str, state: str) -> str:
    """Create a step's job, which the labels of its pods name by the first step's inputs."""
    begin = shell.kfp.inputs(run, "begin")
    labels = {"app.kubernetes.io/managed-by": "hopforge", "hopforge.dev/run": f"{begin['run_name']}-{begin['run_id']}",
              "hopforge.dev/task": task, "hopforge.dev/step": part}  # fmt: skip
    name = f"{part}-{run['run_id'][:8]}"
    made = {"metadata": {"name": name, "labels": labels, "uid": name, "creationTimestamp": "2027-01-15T08:00:00Z"},
            "spec": {}}  # fmt: skip
    shell.kubernetes.objects["pytorchjobs", name] = made
    shell.kubernetes.condition(made, state)
    shell.kubernetes.pods[f"{name}-master-0"] = {
        "metadata": {"name": f"{name}-master-0", "labels": {"training.kubeflow.org/job-name": name}},
        "spec": {"containers": [{"name": "pytorch"}]}, "status": {"phase": "Running"},
    }  # fmt: skip
    shell.kubernetes.logs[f"{name}-master-0"] = "loss 0.5\n"
    return name


def test_two_runs_of_a_recipe_have_their_own_jobs_logs_and_end(shell: Shell) -> None:
    first, second = start(shell), start(shell)
    names = []
    for run in (first, second):
        execution = shell.kfp.executions[run["run_id"]]
        execution.step("begin")
        pod = execution.begin("iterations")
        shell.kubernetes.logs[pod] = "iteration 01 finished\n"
        names.append(job(shell, run, "iterations", "train-iteration-02", "Running"))
    out, _ = shell("logs", first["run_id"])
    assert out.splitlines() == ["iterations | iteration 01 finished", "train-iteration-02 | loss 0.5"]

    def ends(method: str, path: str) -> None:
        if first["state"] == "CANCELING":
            shell.kfp.executions[first["run_id"]].cancel()

    shell.kfp.fault = ends
    out, _ = shell("cancel", first["run_id"])
    assert f"run run-0: CANCELED\ndeleted PyTorchJob {names[0]}" in out  # Kubeflow Pipelines ends it as FAILED
    assert [name for plural, name in shell.kubernetes.objects if plural == "pytorchjobs"] == [names[1]]
    out, _ = shell("watch", first["run_id"], status=3)
    assert "step iterations: canceled" in out
    assert "run run-0: canceled" in out
    shell.kfp.executions[second["run_id"]].end("iterations")
    shell.kfp.executions[second["run_id"]].state("SUCCEEDED")
    out, _ = shell("watch", second["run_id"])
    assert f"job {names[1]}: running" in out


def test_watch_shows_steps_that_kubeflow_pipelines_no_longer_lists(shell: Shell) -> None:
    names = [f"step-{number:02d}" for number in range(1, 16)]
    run = start(shell, steps=names)
    execution = shell.kfp.executions[run["run_id"]]
    for step in ("begin", *names, "end"):
        execution.step(step)
    execution.state("SUCCEEDED")
    assert execution.frozen
    assert all(one["display_name"] != "step-15" for one in run["run_details"]["task_details"] if "display_name" in one)
    out, _ = shell("watch", run["run_id"])
    assert [line.split(" step ")[1] for line in out.splitlines() if " step " in line] == [
        f"{step}: succeeded" for step in ("begin", *names, "end")
    ]


def test_gc_lists_and_deletes_workflows_without_a_run(shell: Shell) -> None:
    kept = start(shell)
    lost = shell.kubernetes.add_workflow("1b5a4f05-0000-4000-8000-000000000000", "mygo-world-1", pipeline())
    foreign = shell.kubernetes.add_workflow("2b5a4f06-0000-4000-8000-000000000000", "theirs", {})
    young = shell.kubernetes.add_workflow("3b5a4f07-0000-4000-8000-000000000000", "being-created", pipeline())
    for workflow in (lost, foreign):
        workflow["metadata"]["creationTimestamp"] = "2026-11-23T04:00:00Z"

    def workflows() -> set[str]:
        return {name for plural, name in shell.kubernetes.objects if plural == "workflows"}

    before = workflows()
    out, _ = shell("gc", "-n", "kubeflow")
    assert f"found Workflow {lost['metadata']['name']} (of mygo-world-1, " in out
    assert "delete them with --workflows" in out
    assert workflows() == before
    out, _ = shell("gc", "-n", "kubeflow", "--workflows", "--json")
    assert [(one["kind"], one["run_name"]) for one in json.loads(out)] == [("Workflow", "mygo-world-1")]
    assert workflows() == before - {lost["metadata"]["name"]}
    assert young["metadata"]["name"] in workflows()
    assert kept in shell.kfp.runs

    orphan = job(shell, shell.kfp.run(), "make", "train-make", "Running")
    shell.kubernetes.objects["pytorchjobs", orphan]["metadata"]["creationTimestamp"] = "2026-11-23T04:00:00Z"
    shell.kfp.fault = lambda method, path: 403
    out, err = shell("gc", "-n", "kubeflow", "--workflows", status=2)
    assert f"deleted PyTorchJob {orphan}" in out
    assert "refuses (HTTP 403)" in err


def test_end_of_a_cancelled_run_is_written_to_mlflow(shell: Shell) -> None:
    uri = f"sqlite:///{shell.folder}/mlflow.db"
    client = mlflow.MlflowClient(tracking_uri=uri)
    run = start(shell)
    directory = f"/workspace/runs/small-{run['run_id']}"
    tracked = client.create_run(client.create_experiment("mygo"), tags={"hopforge.run_dir": directory}).info.run_id
    execution = shell.kfp.execution
    execution.begin("begin")
    execution.state("CANCELING")
    execution.cancel()
    shell.environment["MLFLOW_TRACKING_URI"] = uri
    _, err = shell("watch", run["run_id"], status=3)
    assert "MLflow: the run is now KILLED" in err
    assert client.get_run(tracked).info.status == "KILLED"


MYGO = str(HOME / "pipelines/mygo/world.yaml")
ONE_PROCESS = CLUSTER.read_text().replace("gpus: 7", "gpus: 1")


@pytest.fixture
def planned(shell: Shell) -> list[str]:
    """Arguments that submit a run with jobs of one GPU to a queue of which the test sets the quota."""
    (shell.folder / "one.yaml").write_text(ONE_PROCESS.replace("job:", "job:\n  backend: pytorchjob"))
    shell.kubernetes.config_maps["kueue-system/kueue-manager-config"] = {
        "controller_manager_config.yaml": "integrations: {frameworks: [kubeflow.org/pytorchjob]}"
    }
    return ["submit", MYGO, "--cluster", str(shell.folder / "one.yaml"), "--queue", "hopforge"]


def test_run_whose_jobs_never_fit_is_refused_and_one_that_waits_is_submitted(shell: Shell, planned: list[str]) -> None:
    queues = shell.kubernetes.paths
    queues[f"{KUEUE}/clusterqueues/q"] = cluster_queue("q", {"nominalQuota": "0"})
    _, err = shell(*planned, status=2)
    assert "mygo-world cannot run in namespace kubeflow of the cluster in KUBECONFIG:" in err
    assert "never fits: ClusterQueue q: the job needs 1 of nvidia.com/gpu, but 0 are the most" in err
    _, dry = shell(*planned, "--namespace", "kubeflow", "--dry-run", status=2)
    assert "never fits" in dry
    assert (shell.kfp.runs, shell.kubernetes.objects) == ([], {})

    queues[f"{KUEUE}/clusterqueues/q"] = cluster_queue("q", {"nominalQuota": "1"}, used="1")
    _, err = shell(*planned)
    assert "jobs will wait: ClusterQueue q: the job needs 1 of nvidia.com/gpu, but 0 are free" in err
    queues[f"{KUEUE}/clusterqueues/q"] = cluster_queue("q", {"nominalQuota": "1"})
    assert "wait" not in shell(*planned)[1]
    assert len(shell.kfp.runs) == 2


def test_run_without_its_secret_is_refused(shell: Shell, planned: list[str]) -> None:
    del shell.kubernetes.paths[RUN_OBJECTS[0]]
    _, err = shell(*planned, status=2)
    assert "Secret run-access: does not exist in kubeflow; run: kubectl -n kubeflow create secret" in err
    assert shell.kfp.runs == []


def test_upload_that_is_refused_gives_the_servers_reason(shell: Shell) -> None:
    recipe = write_toy(shell.folder)

    def forgets(method: str, path: str) -> None:
        if path.endswith("upload_version"):
            shell.kfp.pipelines.clear()

    shell.kfp.fault = forgets
    _, err = shell("submit", str(recipe), "--cluster", str(CLUSTER), status=2)
    assert "HTTP 400): Failed to create a pipeline version" in err
    assert "asm_amd64" not in err


def test_description_that_the_database_would_refuse_is_submitted(shell: Shell) -> None:
    recipe = write_toy(shell.folder)
    recipe.write_text(recipe.read_text() + f"description: {'many words ' * 40}\n")
    shell("submit", str(recipe), "--cluster", str(CLUSTER))
    assert shell.kfp.requests.count(("POST", "/apis/v2beta1/runs")) == 1
    assert len(shell.kfp.run()["description"]) <= 255


def test_every_pipeline_is_put_into_the_ui_once(shell: Shell) -> None:
    first = json.loads(shell("upload", "mygo-grpo", "--cluster", str(CLUSTER), "--json")[0])
    named = {path for path in HOME.glob("pipelines/*/*.yaml") if "pipeline: mygo-grpo" in path.read_text()}
    assert len(first) == len(named) > 1
    assert all(one["pipeline"] == "mygo-grpo" and one["new"] for one in first)
    again = json.loads(shell("upload", "mygo-grpo", "--cluster", str(CLUSTER), "--json")[0])
    assert [one["version"] for one in again] == [one["version"] for one in first]  # compilation repeats itself
    assert not any(one["new"] for one in again)
    assert len(shell.kfp.pipelines) == 1
    assert all(one["description"] for one in shell.kfp.pipelines + shell.kfp.versions)


def test_upload_dry_run_describes_the_forms_of_all_pipelines(shell: Shell) -> None:
    forms = {one["pipeline"]: one["form"] for one in json.loads(shell("upload", "--dry-run", "--json")[0])}
    assert set(forms) == {path.parent.name for path in HOME.glob("pipelines/*/pipeline.yaml")}
    for name, form in forms.items():
        assert 0 < len(form) <= 10, name
        for field in form:
            assert field["group"], (name, field)
            assert field["type"] in ("string", "integer", "number", "boolean")
            assert field["defaults"], (name, field)
            if field["choices"]:
                assert set(field["defaults"].values()) <= set(field["choices"])
    kl = next(field for field in forms["arena"] if field["sets"] == "online.kl")
    assert kl["choices"] == ["k1", "k2", "k3"]
    assert kl["defaults"]["arena-mixed-qwen2-5-7b"] == "k2"
    iterations = next(field for field in forms["mygo"] if field["sets"] == "iterations")
    for recipe in iterations["defaults"]:
        assert iterations["bounds"][recipe] == "at least 0, at most 130"
        assert iterations["names"][recipe] == "c1_method_iterations_0_to_130"
    out, _ = shell("upload", "arena", "--dry-run")
    assert "(defaults and bounds shown: arena-" in " ".join(out.split())  # the terminal may break the line anywhere
    assert "k1 | k2 | k3" in out
    assert shell.kfp.requests == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["submit", "RECIPE"], "cluster.yaml: no such file; pass the cluster file with --cluster FILE"),
        (["submit", "RECIPE", "--cluster", "BAD"], "job.nodes"),
        (["submit", "RECIPE", "--cluster", "GOOD", "--queue", "Not A Name"], "--queue Not A Name: String should match"),
        (["submit", "RECIPE", "--cluster", "GOOD", "--set", "rate=3"], "must be at most 1, but is 3"),
        (["upload", "mygoo", "--dry-run"], "did you mean mygo"),
        (["upload", "--shared", "-n", "team-a", "--dry-run"], "remove one of them"),
        (["upload", "mygo", "--dry-run", "--cluster", "none.yaml"], "none.yaml: no such file"),
        (["plan", "RECIPE", "-n", "team-a"], "--namespace is for a run on a cluster: add --cluster FILE"),
        (["explain", "--facts", "RECIPE", "--host", "x"], "remove --namespace and --host"),
        (["watch", "local", "--host", "ftp://x"], "--host 'ftp://x' is not an address"),
        (["logs", "local", "--host", "ftp://x"], "--host 'ftp://x' is not an address"),
        (["explain", "local", "--host", "ftp://x"], "--host 'ftp://x' is not an address"),
        (["watch", "nothing"], "there is no run 'nothing'"),
        (["cancel", "d"], "at least the first 6 characters of the id"),
        (["cancel", ""], "at least the first 6 characters of the id"),
        (["watch", "deadbeef", "--host", "ftp://x"], "give it as https://kubeflow.example/pipeline"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(shell: Shell, arguments: list[str], says: str) -> None:
    (shell.folder / "runs/local").mkdir(parents=True)
    (shell.folder / "runs/local/recipe.json").write_text("{}")
    bad = shell.folder / "bad.yaml"
    bad.write_text(CLUSTER.read_text().replace("nodes: 1", "nodes: 0"))
    places = {"RECIPE": str(write_toy(shell.folder)), "BAD": str(bad), "GOOD": str(CLUSTER)}
    _, err = shell(*(places.get(word, word) for word in arguments), status=2)
    assert says in err
    assert "Traceback" not in err
    assert shell.kfp.runs == []


def test_a_queue_that_kueue_would_ignore_is_refused_before_a_run_starts(shell: Shell) -> None:
    recipe, queue = str(write_toy(shell.folder)), ["--cluster", str(CLUSTER), "--queue", "hopforge"]
    configuration = {"controller_manager_config.yaml": "integrations: {frameworks: [batch/job]}"}
    shell.kubernetes.config_maps["kueue-system/kueue-manager-config"] = configuration
    shell.kubernetes.unknown.add("trainjobs")
    _, err = shell("submit", recipe, *queue, status=2)
    assert "Kueue does not manage PyTorchJobs on this cluster" in err
    assert "add kubeflow.org/pytorchjob to integrations.frameworks" in err
    assert shell.kfp.requests == []
    configuration["controller_manager_config.yaml"] = "integrations: {frameworks: [kubeflow.org/pytorchjob]}"
    out, err = shell("submit", recipe, *queue, "--namespace", "kubeflow", "--dry-run")
    assert (out.startswith(f"{recipe}: ok ("), err, shell.kfp.requests) == (True, "", [])
    shell.kubernetes.config_maps.clear()
    _, err = shell("submit", recipe, *queue)
    assert "cannot check that Kueue manages the jobs of queue hopforge" in err
    assert len(shell.kfp.runs) == 1
