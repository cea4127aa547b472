"""Description of a job, independent of the kind of its object: names, processes, labels."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from platform_sdk.config.cluster import JobSpec, SamplerSpec, Workspace
from platform_sdk.config.sampling import PROGRAM_RUNNER, SAMPLER_HOST, SAMPLER_URL
from platform_sdk.kubeflow.training_job.pod import (
    CONTAINER_SECURITY,
    GRACE_SECONDS,
    POD_SECURITY,
    PROGRAM_PORT,
    SAMPLER_PORT,
    SERVER_SPEC,
    amounts,
    folder_mount,
    program,
    program_volumes,
    server,
    shared_mounts,
    volumes,
)
from platform_sdk.processes.launch import ProgramImage

MANAGER = "hopforge"
LABEL_MANAGER = "app.kubernetes.io/managed-by"
LABEL_RUN = "hopforge.dev/run"
"""Label of jobs and their pods: the run directory's name, by which a run's jobs are found. (Steps' pods have KFP's
label.)
"""
LABEL_STEP = "hopforge.dev/step"
"""Label of jobs and their pods: the step, e.g. train-iteration-03."""
LABEL_TASK = "hopforge.dev/task"
TASK = "HOPFORGE_TASK"
"""The label, and the environment variable, with the pipeline's step of a pod or a job.

All pods of runs, of steps and of jobs, have the label, which the network policies select.
"""
NO_MESH = {"sidecar.istio.io/inject": "false"}
"""Label of pods outside Istio's mesh, to which Kubeflow adds a profile's namespace: the mesh's sidecar never ends, so
no job would end, and the network policies block it."""
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"
LABEL_PRIORITY = "kueue.x-k8s.io/priority-class"
SPEC_DIGEST = "hopforge.dev/spec-digest"
HEARTBEAT = "hopforge.dev/heartbeat"
RAN = "hopforge.dev/ran-seconds"
"""Annotation with the seconds for which a job has been admitted, up to its last heartbeat."""
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Create the rendezvous store again at every restart. By default, the launcher's store outlives the processes, and a
fast process finds the previous address of another (pytorch/pytorch#135712)."""
LONGEST_LABEL = 63
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LONGEST_NAME = 50  # a pod's name plus "-worker-99" must be a label of 63 characters
LONGEST_TRAINJOB_NAME = 47  # JobSet refuses a name which with "-node-0-99-abcde" exceeds 63 characters


@dataclass(frozen=True)
class Owner:
    """Owner of the job, i.e. the run's workflow: its deletion also deletes the job."""

    api_version: str
    kind: str
    name: str
    uid: str

    def reference(self) -> dict[str, Any]:
        return {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}


@dataclass(frozen=True)
class Sidecar:
    """A vLLM server in every pod: its command and its specification."""

    spec: SamplerSpec
    served: str


@dataclass(frozen=True)
class ProgramSidecar:
    """A user's program in every pod; ``runner_image`` has the runner, which is copied into the program's container."""

    program: ProgramImage
    runner_image: str


