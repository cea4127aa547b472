"""ClusterTrainingRuntimes: a TrainJob merged with its runtime gives the pod of the PyTorchJob.

Two fields cannot be equal. The training-operator requires the container's name ``pytorch`` and the Trainer the name
``node``; and a TrainJob's pods have the restart policy Never, which the PyTorchJob's operator sets instead of the pod.
"""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from platform_sdk.config.cluster import ClusterSpec, Resources
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.kubeflow.training_job import pytorchjob, runtime, trainjob
from platform_sdk.kubeflow.training_job.backend import with_backend
from platform_sdk.kubeflow.training_job.description import Description, Sidecar
from platform_sdk.planning.jobs import Place, PlannedJob, planned_jobs
from platform_sdk.processes.torchrun import NODE_LOST
from tests.kubeflow.crds import ROOT, check
from tests.kubeflow.training_job.test_rendering import JOB, SERVED, pods_of, with_spec
from tests.kubeflow.training_job.trainer import POD_FIELDS_OF_TRAINER_2_2, pod_of, pods_of_patch, rewrite

SHIPPED = read_as(ClusterSpec, ROOT / "pipelines/cluster.yaml")
RUNTIMES = {one["metadata"]["name"]: one for one in runtime.runtimes(SHIPPED)}
PIPELINES = ROOT / "pipelines"
PROGRAM = "registry/agent@sha256:2"
WITH_IMAGE = (f"agent.image={PROGRAM}",)
CASES: list[tuple[Path, tuple[str, ...]]] = [
    *((path, ()) for path in sorted(PIPELINES.glob("*/*.yaml")) if path.name != "pipeline.yaml"),
    *((PIPELINES / name, WITH_IMAGE + more) for name in ("program/world.yaml", "program-mygo/world.yaml")
      for more in ((), ('sampling.engine={"engine": "openai"}',))),
]  # fmt: skip
"""Every shipped recipe, and the recipes of programs with the program's image, without and with a vLLM server."""


