"""Jobs that ``hopforge plan`` prints equal the jobs that a run then creates, field by field."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.cluster import CLUSTER, ClusterSpec, JobSpec, Resources, SamplerSpec, Workspace
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.config.sampling import SAMPLER_HOST, SAMPLER_URL
from platform_sdk.config.task import Task
from platform_sdk.execution.plan import inputs_of
from platform_sdk.execution.step import load_step
from platform_sdk.graph.__main__ import extract
from platform_sdk.kubeflow.lifecycle import begin_run, enter_cluster, run_folder
from platform_sdk.kubeflow.packing import begun_with
from platform_sdk.kubeflow.training_job import here, launcher
from platform_sdk.kubeflow.training_job.backend import with_backend
from platform_sdk.kubeflow.training_job.description import TASK
from platform_sdk.kubeflow.training_job.pod import SAMPLER_PORT
from platform_sdk.methods.__main__ import work
from platform_sdk.planning.jobs import Place, PlannedJob, planned_jobs, requests_of
from platform_sdk.processes.environment import variables
from platform_sdk.sampling import openai_engine, vllm_engine
from platform_sdk.sampling.transformers_engine import TransformersEngine
from platform_sdk.training.__main__ import train
from tests.chaos.reduced import REDUCED
from tests.kubeflow.training_job.scripted import Cluster
from tests.planning.small_recipes import shipped_recipe, small_recipe

HOME = Path(__file__).parents[2]
SHIPPED = HOME / "pipelines/cluster.yaml"
RUN_ID = "d7c4a5a2-6f0a-4c6e-9d3e-0a8a3a1b2c3d"
PROGRAMS: dict[str, Callable[[Path], None]] = {"platform_sdk.methods": work, "platform_sdk.training": train}
RECIPES = sorted(path for path in HOME.glob("pipelines/*/*.yaml") if path.name != "pipeline.yaml")
FURTHER = (
    "arena/mixed-qwen2.5-7b", "arena-baselines/direct-rag-qwen2.5-7b", "arena-baselines/sft-reasoning-qwen2.5-7b",
    "arena-baselines/sft-reasoning-smollm2", "arena-baselines/world", "evipath/hotpot-llama3.1-8b",
    "evipath-mygo/world",
    "mygo/2wiki-kg-qwen2.5-7b", "mygo/2wiki-kg-qwen2.5-7b-grpo", "mygo/world-grpo", "program-mygo/world",
    "prograph/2wiki-qwen2.5-3b", "prompting/world", "react/search-r1-qwen3-4b",
)  # fmt: skip
"""Shipped recipes with other jobs than those of ``REDUCED``."""
QUICK = ("arena", "mygo", "program", "toy")
"""Recipes of the fast tests: sampling, training with and without a server, programs, and steps of one's own."""


class Operator:
    """Kueue and the operators: each new job is admitted, its pods' program runs in this process, and it succeeds."""

    def __init__(self, cluster: Cluster) -> None:
        self.server, self.clock = cluster.server, cluster.clock
        self.created: list[dict[str, Any]] = []
        self.clock.after(5, self._look)

    def _look(self) -> None:
        self.clock.after(5, self._look)
        for (plural, name), item in list(self.server.objects.items()):
            if plural in ("pytorchjobs", "jobs") and name not in [job["metadata"]["name"] for job in self.created]:
                self.created.append(json.loads(json.dumps(item)))
                self._run(item)

    def _run(self, item: dict[str, Any]) -> None:
        label = {"kueue.x-k8s.io/job-uid": item["metadata"]["uid"]}
        self.server.objects["workloads", "w"] = {"metadata": {"name": "w", "labels": label}}
        spec = item["spec"]
        if item["kind"] == "Job":
            spec["suspend"] = False
            [container] = spec["template"]["spec"]["containers"]
            for index in range(spec["completions"]):
                os.environ["JOB_COMPLETION_INDEX"] = str(index)
                extract(Path(container["command"][-1]))
            self.server.condition(item, "Complete")
            return
        spec["runPolicy"]["suspend"] = False
        [container] = spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
        values = {variable["name"]: variable.get("value", "") for variable in container["env"]}
        command = container["command"]
        with variables({SAMPLER_URL: values[SAMPLER_URL]} if SAMPLER_URL in values else {}):
            PROGRAMS[command[-3]](Path(command[-1]))
        self.server.condition(item, "Succeeded")


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A cluster with a queue whose workspace is on this machine."""
    for variable in (*here.PASSED_ON, CLUSTER, SAMPLER_URL, "JOB_COMPLETION_INDEX"):
        monkeypatch.setenv(variable, "")  # restored after the test, which sets and removes these
        monkeypatch.delenv(variable)
    cluster.server.pods["step"] = {"metadata": {"name": "step", "labels": {}}}
    monkeypatch.setenv("KFP_POD_NAME", "step")
    monkeypatch.setattr(here, "namespace", lambda: "team-a")
    monkeypatch.setattr(here, "connect", lambda: cluster.connection)
    monkeypatch.setattr(launcher, "CLOCK", cluster.clock)
    spec = ClusterSpec(
        workspace=Workspace(claim="runs", path=str(tmp_path)), launcher_image="launcher",
        environment={"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"},
        job=JobSpec(
            image="trainer", queue="team-a", priority="usual", backend="pytorchjob", resources=Resources(gpus=0),
            environment={"NCCL_DEBUG": "WARN"}, secrets={"HF_TOKEN": "hugging-face/token"},
        ),
    )  # fmt: skip
    return Place(spec, "team-a", RUN_ID)


@pytest.fixture
def gpu_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The cluster with GPUs and vLLM; where a pod's program would use them, it samples with transformers on the CPU."""

    def without_vllm(model: str, extra: object, **sizes: Any) -> TransformersEngine:
        return TransformersEngine(model, **sizes)

    def without_server(url: str, model: str, patience: float, **sizes: Any) -> TransformersEngine:
        assert url == f"http://{SAMPLER_HOST}:{SAMPLER_PORT}"
        return TransformersEngine(model, **sizes)

    monkeypatch.setattr(vllm_engine, "VllmEngine", without_vllm)
    monkeypatch.setattr(openai_engine, "OpenAIEngine", without_server)
    job = place.cluster.job.model_copy(
        update={"sampler": SamplerSpec(image="sampler"), "resources": Resources(gpus=1)}
    )  # fmt: skip
    return replace(place, cluster=place.cluster.model_copy(update={"job": job}))


