"""Settings of a cluster: images, the shared volume, and how jobs with GPUs are made.

One file describes a cluster (``pipelines/cluster.yaml`` is an example); ``hopforge compile --cluster`` and ``submit``
read it. Nothing in it may change a run's results, so that the same recipe gives the same run anywhere.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from platform_sdk.config.struct import Struct, equal_to
from platform_sdk.credentials import has_credentials

CLUSTER = "HOPFORGE_CLUSTER"
"""Environment variable of every step on a cluster: a ``ClusterSpec`` as JSON."""

# A name of a Kubernetes object (RFC 1123 subdomain), and a quantity as 500m, 4, 16Gi.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
# A name that is a label's value too.
LabelName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]
Quantity = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")]
SecretEntry = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][-a-z0-9.]*/[-._a-zA-Z0-9]+$")]
BackendName = Literal["pytorchjob", "trainjob"]

# A folder of a volume, without leading slash and without "..".
SubPath = Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*(/[\w-][\w.-]*)*$")]


def _without_password(value: str) -> str:
    if has_credentials(value):
        raise ValueError("must not contain user:password@, since pipelines are stored; give the secret with secrets")
    return value


_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{name}i": 1024.0 ** (power + 1) for power, name in enumerate("KMGTPE")
}


def bytes_of(quantity: str) -> float:
    """Return the number of a quantity: bytes of memory, or CPU cores."""
    number = quantity.rstrip("mkMGTPEKi")
    unit = quantity[len(number) :]
    return float(number) / 1000 if unit == "m" else float(number) * _UNITS.get(unit, 1.0)


class Resources(Struct):
    """Resources of a pod; requests equal limits, so that the pod is not evicted for using its request."""

    cpu: Quantity = "8"
    memory: Quantity = "64Gi"
    gpus: int = Field(1, ge=0, description="GPUs of a pod, with one process on each; 0: one process on the CPU.")
    gpu_resource: str = Field("nvidia.com/gpu", description="Resource name of a GPU on this cluster.")
    gpu_memory: Quantity | None = Field(
        None, description="Memory of a GPU, e.g. 80Gi: `validate --cluster` refuses recipes that clearly exceed it."
    )
    others: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict, description="Additional resources of a trainer's pod, e.g. rdma/hca_shared_devices_a: 1."
    )
    shared_memory: Quantity = Field("16Gi", description="Size of /dev/shm, which NCCL and data loaders use.")


class SamplerResources(Struct):
    """Resources of the vLLM server in each trainer pod, in addition to the trainer's."""

    cpu: Quantity = "8"
    memory: Quantity = "64Gi"
    gpus: int = Field(1, ge=0, description="GPUs of the server; job.resources.gpus are the trainer's.")


class SamplerSpec(Struct):
    """Location of vLLM: as a server in the trainer's pods, or in the processes of jobs that only sample."""

    image: str = Field(
        min_length=1, description="Image with vLLM and hopforge; name it by digest for repeatable results."
    )
    resources: SamplerResources = SamplerResources()


class ProgramResources(Struct):
    """Resources of a program's image in each pod that samples, in addition to the other containers'."""

    cpu: Quantity = "4"
    memory: Quantity = "8Gi"


class ProgramSpec(Struct):
    """Container of a user's program (agent.image in a recipe), a sidecar of jobs that sample."""

    image: str | None = Field(
        None,
        min_length=1,
        description="trainjob: the only image that recipes may name, since it is part of the runtimes; null: recipes "
        "with an image need pytorchjob, and may name any.",
    )
    resources: ProgramResources = ProgramResources()
    open_network: bool = Field(
        False,
        description="Run commands even if the kernel cannot restrict their connections (Landlock, Linux 6.7): they "
        "reach whatever the pod reaches.",
    )


