"""Which job a step's work becomes: image, GPUs, processes, and what stands beside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from platform_sdk.config.cluster import ClusterSpec, JobSpec, Resources, SamplerSpec, Workspace
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.description import Description
from platform_sdk.kubeflow.training_job.here import describe
from platform_sdk.training.launch import Work

RUN = Path("/workspace/runs/hotpot-1")
SAMPLER = SamplerSpec(image="sampler")
CLUSTER = ClusterSpec(
    workspace=Workspace(claim="w"), launcher_image="launcher",
    job=JobSpec(image="trainer", nodes=2, resources=Resources(gpus=8), sampler=SAMPLER),
)  # fmt: skip
TRAINING = Work("platform_sdk.training", RUN / "iteration-03/job.json", "train")
SAMPLING = Work("platform_sdk.recipes", RUN / "iteration-03/sample-job.json", "sample", trains=False)
ONLINE = Work("platform_sdk.recipes", RUN / "online/online-job.json", "online")


def job(work: Work, cluster: ClusterSpec = CLUSTER) -> Description:
    return describe(work, cluster, RUN, "team-a")


def summary(job: Description) -> tuple[str, str, int, int, bool]:
    return job.step, job.spec.image, job.spec.resources.gpus, job.processes_per_node, job.sidecar is not None


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (TRAINING, ("train-iteration-03", "trainer", 8, 8, False)),
        (SAMPLING, ("sample-iteration-03", "trainer", 8, 8, False)),  # with the transformers engine
        (replace(SAMPLING, vllm=True), ("sample-iteration-03", "sampler", 8, 8, False)),
        (replace(SAMPLING, vllm=True, gpus_each=4), ("sample-iteration-03", "sampler", 8, 2, False)),
        # A client of the server beside it needs no GPU.
        (replace(SAMPLING, served=RUN / "s.json"), ("sample-iteration-03", "trainer", 0, 1, True)),
        (ONLINE, ("online-online", "trainer", 8, 8, False)),
        (replace(ONLINE, served=RUN / "s.json"), ("online-online", "trainer", 8, 8, True)),
    ],
)
def test_what_work_becomes(work: Work, expected: tuple[str, str, int, int, bool]) -> None:
    assert summary(job(work)) == expected


def test_a_cluster_without_gpus_runs_one_process_a_pod() -> None:
    spec = CLUSTER.job.model_copy(update={"resources": Resources(gpus=0), "sampler": None})
    cluster = CLUSTER.model_copy(update={"job": spec})
    for work in (TRAINING, SAMPLING):
        assert summary(job(work, cluster))[2:] == (0, 1, False)


def test_what_the_cluster_lacks_is_said() -> None:
    without = CLUSTER.model_copy(update={"job": CLUSTER.job.model_copy(update={"sampler": None})})
    for work in (replace(SAMPLING, vllm=True), replace(SAMPLING, served=RUN / "s"), replace(ONLINE, served=RUN / "s")):
        with pytest.raises(UserError, match=r"give job\.sampler an image"):
            job(work, without)
    with pytest.raises(UserError, match=r"an engine takes 16 GPUs, but a pod has 8 \(job\.resources\.gpus\)"):
        job(replace(SAMPLING, vllm=True, gpus_each=16))
