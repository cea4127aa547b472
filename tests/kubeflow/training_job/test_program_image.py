"""A program's image in jobs: a sidecar with nothing of the run, in PyTorchJobs and TrainJobs alike."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.cluster import ProgramSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.kubeflow.training_job import pytorchjob, runtime, trainjob
from platform_sdk.kubeflow.training_job.backend import choose_backend, with_decided_backend
from platform_sdk.kubeflow.training_job.description import Description, ProgramSidecar
from platform_sdk.kubeflow.training_job.here import describe
from platform_sdk.methods.method import load_method
from platform_sdk.planning.jobs import requests_of
from platform_sdk.processes.launch import ProgramImage, StepProcesses
from tests.kubeflow.crds import ROOT, check
from tests.kubeflow.training_job.test_rendering import CLUSTER, JOB, SERVED
from tests.kubeflow.training_job.test_runtimes import assert_equal_pods
from tests.kubeflow.training_job.trainer import pod_of, rewrite

IMAGE = "registry/agent@sha256:2"
NAMED = CLUSTER.model_copy(
    update={"job": CLUSTER.job.model_copy(update={"program": ProgramSpec(image=IMAGE)})}
)  # fmt: skip
RUNTIMES = {one["metadata"]["name"]: one for one in runtime.runtimes(NAMED)}


def with_program(job: Description, image: str = IMAGE, **fields: Any) -> Description:
    program = ProgramSidecar(ProgramImage(image, **fields), NAMED.job.image)
    return replace(job, spec=NAMED.job, program=program)


@pytest.mark.parametrize("job", [JOB, SERVED], ids=["alone", "with a vLLM server"])
def test_job_with_a_program_is_valid_and_equal_in_both_kinds(job: Description) -> None:
    job = with_program(job)
    body = trainjob.render(job)
    check(pytorchjob.render(job))
    check(body)
    assert list(rewrite(body)) == [], "Kueue keeps the whole patch"
    name = "hopforge-online-program" if job.sidecar else "hopforge-program"
    assert body["spec"]["runtimeRef"]["name"] == name
    check(RUNTIMES[name])
    assert_equal_pods(pod_of(body, RUNTIMES[name]), job)


@pytest.mark.parametrize("serves", [False, True], ids=["command", "url"])
def test_program_has_nothing_of_the_run(serves: bool) -> None:
    job = with_program(SERVED, serves=serves)
    pod = job.pod("pytorch")
    program = pod["initContainers"][-1]
    assert (program["name"], program["image"], program["restartPolicy"]) == ("program", IMAGE, "Always")
    assert "env" not in program
    assert "envFrom" not in program
    mounted = {mount["name"] for mount in program["volumeMounts"]}
    assert mounted == ({"program-scratch"} if serves else {"program-runner", "program-scratch"})
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert all("emptyDir" in volumes[name] for name in mounted)
    assert not mounted & {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}, "no folder in common"
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    security = program["securityContext"]
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["runAsUser"] not in (0, pod["securityContext"]["runAsGroup"])
    assert ("command" in program) is not serves


def test_main_container_finds_the_runner_that_is_copied_in() -> None:
    pod = with_program(JOB).pod("pytorch")
    copy, program = pod["initContainers"]
    dockerfile = (ROOT / "images/Dockerfile").read_text()
    source, target = copy["command"][1:]
    assert f"COPY --from=runner /hopforge-runner {source}\n" in dockerfile
    assert copy["image"] == NAMED.job.image
    assert "restartPolicy" not in copy, "it ends before the others start"
    [port] = [word for word in program["command"] if word.isdecimal()]
    assert program["command"] == [target, port]
    assert program["startupProbe"]["exec"]["command"] == [target, port, "--check"]
    assert {"name": "HOPFORGE_PROGRAM_RUNNER", "value": f"127.0.0.1:{port}"} in pod["containers"][0]["env"]
    opened = NAMED.job.model_copy(update={"program": ProgramSpec(open_network=True)})
    assert "--open-network" in replace(with_program(JOB), spec=opened).pod("x")["initContainers"][1]["command"]


def test_requests_count_the_program_and_not_the_copy() -> None:
    without, with_it = requests_of(JOB.pod("x")), requests_of(with_program(JOB).pod("x"))
    assert with_it["cpu"] - without["cpu"] == 4
    assert with_it["memory"] - without["memory"] == 8 * 2**30


def test_recipe_with_an_image_is_a_job_with_a_sidecar() -> None:
    change = 'agent={"image": "registry/agent:1", "command": ["/agent"]}'
    recipe = load_recipe(ROOT / "pipelines/program/world.yaml", (change,))
    image = load_method("program").program_image(recipe.parameters["agent"])
    assert image == ProgramImage("registry/agent:1")
    run_dir = Path("/workspace/runs/x")
    work = StepProcesses("platform_sdk.methods", run_dir / "online/step.json", "online", program=image)
    job = describe(work, NAMED, run_dir, "team-a")
    assert job.program == ProgramSidecar(image, NAMED.job.image)
    plain = load_recipe(ROOT / "pipelines/program/world.yaml").parameters["agent"]
    assert load_method("program").program_image(plain) is None


def test_trainjobs_take_the_image_of_the_runtimes_only() -> None:
    assert with_decided_backend(with_program(JOB)) is None, "the cluster's APIs decide"
    for job, names_remedy in ((with_program(JOB, "registry/other:1"), True), (with_program(JOB, serves=True), False)):
        chosen = with_decided_backend(job)
        assert chosen is not None
        assert chosen.backend == "pytorchjob"
        wanted = replace(job, spec=job.spec.model_copy(update={"backend": "trainjob"}))
        with pytest.raises(UserError, match=r"cannot be in a TrainJob; set job\.backend: pytorchjob") as raised:
            choose_backend(wanted, None, print)
        assert ("or name the image in job.program.image" in str(raised.value)) == names_remedy


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_admission_refuses_a_program_with_secrets_or_the_workspace() -> None:
    pytest.importorskip("cel", reason="the extra [dev] is not installed")
    from tests.kubeflow import admission
    from tests.kubeflow.admission import Request, refusals

    job = replace(admission.SERVED, program=with_program(JOB).program)
    for render in (pytorchjob.render, trainjob.render):
        assert refusals(Request(render(job))) == []
    secret = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "run-access", "key": "retriever-token"}}}
    for change in (
        {"env": [secret]},
        {"envFrom": [{"secretRef": {"name": "run-access"}}]},
        {"volumeMounts": [{"name": "workspace", "mountPath": "/workspace"}]},
    ):
        body = pytorchjob.render(job)
        for role in body["spec"]["pytorchReplicaSpecs"].values():
            role["template"]["spec"]["initContainers"][-1] |= change
        assert any(message.startswith("the container program") for message in refusals(Request(body)))
        patched = trainjob.render(job)
        [patch] = patched["spec"]["runtimePatches"]
        [node] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        node["template"]["spec"]["template"]["spec"]["initContainers"].append({"name": "program", **change})
        assert any(message.startswith("the container program") for message in refusals(Request(patched)))


def test_a_build_sees_everything_that_the_dockerfile_copies() -> None:
    """Podman reads one of the files, Docker the other."""
    ignored = (ROOT / ".containerignore").read_text()
    assert ignored == (ROOT / ".dockerignore").read_text()
    seen = {line.removeprefix("!") for line in ignored.splitlines() if line.startswith("!")}
    lines = [
        line.split()[1:-1] for line in (ROOT / "images/Dockerfile").read_text().splitlines() if line[:5] == "COPY "
    ]
    copied = [path for words in lines if not words[0].startswith("--") for path in words]
    assert "images/runner/runner.c" in copied
    assert [path for path in copied if not any((path + "/").startswith(f"{one}/") for one in seen)] == []