def one_process_cluster() -> ClusterSpec:
    """Return the shipped cluster with one GPU, and so one process, in a pod."""
    cluster = read_as(ClusterSpec, SHIPPED)
    resources = cluster.job.resources.model_copy(update={"gpus": 1})
    return cluster.model_copy(update={"job": cluster.job.model_copy(update={"resources": resources})})


def run_steps(recipe: Recipe, place: Place) -> None:
    """Begin a run and run its steps in order, as their pods do."""
    run_dir = run_folder(place.cluster.workspace.path, recipe.name, place.run_id)
    begin_run(run_dir, begun_with(recipe, place.cluster), {})
    enter_cluster(run_dir)
    outputs: dict[str, dict[str, Any]] = {}
    for task in recipe.plan:
        os.environ[TASK] = task.group or task.id
        outputs[task.id] = _run_step(task, recipe, run_dir, outputs)


def _run_step(task: Task, recipe: Recipe, run_dir: Path, outputs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    step = load_step(task.component)
    inputs = step.Inputs.model_validate(inputs_of(task, recipe.parameters, run_dir, outputs))
    return step.run(inputs).outputs.model_dump(mode="json")


def comparable(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what the API server adds, and an extraction without the digest of its data."""
    metadata = {key: manifest["metadata"][key] for key in ("name", "namespace", "labels")}
    text = json.dumps({**manifest, "metadata": metadata})
    start, found, end = text.partition("/graph/extract-")
    return dict(json.loads(f"{start}{found}*{end[end.index('.json') :]}" if found else text))


def reduced(name: str) -> Recipe:
    recipe = REDUCED[name].shorter()
    overrides = [f"{path}={json.dumps(value)}" for path, value in recipe.overrides.items()]
    return load_recipe(HOME / "pipelines" / recipe.recipe, overrides, {})


def check_run(recipe: Recipe, cluster: Cluster, place: Place) -> list[PlannedJob]:
    jobs, faults = planned_jobs(recipe, place)
    assert faults == []
    operator = Operator(cluster)
    run_steps(recipe, place)
    created = {job["metadata"]["name"]: comparable(job) for job in operator.created}
    planned = {job.name: comparable(job.manifest or {}) for job in jobs}
    skipped = planned.keys() - created.keys()
    # An evaluation of weights that are evaluated already creates no job.
    assert all("evaluate-eval" in json.dumps(planned[job]) for job in skipped), skipped
    assert created
    assert created == {job: planned[job] for job in created}
    assert list(created) == [job.name for job in jobs if job.name not in skipped]
    return jobs


@pytest.mark.e2e(minutes=1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in sorted(REDUCED)]
)
def test_planned_jobs_equal_the_jobs_of_the_run(name: str, cluster: Cluster, place: Place) -> None:
    jobs = check_run(reduced(name), cluster, place)
    assert jobs
    for job in jobs:
        assert (job.queue, job.priority, job.pods) == ("team-a", "usual", 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", FURTHER)
def test_planned_jobs_of_shipped_recipe_equal_the_jobs_of_its_run(
    name: str, cluster: Cluster, gpu_place: Place
) -> None:
    """Each step runs as in its pod, and each job that it creates runs its program in this process.

    Compared are whole objects: kind, names, labels, annotations with the digest of the specification, containers,
    images, commands, variables, amounts, volumes and the vLLM server. The recipe that runs has the other values of
    ``small_recipes``; ``test_small_recipe_has_the_jobs_of_the_shipped_one`` shows that its jobs are the shipped ones.
    """
    recipe = small_recipe(HOME / f"pipelines/{name}.yaml")
    jobs = check_run(recipe, cluster, gpu_place)
    served = [job.step for job in jobs if "initContainers" in json.dumps(job.manifest)]
    assert bool(served) == recipe.settings("sampling").engine.brings_server


def jobs_at(recipe: Recipe) -> dict[str, str]:
    """Return the jobs of a recipe by name, as text, for the shipped cluster with pods of one process."""
    place = Place(one_process_cluster(), choose=lambda job: job if job.indexed else with_backend(job, "pytorchjob"))
    return {job.name: job.model_dump_json() for job in planned_jobs(recipe, place)[0]}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_small_recipe_has_the_jobs_of_the_shipped_one(path: Path) -> None:
    planned, jobs = jobs_at(shipped_recipe(path)), jobs_at(small_recipe(path))
    assert jobs
    assert jobs.items() <= planned.items()
    further = [json.loads(planned[name])["step"] for name in planned.keys() - jobs.keys()]
    assert all(int(step.rpartition("-")[2]) > 1 for step in further)  # of later iterations


def test_jobs_of_every_shipped_recipe_are_those_of_a_recipe_that_is_run() -> None:
    """The other recipes' jobs differ from them by the run's name only."""

    def unnamed(path: Path) -> str:
        return json.dumps(jobs_at(replace(small_recipe(path), name="run")))

    paths = [*(f"{name}.yaml" for name in FURTHER), *(one.recipe for one in REDUCED.values())]
    run = {unnamed(HOME / "pipelines" / path) for path in paths if not path.startswith("..")}
    assert [path for path in RECIPES if unnamed(path) not in run] == []


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_recipe_has_a_job_for_every_step_that_asks_for_one(path: Path) -> None:
    cluster = one_process_cluster()
    recipe = load_recipe(path, (), cluster.environment)
    jobs, faults = planned_jobs(recipe, Place(cluster))
    with_jobs = {job.step for job in jobs}
    for task in recipe.plan:
        own_rule = task.component == "sample"  # rules ask no model, and so does what is learned from its output
        assert task.id in with_jobs or task.component not in ("train", "online", "evaluate", "graph") or faults
        assert task.id not in with_jobs or own_rule or task.component in ("train", "online", "evaluate", "graph")


def test_job_of_a_pair_trains_each_model(place: Place) -> None:
    recipe = load_recipe(HOME / "pipelines/mygo/world.yaml", ["worker_model=hopforge:world-base"], {})
    names = [job.name for job in planned_jobs(recipe, place)[0] if job.step == "train-01"]
    manifests = [json.dumps(job.manifest) for job in planned_jobs(recipe, place)[0] if job.step == "train-01"]
    assert len(set(names)) == 2
    assert ["/planner/train-step.json" in manifests[0], "/worker/train-step.json" in manifests[1]] == [True, True]


def test_requests_of_a_pod_include_the_server_alongside() -> None:
    cluster = read_as(ClusterSpec, SHIPPED)
    recipe = load_recipe(HOME / "pipelines/arena/mixed-qwen2.5-7b.yaml", (), cluster.environment)
    place = Place(cluster, choose=partial(with_backend, backend="pytorchjob"))
    [online] = [job for job in planned_jobs(recipe, place)[0] if job.step == "online"]
    assert (online.kind, online.gpus, online.requests["cpu"]) == ("PyTorchJob", 8, 40)
    pod = (online.manifest or {})["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert requests_of(pod) == online.requests


def test_kind_that_the_cluster_decides_is_left_open(place: Place) -> None:
    cluster = read_as(ClusterSpec, SHIPPED)
    recipe = load_recipe(HOME / "pipelines/arena/world.yaml", (), cluster.environment)
    assert {(job.kind, job.manifest is None) for job in planned_jobs(recipe, Place(cluster))[0]} == {
        ("PyTorchJob or TrainJob", True)
    }


def test_command_prints_the_jobs_of_a_cluster(tmp_path: Path) -> None:
    runner = CliRunner()
    recipe = str(HOME / "pipelines/arena/mixed-qwen2.5-7b.yaml")
    shown = runner.invoke(app, ["plan", recipe, "--cluster", str(SHIPPED)])
    assert shown.exit_code == 0, shown.stderr
    assert "online      PyTorchJob or TrainJob  1     8     40   320.0 GiB" in shown.stdout
    printed = json.loads(runner.invoke(app, ["plan", recipe, "--cluster", str(SHIPPED), "--json"]).stdout)
    assert [job["step"] for job in printed["jobs"]] == ["eval-start", "online", "eval-final"]
    wrong = runner.invoke(app, ["plan", str(HOME / "pipelines/mygo/world.yaml"), "--cluster", str(SHIPPED)])
    assert wrong.exit_code == 1
    assert "problem: eval-start, eval-final: evaluate: 7 processes, but only one at a time" in wrong.stderr
