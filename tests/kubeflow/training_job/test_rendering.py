"""What a job is created as: valid by the published schemas, and by what the webhooks ask besides."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from platform_sdk.config.cluster import JobSpec, Resources, Workspace
from platform_sdk.kubeflow.training_job import pytorchjob, trainjob
from platform_sdk.kubeflow.training_job.description import SPEC_DIGEST, Description, Owner, job_name
from tests.kubeflow.crds import check

SPEC = JobSpec(
    image="registry/trainer@sha256:0", nodes=3, resources=Resources(gpus=8), queue="team-a", priority="high",
    secrets={"HF_TOKEN": "hugging-face/token"}, node_selector={"gpu": "h100"},
    tolerations=({"key": "gpu", "operator": "Exists"},),
)  # fmt: skip
JOB = Description(
    run="hotpot", step="train-iteration-03", namespace="team-a", module="platform_sdk.training",
    spec_file="/workspace/runs/x/job.json", spec=SPEC, workspace=Workspace(claim="runs"),
    owner=Owner("argoproj.io/v1alpha1", "Workflow", "run-abc", "uid"), environment=(("OMP_NUM_THREADS", "4"),),
)  # fmt: skip


def with_spec(**values: Any) -> Description:
    return replace(JOB, spec=SPEC.model_copy(update=values))


@pytest.mark.parametrize(
    "body",
    [
        pytorchjob.render(JOB),
        pytorchjob.render(with_spec(nodes=1)),
        pytorchjob.render(with_spec(minimum_nodes=2)),
        pytorchjob.render(with_spec(queue=None, priority=None, resources=Resources(gpus=0))),
        trainjob.render(JOB),
        trainjob.render(with_spec(nodes=1, queue=None, priority=None)),
    ],
)
def test_it_is_valid_by_the_published_schema(body: dict[str, Any]) -> None:
    check(body)


def test_a_pytorchjob_obeys_the_webhook() -> None:
    for nodes in (1, 2, 5):
        replicas = pytorchjob.render(with_spec(nodes=nodes))["spec"]["pytorchReplicaSpecs"]
        assert replicas["Master"]["replicas"] == 1
        assert sum(role["replicas"] for role in replicas.values()) == nodes
        assert set(replicas) <= {"Master", "Worker"}
        for role in replicas.values():
            assert role["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode")
            [container] = role["template"]["spec"]["containers"]
            assert (container["name"], container["image"]) == ("pytorch", SPEC.image)


@pytest.mark.parametrize("backend", [pytorchjob, trainjob])
def test_both_kinds_say_the_same(backend: Any) -> None:
    body = backend.render(JOB)
    text = str(body)
    assert body["metadata"]["name"] == JOB.name
    assert body["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    for part in (SPEC.image, "/workspace/runs/x/job.json", "'nvidia.com/gpu': '8'", "'key': 'token'", "'gpu': 'h100'",
                 "'claimName': 'runs'", "'medium': 'Memory'", "'drop': ['ALL']", "'runAsNonRoot': True"):  # fmt: skip
        assert part in text, part
    # Suspended for Kueue to admit, if there is a queue.
    for job, suspended in ((JOB, True), (with_spec(queue=None, priority=None), False)):
        spec = backend.render(job)["spec"]
        assert spec.get("suspend", spec.get("runPolicy", {}).get("suspend")) is suspended


def test_the_digest_tells_other_jobs_apart_and_not_other_attempts() -> None:
    def digest(job: Description) -> str:
        return str(pytorchjob.render(job)["metadata"]["annotations"][SPEC_DIGEST])

    assert digest(JOB) == digest(replace(JOB, owner=Owner("v1", "Pod", "another-attempt", "uid-2")))
    assert digest(JOB) != digest(with_spec(nodes=2))
    assert digest(JOB) != digest(replace(JOB, spec_file="/workspace/other.json"))


def test_names_are_valid_and_differ() -> None:
    runs = ["hotpot", "Hotpot", "7B run", "a" * 90, "a" * 91, "übung", "-x-"]
    names = {job_name(run, step) for run in runs for step in ("train-01", "train-02")}
    assert len(names) == 2 * len(runs)
    for name in names:
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
        assert len(f"{name}-worker-99") <= 63


def test_a_job_that_cannot_be_is_refused() -> None:
    for values, reason in (
        ({"minimum_nodes": 4}, "above nodes"),
        ({"minimum_nodes": 2, "backend": "trainjob"}, "elastic"),
        ({"queue": None}, "name a queue"),
        ({"secrets": {"TOKEN": "no-key"}}, "secrets"),
        ({"resources": {"memory": "64 GB"}}, "memory"),
    ):
        with pytest.raises(ValidationError, match=reason):
            JobSpec.model_validate(SPEC.model_dump() | values)
