"""Extraction of a graph as one Indexed Job: what is created, followed, resumed and merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from platform_sdk.config.cluster import ClusterSpec, JobSpec, LauncherResources, Resources, Workspace
from platform_sdk.config.graph import GraphSpec
from platform_sdk.errors import UserError
from platform_sdk.files import read_model
from platform_sdk.graph import build as building
from platform_sdk.graph.build import ExtractStep, build, extract_shard
from platform_sdk.kubeflow.training_job import here, indexedjob, launcher
from platform_sdk.kubeflow.training_job.description import Description
from platform_sdk.processes.launch import ProcessRunner, StepProcesses
from tests.graph.conftest import PASSAGES, prepare_run
from tests.kubeflow.crds import check_builtin
from tests.kubeflow.training_job.scripted import HOUR

if TYPE_CHECKING:
    from tests.graph.conftest import PrepareRun
    from tests.kubeflow.training_job.scripted import Cluster

__all__ = ["prepare_run"]
SHARDS = 7
SPEC = GraphSpec(chunk_tokens=16, overlap_tokens=8, shards=SHARDS)
RUN = Path("/workspace/runs/wiki-1")
EXTRACTION = StepProcesses(
    "platform_sdk.graph", RUN / "graph/extract-step.json", "extract", trains=False, gpus_each=0, shards=SHARDS
)


def place(path: str = "/workspace", **job: Any) -> ClusterSpec:
    return ClusterSpec(
        workspace=Workspace(claim="w", path=path), launcher_image="launcher",
        launcher=LauncherResources(cpu="3", memory="5Gi"),
        job=JobSpec(
            image="trainer", nodes=2, resources=Resources(gpus=8, others={"rdma/hca": 1}), queue="team-a", **job
        ),
    )  # fmt: skip


def described(processes: StepProcesses = EXTRACTION, **job: Any) -> Description:
    return here.describe(processes, place(**job), RUN, "team-a")


@pytest.mark.parametrize("job", [{}, {"priority": "high"}, {"minimum_nodes": 1}, {"backend": "trainjob"}])
def test_the_indexed_job_is_valid_and_has_a_pod_for_each_shard(job: dict[str, Any]) -> None:
    body = indexedjob.render(described(**job))
    check_builtin(body)
    spec, pod = body["spec"], body["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", SHARDS, SHARDS)
    assert spec["suspend"]
    assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert body["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] == "1"
    [container] = pod["containers"]
    assert container["command"] == ["python", "-m", "platform_sdk.graph", "--spec", str(EXTRACTION.spec_file)]
    # Without a model a shard has what a step has, and no GPU.
    assert (container["image"], container["resources"]["limits"]) == ("launcher", {"cpu": "3", "memory": "5Gi"})
    assert pod["restartPolicy"] == "Never"
    # A pod's host is called as the job and its index.
    assert len(f"{body['metadata']['name']}-99999") <= 63


def test_a_shard_with_a_model_has_the_gpus_of_one_process() -> None:
    job = described(replace(EXTRACTION, gpus_each=1))
    assert (job.spec.image, job.spec.resources.gpus, job.processes_per_node, job.spec.nodes) == ("trainer", 1, 1, 7)
    without_queue = job.spec.model_copy(update={"queue": None})
    body = indexedjob.render(replace(job, spec=without_queue))
    check_builtin(body)
    assert body["spec"]["suspend"] is False


class Pods:
    """The pods of the Indexed Job, whose program a test runs in this process."""

    def __init__(self, cluster: Cluster) -> None:
        self.server, self.clock = cluster.server, cluster.clock

    def run(self, *shards: int) -> None:
        """Admit the job and run the programs of some of its pods."""
        job = self.server.job("jobs")
        label = {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}
        self.server.objects["workloads", "w"] = {"metadata": {"name": "w", "labels": label}}
        job["spec"]["suspend"] = False
        [container] = job["spec"]["template"]["spec"]["containers"]
        step = read_model(Path(container["command"][-1]), ExtractStep)
        for shard in shards:
            extract_shard(step, shard)

    def end(self, condition: str, reason: str = "") -> None:
        self.server.condition(self.server.job("jobs"), condition, reason=reason)


@pytest.fixture
def runner(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ProcessRunner]:
    """Return a function that returns the runner of a run's processes as a job of the cluster."""
    cluster.server.pods["step"] = {"metadata": {"name": "step", "labels": {}}}
    for name, value in (("HOPFORGE_CLUSTER", place(str(tmp_path)).model_dump_json()), ("KFP_POD_NAME", "step")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(here, "namespace", lambda: "team-a")
    monkeypatch.setattr(here, "connect", lambda: cluster.connection)
    monkeypatch.setattr(launcher, "CLOCK", cluster.clock)

    def make() -> ProcessRunner:
        found = here.job_runner(tmp_path / "run")
        assert found is not None
        return found

    return make


def test_shards_become_one_job_and_the_graph_of_a_build_here(
    cluster: Cluster, runner: Callable[[], ProcessRunner], prepare_run: PrepareRun
) -> None:
    whole = build(prepare_run("here"), SPEC.model_copy(update={"shards": 1}))
    pods = Pods(cluster)
    cluster.clock.at(60, lambda: pods.run(*range(SHARDS)))
    cluster.clock.at(HOUR, lambda: pods.end("Complete"))
    run = prepare_run("run")
    built = build(run, SPEC, runner())
    assert built.graph.digest == whole.graph.digest
    assert built.extracted == whole.extracted
    # A finished graph asks the cluster for nothing.
    cluster.server.requests.clear()
    assert build(run, SPEC, runner()).extracted == 0
    assert cluster.server.requests == []


def test_failed_job_is_created_again_without_finished_shards(
    cluster: Cluster, runner: Callable[[], ProcessRunner], prepare_run: PrepareRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, pods = prepare_run("run"), Pods(cluster)
    cluster.clock.at(60, lambda: pods.run(0, 1, 2))
    cluster.clock.at(120, lambda: pods.end("Failed", "FailedIndexes"))
    with pytest.raises(UserError, match="failed: FailedIndexes"):
        build(run, SPEC, runner())
    assert not (run / "graph/manifest.json").exists()
    read: list[int] = []
    inner = building._extractions

    def extractions(sources: Any, spec: GraphSpec, shard: int, is_open: Callable[[str], bool]) -> Any:
        read.append(shard)
        return inner(sources, spec, shard, is_open)

    monkeypatch.setattr(building, "_extractions", extractions)
    cluster.clock.at(180, lambda: pods.run(*range(SHARDS)))
    cluster.clock.at(240, lambda: pods.end("Complete"))
    built = build(run, SPEC, runner())
    assert read == [3, 4, 5, 6]
    monkeypatch.undo()
    assert built.graph.digest == build(prepare_run("here", PASSAGES), SPEC).graph.digest


def test_job_with_a_missing_shard_is_not_merged(
    cluster: Cluster, runner: Callable[[], ProcessRunner], prepare_run: PrepareRun
) -> None:
    pods = Pods(cluster)
    cluster.clock.at(60, lambda: pods.run(0, 1, 2, 4, 5, 6))
    cluster.clock.at(120, lambda: pods.end("Complete"))
    run = prepare_run("run")
    with pytest.raises(UserError, match=r"shards \[3\] were not extracted; run the step again"):
        build(run, SPEC, runner())
    assert not (run / "graph/manifest.json").exists()