@dataclass(frozen=True)
class Description:
    """One job: ``python -m MODULE --spec FILE`` on ``spec.nodes`` pods, a process for each GPU, or for ``gpus_each``.

    ``processes`` is the number of processes of a pod without GPUs. ``run_folder`` is the run directory, relative to the
    workspace; None if the job writes no run. Everything else in the workspace is read-only, except
    ``workspace.writable``. The pods of an ``indexed`` job share nothing; each has one process.
    """

    run: str
    step: str
    namespace: str
    module: str
    spec_file: str
    spec: JobSpec
    workspace: Workspace
    owner: Owner | None = None
    processes: int = 1
    gpus_each: int = 1
    environment: tuple[tuple[str, str], ...] = ()
    sidecar: Sidecar | None = None
    run_folder: str | None = None
    indexed: bool = False
    program: ProgramSidecar | None = None

    @property
    def name(self) -> str:
        """Return the job's name, equal for every attempt of the step, so that a second launcher finds the job."""
        longest = LONGEST_TRAINJOB_NAME if self.backend == "trainjob" else LONGEST_NAME
        return job_name(self.run, self.step, longest)

    @property
    def backend(self) -> str:
        """Return the kind of the job's object, a key of ``backend.BACKENDS``."""
        return "job" if self.indexed else self.spec.backend or "pytorchjob"

    @property
    def gpus(self) -> int:
        """Return the GPUs of all pods, vLLM servers included; for an elastic job its maximum."""
        beside = 0 if self.sidecar is None else self.sidecar.spec.resources.gpus
        return self.spec.nodes * (self.spec.resources.gpus + beside)

    @property
    def processes_per_node(self) -> int:
        return self.spec.resources.gpus // self.gpus_each or self.processes

    @property
    def command(self) -> list[str]:
        """Return the command of a pod: torchrun, or the module itself in an indexed job.

        The operator sets the number of nodes and the node's rank in PET_ variables. The rendezvous store is in the
        first node's torchrun instead of its first worker, so that it survives a restart of the workers. (For an elastic
        job the operator sets the rendezvous itself.)
        """
        if self.indexed:
            return ["python", "-m", self.module, "--spec", self.spec_file]
        launcher = ["python", "-m", "platform_sdk.processes.torchrun", "--max-restarts", str(self.spec.restarts)]
        if self.spec.minimum_nodes is None:
            place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "$(PET_MASTER_ADDR):$(PET_MASTER_PORT)"]
            launcher += [*place, "--rdzv-id", self.name]
        return [*launcher, "-m", self.module, "--spec", self.spec_file]

    def labels(self) -> dict[str, str]:
        labels = {
            LABEL_MANAGER: MANAGER,
            LABEL_RUN: label_value(self.run),
            LABEL_STEP: label_value(self.step),
            LABEL_TASK: label_value(dict(self.environment).get(TASK, self.step)),
        }
        if self.spec.queue is not None:
            labels[LABEL_QUEUE] = self.spec.queue
        if self.spec.priority is not None:
            labels[LABEL_PRIORITY] = self.spec.priority
        return labels

    def pod_metadata(self) -> dict[str, Any]:
        """Return the metadata of the job's pods; pods on several nodes prefer to be near each other."""
        metadata: dict[str, Any] = {"labels": {**self.labels(), **NO_MESH}}
        if self.spec.topology is not None and self.spec.nodes > 1:
            metadata["annotations"] = {PREFERRED_TOPOLOGY: self.spec.topology}
        return metadata

    def metadata(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the job's metadata, with the digest of its specification ``body``."""
        metadata: dict[str, Any] = {
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.labels(),
            "annotations": {SPEC_DIGEST: digest_of(body)},
        }
        if self.owner is not None:
            metadata["ownerReferences"] = [self.owner.reference()]
        return metadata

    def pod(self, container: str) -> dict[str, Any]:
        """Return the specification of a pod with one container, named ``container``, and possibly a sidecar."""
        own = self.spec.resources
        pod: dict[str, Any] = {
            "containers": [
                self._container(
                    container, self.spec.image, self.command,
                    amounts(own.cpu, own.memory, own.gpus, own.gpu_resource)
                    | {name: str(count) for name, count in own.others.items()},
                    ({} if self.indexed else OWN_STORE)
                    | ({SAMPLER_URL: f"http://{SAMPLER_HOST}:{SAMPLER_PORT}"} if self.sidecar else {})
                    | ({PROGRAM_RUNNER: f"127.0.0.1:{PROGRAM_PORT}"} if self.program else {}),
                )
            ],
            "volumes": volumes(self.workspace, own.shared_memory),
            "securityContext": POD_SECURITY,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
        }  # fmt: skip
        if self.sidecar is not None:
            pod["initContainers"] = [self._server(self.sidecar)]
        if self.program is not None:
            own_image = self.program.program
            containers = program(
                own_image.image, self.spec.program, self.program.runner_image, serves=own_image.serves
            )  # fmt: skip
            pod["initContainers"] = [*pod.get("initContainers", ()), *containers]
            pod["volumes"] = [*pod["volumes"], *program_volumes()]
        if self.spec.node_selector:
            pod["nodeSelector"] = dict(self.spec.node_selector)
        if self.spec.tolerations:
            pod["tolerations"] = [dict(toleration) for toleration in self.spec.tolerations]
        return pod

    def _server(self, sidecar: Sidecar) -> dict[str, Any]:
        """Return the vLLM server's container with the run's variables and mount."""
        container = server(sidecar.spec, self.workspace, self.spec.resources.gpu_resource)
        return {
            **container,
            "env": self._variables({SERVER_SPEC: sidecar.served}),
            "volumeMounts": [*container["volumeMounts"], *self.run_mounts()],
        }

    def _container(
        self, name: str, image: str, command: list[str], amounts: dict[str, str], variables: dict[str, str]
    ) -> dict[str, Any]:
        return {
            "name": name,
            "image": image,
            "command": command,
            "env": self._variables(variables),
            "resources": {"requests": amounts, "limits": amounts},
            "volumeMounts": [*shared_mounts(self.workspace), *self.run_mounts()],
            "securityContext": CONTAINER_SECURITY,
        }

    def run_mounts(self) -> list[dict[str, Any]]:
        """Return the mount of the run's folder; other runs, datasets and models are read-only."""
        return [] if self.run_folder is None else [folder_mount(self.workspace, self.run_folder)]

    def _variables(self, own: dict[str, str]) -> list[dict[str, Any]]:
        plain: list[dict[str, Any]] = [
            {"name": name, "value": value}
            for name, value in (*self.environment, *self.spec.environment.items(), *own.items())
        ]
        for name, entry in self.spec.secrets.items():
            secret, _, key = entry.partition("/")
            plain.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
        return plain


def job_name(run: str, step: str, longest: int = LONGEST_NAME) -> str:
    """Return a readable name of at most ``longest`` characters for the job of a run's step, unique by run and step."""
    readable = re.sub(r"[^a-z0-9]+", "-", f"{run}-{step}".lower()).strip("-")
    readable = readable if readable[:1].isalpha() else f"h-{readable}"
    return _told_apart(f"{run}\n{step}", readable, longest)


def digest_of(body: dict[str, Any]) -> str:
    """Return the SHA-256 (hex) of a specification."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def label_value(text: str) -> str:
    """Return a text as the value of a label: unchanged if valid, otherwise shortened with a digest."""
    if LABEL_VALUE.fullmatch(text):
        return text
    return _told_apart(text, re.sub(r"[^A-Za-z0-9._-]+", "-", text), LONGEST_LABEL)


def _told_apart(text: str, readable: str, longest: int) -> str:
    """Return the readable start of a text with a digest of the whole text."""
    tail = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{readable[: longest - 9].strip('-._')}-{tail}".lstrip("-")
