"""Objects that jobs are created as: valid by the published schemas and the webhooks' further rules."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from platform_sdk.config.cluster import ClusterSpec, JobSpec, Resources, SamplerResources, SamplerSpec, Workspace
from platform_sdk.kubeflow.training_job import indexedjob, pytorchjob, runtime, trainjob
from platform_sdk.kubeflow.training_job.description import (
    SPEC_DIGEST,
    Description,
    Owner,
    Sidecar,
    job_name,
    label_value,
)
from platform_sdk.kubeflow.training_job.launcher import API_PATIENCE
from tests.kubeflow.crds import ROOT, check
from tests.kubeflow.training_job.recordings import recording
from tests.kubeflow.training_job.trainer import merged, pod_of

DOCKERFILE = (ROOT / "images/Dockerfile").read_text()
SPEC = JobSpec(
    image="registry/trainer@sha256:0", nodes=3, resources=Resources(gpus=8), queue="team-a", priority="high",
    secrets={"HF_TOKEN": "hugging-face/token"}, node_selector={"gpu": "h100"},
    tolerations=({"key": "gpu", "operator": "Exists"},),
)  # fmt: skip
JOB = Description(
    run="hotpot", step="train-iteration-03", namespace="team-a", module="platform_sdk.training",
    spec_file="/workspace/runs/x/job.json", spec=SPEC, workspace=Workspace(claim="runs"),
    owner=Owner("argoproj.io/v1alpha1", "Workflow", "run-abc", "uid"), environment=(("OMP_NUM_THREADS", "4"),),
    run_folder="runs/x",
)  # fmt: skip
SAMPLER = SamplerSpec(image="registry/sampler@sha256:1", resources=SamplerResources(cpu="4", memory="32Gi", gpus=2))
CLUSTER = ClusterSpec(
    workspace=JOB.workspace, launcher_image="l", job=SPEC.model_copy(update={"sampler": SAMPLER})
)  # fmt: skip
RUNTIMES = {one["metadata"]["name"]: one for one in runtime.runtimes(CLUSTER)}
SERVED = replace(JOB, sidecar=Sidecar(SAMPLER, "/workspace/runs/x/online/online-server.json"))


def with_spec(**values: Any) -> Description:
    return replace(JOB, spec=SPEC.model_copy(update=values))


@pytest.mark.parametrize(
    "body",
    [
        pytorchjob.render(JOB),
        pytorchjob.render(with_spec(nodes=1)),
        pytorchjob.render(with_spec(minimum_nodes=2)),
        pytorchjob.render(with_spec(queue=None, priority=None, resources=Resources(gpus=0))),
        pytorchjob.render(SERVED),
        trainjob.render(JOB),
        trainjob.render(with_spec(nodes=1, queue=None, priority=None)),
        trainjob.render(SERVED),
        *RUNTIMES.values(),
    ],
)
def test_rendered_job_is_valid_by_the_published_schema(body: dict[str, Any]) -> None:
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


def test_every_trainer_pod_has_a_server_sidecar() -> None:
    replicas = pytorchjob.render(SERVED)["spec"]["pytorchReplicaSpecs"]
    assert [role["replicas"] for role in replicas.values()] == [1, 2]
    for role in replicas.values():
        pod = role["template"]["spec"]
        [trainer], [server] = pod["containers"], pod["initContainers"]
        # An init container that is always restarted is a native sidecar: the others start when it answers.
        assert (server["name"], server["restartPolicy"], server["image"]) == ("sampler", "Always", SAMPLER.image)
        assert server["resources"]["limits"] == {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "2"}
        assert trainer["resources"]["limits"]["nvidia.com/gpu"] == "8"
        [port] = re.findall(r"--port (\d+)$", " ".join(server["command"]))
        assert "$(HOPFORGE_SERVER_SPEC)" in server["command"]
        assert {
            "name": "HOPFORGE_SERVER_SPEC",
            "value": "/workspace/runs/x/online/online-server.json",
        } in server["env"]
        assert {"name": "HOPFORGE_SAMPLER_URL", "value": f"http://127.0.0.1:{port}"} in trainer["env"]
        # New weights come to it as files in the trainer's temporary folder.
        assert server["volumeMounts"] == trainer["volumeMounts"]
        assert server["securityContext"] == trainer["securityContext"]
        # What the kubelet asks cannot reach a server that listens on the loopback.
        assert set(server["startupProbe"]) > {"exec", "failureThreshold"}
        compile(server["startupProbe"]["exec"]["command"][-1], "probe", "exec")
    assert "initContainers" not in str(pytorchjob.render(JOB))


def pods_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the templates of a job's pods; a TrainJob's as the named runtime and its patch make them."""
    if body["kind"] == "PyTorchJob":
        return [role["template"] for role in body["spec"]["pytorchReplicaSpecs"].values()]
    if body["kind"] == "Job":
        return [body["spec"]["template"]]
    [patch] = body["spec"]["runtimePatches"]
    [node] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    base = RUNTIMES[body["spec"]["runtimeRef"]["name"]]
    return [{**node["template"]["spec"]["template"], "spec": pod_of(body, base)}]