def by_key(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod specification without the order of its lists and without the names that the operators require."""
    [container] = pod["containers"]
    result = dict(pod)
    result["containers"] = _by_key({key: value for key, value in container.items() if key != "name"})
    if "initContainers" in pod:
        result["initContainers"] = [_by_key(one) for one in pod["initContainers"]]
    return result | {"volumes": {volume["name"]: volume for volume in pod["volumes"]}}


def _by_key(container: dict[str, Any]) -> dict[str, Any]:
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert len(mounts) == len(container["volumeMounts"])
    return container | {"volumeMounts": mounts}


def assert_equal_pods(theirs: dict[str, Any], job: Description) -> None:
    assert_pod_of(theirs, pytorchjob.render(job))


def assert_pod_of(theirs: dict[str, Any], job: dict[str, Any]) -> None:
    """Compare a TrainJob's merged pod with all pods of a PyTorchJob."""
    merged_pod = dict(theirs)
    assert merged_pod.pop("restartPolicy") == "Never"  # so the exit code decides, by podFailurePolicy
    for ours in pods_of(job):
        assert by_key(merged_pod) == by_key(ours["spec"])


@pytest.mark.parametrize(
    "job",
    [JOB, with_spec(nodes=1, queue=None, priority=None, tolerations=(), node_selector={}),
     with_spec(resources=Resources(gpus=0, shared_memory="1Gi")), SERVED, replace(SERVED, run_folder=None)],
)  # fmt: skip
def test_pods_of_a_trainjob_equal_those_of_a_pytorchjob(job: Description) -> None:
    [theirs], [ours, *_] = pods_of(trainjob.render(job)), pods_of(pytorchjob.render(job))
    assert theirs["metadata"] == ours["metadata"]
    assert_equal_pods(theirs["spec"], job)


def jobs_of(recipe: Recipe, cluster: ClusterSpec, backend: str) -> list[PlannedJob]:
    """Return the jobs of a recipe's steps; an indexed job keeps its kind."""
    choose = lambda job: job if job.indexed else with_backend(job, backend)  # noqa: E731
    jobs, faults = planned_jobs(recipe, Place(cluster, "team-a", choose=choose))
    assert faults == []
    return jobs


@pytest.mark.parametrize(
    ("path", "overrides"),
    [
        pytest.param(path, more, id="-".join((path.parent.name, path.stem, *("image" for _ in more))))
        for path, more in CASES
    ],
)
def test_every_job_of_a_recipe_has_equal_pods_as_trainjob_and_pytorchjob(
    path: Path, overrides: tuple[str, ...]
) -> None:
    recipe = load_recipe(path, overrides, {})
    # Pods of one process: some recipes' work cannot be divided.
    gpus = max(engine.gpus_each for _, engine in recipe.models(EngineSpec))
    if gpus > 1:  # a pod has several processes of other steps, which search through the service
        recipe = load_recipe(path, ("retrieval.url=http://retriever.hopforge-services:8080",), {})
    resources = SHIPPED.job.resources.model_copy(update={"gpus": gpus})
    program = SHIPPED.job.program.model_copy(update={"image": PROGRAM})
    cluster = SHIPPED.model_copy(
        update={"job": SHIPPED.job.model_copy(update={"resources": resources, "program": program})}
    )
    runtimes = {one["metadata"]["name"]: one for one in runtime.runtimes(cluster)}
    used = set()
    for theirs, ours in zip(jobs_of(recipe, cluster, "trainjob"), jobs_of(recipe, cluster, "pytorchjob"), strict=True):
        body = theirs.manifest or {}
        if theirs.kind == "Job":
            assert theirs == ours
            continue
        check(body)
        used.add(body["spec"]["runtimeRef"]["name"])
        [pod] = pods_of_patch(body)
        assert set(pod) <= POD_FIELDS_OF_TRAINER_2_2
        merged = pod_of(body, runtimes[body["spec"]["runtimeRef"]["name"]])
        # The pods name their job, and a TrainJob's name is shorter.
        named = json.dumps(merged).replace(body["metadata"]["name"], (ours.manifest or {})["metadata"]["name"])
        assert_pod_of(json.loads(named), ours.manifest or {})
    assert used
    assert any(name.startswith("hopforge-online") for name in used) == recipe.settings("sampling").engine.brings_server
    assert any(name.endswith("-program") for name in used) == bool(overrides)


def test_patch_of_an_online_job_has_only_variables_and_the_runs_mount() -> None:
    body = trainjob.render(SERVED)
    [pod] = pods_of_patch(body)
    [server] = pod["initContainers"]
    assert set(server) == {"name", "env", "volumeMounts"}
    # The list is keyed by the volume's name, so a volume can be mounted once.
    assert [mount["name"] for mount in server["volumeMounts"]] == ["workspace"]
    assert set(pod) <= POD_FIELDS_OF_TRAINER_2_2
    assert list(rewrite(body)) == []
    assert trainjob.render(JOB)["spec"]["runtimeRef"]["name"] == "hopforge"


def test_a_patch_without_the_runtimes_container_would_lack_its_image() -> None:
    """The plain runtime gives no server: the patch's entry alone is no container."""
    pod = pod_of(trainjob.render(SERVED), RUNTIMES["hopforge"])
    assert [set(one) for one in pod["initContainers"]] == [{"name", "env", "volumeMounts"}]


def test_runtimes_in_the_manifests_are_rendered_from_the_cluster_file() -> None:
    written = list(YAML(typ="safe").load_all((ROOT / "manifests/trainer/cluster-training-runtime.yaml").read_text()))
    assert written == runtime.runtimes(SHIPPED)
    assert [one["metadata"]["name"] for one in written] == [SHIPPED.job.runtime, f"{SHIPPED.job.runtime}-online"]
    for one in written:
        check(one)


@pytest.mark.parametrize(
    ("code", "disrupted", "action"),
    [(143, True, "Ignore"), (143, False, "Count"), (137, False, "Count"), (NODE_LOST, False, "Ignore"),
     (1, False, "FailJob")],
)  # fmt: skip
def test_runtime_fails_a_job_only_for_faults_of_its_program(code: int, disrupted: bool, action: str) -> None:
    """The first rule that a failed pod meets decides; without any, the pod counts against ``backoffLimit``."""
    [processes] = RUNTIMES["hopforge"]["spec"]["template"]["spec"]["replicatedJobs"]

    def meets(rule: dict[str, Any]) -> bool:
        if "onPodConditions" in rule:
            return disrupted
        codes = rule["onExitCodes"]
        assert codes["operator"] in ("In", "NotIn")
        return bool((code in codes["values"]) == (codes["operator"] == "In"))

    rules = processes["template"]["spec"]["podFailurePolicy"]["rules"]
    assert next((rule["action"] for rule in rules if meets(rule)), "Count") == action


def test_cluster_without_a_sampler_has_no_runtime_for_online_jobs() -> None:
    without = SHIPPED.model_copy(update={"job": SHIPPED.job.model_copy(update={"sampler": None})})
    assert [one["metadata"]["name"] for one in runtime.runtimes(without)] == ["hopforge"]


def test_sampler_of_the_cluster_file_is_in_its_online_runtime() -> None:
    sampler = SHIPPED.job.sampler
    assert sampler is not None
    other = sampler.model_copy(update={"image": "registry/sampler@sha256:2"})
    cluster = SHIPPED.model_copy(update={"job": SHIPPED.job.model_copy(update={"sampler": other})})
    served = Sidecar(other, "/workspace/served.json")
    job = replace(SERVED, sidecar=served, spec=cluster.job, workspace=cluster.workspace)
    assert_equal_pods(pod_of(trainjob.render(job), runtime.render(cluster, other)), job)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [([], "error: give one cluster file"), (["none.yaml"], "error: none.yaml: no such file; check the path")],
)
def test_command_without_a_readable_cluster_file_ends_with_an_error(
    arguments: list[str], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["runtime", *arguments])
    with pytest.raises(SystemExit, match=re.escape(error)):
        runpy.run_path(str(ROOT / "platform_sdk/kubeflow/training_job/runtime.py"), run_name="__main__")