class JobSpec(Struct):
    """Settings of a step's job with GPUs."""

    backend: BackendName | None = Field(
        None,
        description="pytorchjob: training-operator (v1); trainjob: Kubeflow Trainer (v2). Default: trainjob where the "
        "cluster serves its API and the job allows it (not elastic).",
    )
    runtime: Name = Field(
        "hopforge",
        description="trainjob: the ClusterTrainingRuntime, as in manifests/trainer, which mounts the workspace. Jobs "
        "with a vLLM server use the runtime of this name with -online appended, and with a program's image -program.",
    )
    image: str = Field(min_length=1, description="Image of the pods; name it by digest for repeatable results.")
    nodes: int = Field(1, ge=1, description="Number of pods.")
    minimum_nodes: int | None = Field(
        None, ge=1, description="pytorchjob: minimum pods of an elastic job (maximum: nodes)."
    )
    restarts: int = Field(
        3, ge=0, description="Maximum restarts of the processes by torch's launcher, and maximum replacements of a pod."
    )
    resources: Resources = Resources()
    sampler: SamplerSpec | None = Field(
        None, description="For recipes that sample with vLLM: engine vllm, or openai without a url."
    )
    program: ProgramSpec = Field(
        ProgramSpec(), exclude_if=equal_to(ProgramSpec()), description="For recipes whose program has an image."
    )
    queue: LabelName | None = Field(
        None, description="Kueue LocalQueue; null: no queue, the job starts as soon as it fits."
    )
    priority: LabelName | None = Field(None, description="Kueue WorkloadPriorityClass.")
    topology: str | None = Field(
        None,
        exclude_if=equal_to(None),
        description="Label of nodes, e.g. example.com/rack: Kueue prefers one place of it for the pods of a job of "
        "several nodes. It needs a queue whose flavor names a topology with this label.",
    )
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    environment: dict[str, Annotated[str, AfterValidator(_without_password)]] = Field(
        default_factory=dict,
        description="Environment variables of the job's processes, e.g. NCCL_SOCKET_IFNAME: eth0 or NCCL_IB_HCA: mlx5.",
    )
    secrets: dict[str, SecretEntry] = Field(
        default_factory=dict, description="Environment variables from Secrets, e.g. HF_TOKEN: hugging-face/token."
    )
    queue_timeout_seconds: int = Field(86_400, ge=1, description="Maximum seconds until the job is admitted.")
    run_timeout_seconds: int = Field(
        86_400, ge=1, description="Maximum running time in seconds, without interruptions."
    )
    # A launcher that has lost sight of the API server for half an hour must still find how its job ended.
    ttl_seconds: int = Field(86_400, ge=3600, description="Seconds until a finished job is deleted.")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.minimum_nodes is not None and self.minimum_nodes > self.nodes:
            raise ValueError(f"minimum_nodes {self.minimum_nodes} is above nodes {self.nodes}")
        if self.minimum_nodes is not None and self.backend == "trainjob":
            raise ValueError("minimum_nodes (elastic training) is for the backend pytorchjob")
        if self.priority is not None and self.queue is None:
            raise ValueError("priority needs a Kueue queue; set queue, or remove priority")
        if self.topology is not None and self.queue is None:
            raise ValueError("topology needs a Kueue queue; set queue, or remove topology")
        return self


class Workspace(Struct):
    """Volume that all steps and jobs of a run mount at the same path."""

    claim: Name = Field(description="PersistentVolumeClaim with access mode ReadWriteMany.")
    path: str = Field("/workspace", pattern=r"^/[\w./-]+$")
    writable: tuple[SubPath, ...] = Field(
        ("cache", "huggingface"),
        description="Folders of the volume that jobs may write in addition to their run's; all others are read-only.",
    )


class LauncherResources(Struct):
    """Resources of a step's pod."""

    cpu: Quantity = "2"
    memory: Quantity = "8Gi"


class ClusterSpec(Struct):
    """One cluster, as one team uses it."""

    workspace: Workspace
    launcher_image: str = Field(min_length=1, description="Image of the steps' pods, which have no GPU.")
    service_account: Name | None = Field(
        None,
        description="Service account of the steps' pods, e.g. launcher of manifests/; null: Kubeflow "
        "Pipelines' default.",
    )
    launcher: LauncherResources = LauncherResources()
    environment: dict[str, Annotated[str, AfterValidator(_without_password)]] = Field(
        default_factory=dict, description="Environment variables of the steps, e.g. MLFLOW_TRACKING_URI."
    )
    secrets: dict[str, SecretEntry] = Field(
        default_factory=dict,
        description="Environment variables of the steps from Secrets, e.g. HOPFORGE_RETRIEVER_TOKEN: tokens/team.",
    )
    job: JobSpec
    pipelines_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s@]+$",
        description="Address of Kubeflow Pipelines' UI, for links from runs in MLflow, e.g. "
        "https://kubeflow.example.com/pipeline.",
    )