@pytest.mark.parametrize("backend", [pytorchjob, trainjob])
def test_jobs_have_their_settings(backend: Any) -> None:
    body = backend.render(JOB)
    assert body["metadata"]["name"] == JOB.name
    assert body["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    for pod in pods_of(body):
        text = str(pod)
        for part in (SPEC.image, "/workspace/runs/x/job.json", "'nvidia.com/gpu': '8'", "'key': 'token'",
                     "'gpu': 'h100'", "'claimName': 'runs'", "'medium': 'Memory'", "'drop': ['ALL']",
                     "'runAsNonRoot': True"):  # fmt: skip
            assert part in text, part
    # Suspended for Kueue to admit, if there is a queue.
    for job, suspended in ((JOB, True), (with_spec(queue=None, priority=None), False)):
        spec = backend.render(job)["spec"]
        assert spec.get("suspend", spec.get("runPolicy", {}).get("suspend")) is suspended


def test_merge_of_patch_and_runtime_is_the_recorded_one() -> None:
    """Calibrate the merge: the Trainer made the recorded JobSet from the TrainJob and a runtime with three mounts."""
    recorded = recording("trainjob-and-jobset.json")
    [made] = recorded["jobset"]["spec"]["replicatedJobs"]
    made = made["template"]["spec"]["template"]["spec"]
    mounts = [{"name": "workspace", "mountPath": "/workspace", "readOnly": True}] + [
        {"name": "workspace", "mountPath": f"/workspace/{folder}", "subPath": folder}
        for folder in ("cache", "huggingface")
    ]
    base = {"containers": [{"name": "node", "volumeMounts": mounts}], "restartPolicy": "OnFailure"}
    trainjob_runtime = {
        "spec": {"template": {"spec": {"replicatedJobs": [{"template": {"spec": {"template": {"spec": base}}}}]}}}
    }
    pod = pod_of(recorded["trainjob"], trainjob_runtime)
    [theirs], [ours] = made.pop("containers"), pod.pop("containers")
    assert pod == made
    assert ours["volumeMounts"] == theirs["volumeMounts"]
    assert ours["env"] == [one for one in theirs["env"] if not one["name"].startswith("PET_")]
    assert theirs == merged(theirs, {**ours, "env": theirs["env"]})


@pytest.mark.parametrize("backend", [pytorchjob, trainjob, indexedjob])
def test_pods_write_a_fresh_volume_and_stay_out_of_the_mesh(backend: Any) -> None:
    body = backend.render(JOB)
    [(user, group)] = set(re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE))
    for pod in pods_of(body):
        assert pod["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
        security = pod["spec"]["securityContext"]
        assert (security["fsGroup"], security["fsGroupChangePolicy"]) == (int(group), "OnRootMismatch")
        assert security["runAsGroup"] == int(group) == int(user)  # an image's group is not used
    assert "istio" not in str(body["metadata"])


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


def test_trainjob_of_a_kubeflow_run_has_pod_names_that_jobset_accepts() -> None:
    job = replace(with_spec(backend="trainjob"), run=f"mygo-world-{uuid.UUID(int=1)}")
    name = trainjob.render(job)["metadata"]["name"]
    assert len(f"{name}-node-0-99-abcde") <= 63  # sigs.k8s.io/jobset, pkg/webhooks/jobset_webhook.go
    assert name != trainjob.render(replace(job, step="evaluate"))["metadata"]["name"]
    assert len(pytorchjob.render(replace(JOB, run=job.run))["metadata"]["name"]) == 50  # as in earlier versions


def test_labels_are_valid_and_differ() -> None:
    run = f"{'long' * 17}er-{uuid.UUID(int=1)}"  # of a recipe whose name alone is longer than a label
    other = f"{'long' * 17}er-{uuid.UUID(int=2)}"
    texts = [run, other, run[:63], run[:62] + "-x", "a b", "a-b", "a_b", "-a-b-", "ü", "?"]
    labels = [label_value(text) for text in texts]
    assert len(set(labels)) == len(texts)
    for label in labels:
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", label)
    for text in ("a-b", "a_b", "Hotpot.7B", "x" * 63):
        assert label_value(text) == text
    assert labels[0].startswith("longlonglong")
    one, two = (pods_of(pytorchjob.render(replace(JOB, run=text)))[0] for text in texts[:2])
    assert one["metadata"]["labels"]["hopforge.dev/run"] != two["metadata"]["labels"]["hopforge.dev/run"]


def test_pods_of_runs_are_labelled_with_their_step() -> None:
    """The network's policies know pods of runs, those of steps too, by that label."""
    assert replace(JOB, environment=(("HOPFORGE_TASK", "train-03"),)).labels()["hopforge.dev/task"] == "train-03"
    assert JOB.labels()["hopforge.dev/task"] == "train-iteration-03"


def test_a_finished_job_outlasts_the_patience_of_its_launcher() -> None:
    """A job gone between two looks would be taken for one that somebody deleted, though it ended well."""
    for seconds in (0, API_PATIENCE):
        with pytest.raises(ValidationError, match="ttl_seconds"):
            JobSpec.model_validate(SPEC.model_dump() | {"ttl_seconds": seconds})


def test_contradictory_job_specs_are_refused() -> None:
    for values, reason in (
        ({"minimum_nodes": 4}, "above nodes"),
        ({"minimum_nodes": 2, "backend": "trainjob"}, "elastic"),
        ({"queue": None}, "needs a Kueue queue"),
        ({"queue": "q" * 64}, "queue"),
        ({"secrets": {"TOKEN": "no-key"}}, "secrets"),
        ({"resources": {"memory": "64 GB"}}, "memory"),
    ):
        with pytest.raises(ValidationError, match=reason):
            JobSpec.model_validate(SPEC.model_dump() | values)


def test_a_clusters_network_reaches_the_pod() -> None:
    """NCCL's variables and the device of its network, as the cluster's file gives them."""
    job = with_spec(
        environment={"NCCL_SOCKET_IFNAME": "eth0"}, resources=Resources(gpus=8, others={"rdma/hca_shared_devices_a": 1})
    )
    [container] = job.pod("pytorch")["containers"]
    assert {"name": "NCCL_SOCKET_IFNAME", "value": "eth0"} in container["env"]
    assert container["resources"]["limits"] == {
        "cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "1",
    }  # fmt: skip
    check(pytorchjob.render(job))
