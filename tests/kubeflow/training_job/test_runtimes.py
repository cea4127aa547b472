"""ClusterTrainingRuntimes: a TrainJob merged with its runtime gives the pod of the PyTorchJob.

Two fields cannot be equal. The training-operator requires the container's name ``pytorch`` and the Trainer the name
``node``; and a TrainJob's pods have the restart policy Never, which the PyTorchJob's operator sets instead of the pod.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from platform_sdk.config.cluster import ClusterSpec, Resources
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.kubeflow.training_job import pytorchjob, runtime, trainjob
from platform_sdk.kubeflow.training_job.description import Description, Sidecar
from platform_sdk.kubeflow.training_job.here import describe
from platform_sdk.processes.launch import StepProcesses
from tests.kubeflow.crds import ROOT, check
from tests.kubeflow.training_job.test_rendering import JOB, SERVED, pods_of, with_spec
from tests.kubeflow.training_job.trainer import POD_FIELDS_OF_TRAINER_2_2, pod_of, pods_of_patch, rewrite

SHIPPED = read_as(ClusterSpec, ROOT / "pipelines/cluster.yaml")
RUNTIMES = {one["metadata"]["name"]: one for one in runtime.runtimes(SHIPPED)}
RECIPES = sorted(path for path in (ROOT / "pipelines").glob("*/*.yaml") if path.name != "pipeline.yaml")
ONLINE = [path for path in RECIPES if load_recipe(path).settings("sampling").engine.brings_server]


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
    merged_pod = dict(theirs)
    assert merged_pod.pop("restartPolicy") == "Never"  # so the exit code decides, by podFailurePolicy
    for ours in pods_of(pytorchjob.render(job)):
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


def test_there_are_online_recipes() -> None:
    assert len(ONLINE) >= 3


@pytest.mark.parametrize("trains", [True, False], ids=["online", "sample"])
@pytest.mark.parametrize("path", ONLINE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_online_recipe_has_equal_pods_as_trainjob_and_pytorchjob(path: Path, trains: bool) -> None:
    run_dir = Path(f"/workspace/runs/{load_recipe(path).name}-d7c4a5a2")
    work = StepProcesses(
        "platform_sdk.methods", run_dir / "online/step.json", "online" if trains else "sample", trains=trains,
        server_spec=run_dir / "online/server.json",
    )  # fmt: skip
    job = describe(work, SHIPPED, run_dir, "team-a")
    body = trainjob.render(job)
    assert body["spec"]["runtimeRef"]["name"] == "hopforge-online"
    check(body)
    assert_equal_pods(pod_of(body, RUNTIMES["hopforge-online"]), job)


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
