"""Settings of teams that share a cluster: pools of GPUs, quotas and access rights.

One file describes all teams (``manifests/teams.yaml`` is an example); ``hopforge teams render`` writes its manifests.
A team's Profile, namespace, ClusterQueue, MLflow workspace and retriever token have the team's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from platform_sdk.config.cluster import LabelName, Name, Quantity
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.struct import Struct

ROLES = ("admin", "edit", "view")
"""Roles of a member in Kubeflow, from most rights to fewest."""

# A user as the cluster's sign-in names them, mostly an address of mail: a subject, an annotation and a header's value.
User = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][^\s,\"'\\*]{0,150}$")]
Label = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?$")]
LabelKey = Annotated[str, StringConstraints(pattern=r"^([a-z0-9][-a-z0-9.]*/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?$")]
ServiceUrl = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[a-z0-9][-a-z0-9]*\.[a-z0-9][-a-z0-9]*(\.svc[.a-z0-9]*)?(:\d+)?(/[-\w/]*)?$"),
]
"""Address of a Service of the cluster: http://NAME.NAMESPACE:PORT."""
Image = Annotated[str, StringConstraints(pattern=r"^[^@:\s]\S*$")]
Cidr = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F.:]+/\d{1,3}$")]


class Taint(Struct):
    """A taint of a pool's nodes."""

    key: LabelKey = Field(description="The taint's key, e.g. nvidia.com/gpu.")
    value: Label = Field("", description="The taint's value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        "NoSchedule", description="Effect on pods that do not tolerate the taint."
    )


class Nodes(Struct):
    """The nodes of a pool."""

    labels: dict[LabelKey, Label] = Field(min_length=1, description="Labels that these nodes have, and no others.")
    taints: tuple[Taint, ...] = Field((), description="Taints of these nodes, which Kueue lets admitted jobs tolerate.")


class PerGpu(Struct):
    """CPU and memory of a pool for each of its GPUs: the share that a queue has, and a job requests."""

    cpu: int = Field(ge=1, description="CPU cores.")
    memory: Annotated[str, StringConstraints(pattern=r"^[1-9]\d*(Mi|Gi|Ti)$")] = Field(description="Memory, e.g. 96Gi.")


class Pool(Struct):
    """Nodes with GPUs of one kind, or without any."""

    resource: LabelKey = Field(
        "nvidia.com/gpu",
        description="Resource name of a GPU on these nodes; cpu: they have none, and cores are counted.",
    )
    count: int = Field(ge=0, description="GPUs that all nodes of the pool have together.")
    gpu_memory: Quantity | None = Field(None, description="Memory of a GPU, e.g. 80Gi.")
    per_gpu: PerGpu = Field(description="CPU and memory for each GPU.")
    nodes: Nodes = Field(description="The pool's nodes.")
    topology: tuple[LabelKey, ...] = Field(
        (), max_length=16, description="Labels of nodes from the widest to the narrowest place, e.g. rack, host name: "
        "pods of a job of several nodes are placed near each other.",
    )  # fmt: skip


class Members(Struct):
    """Users of a team by their role in Kubeflow."""

    admin: tuple[User, ...] = Field((), description="May also add people; the first owns the Profile.")
    edit: tuple[User, ...] = Field((), description="May start, cancel and delete runs.")
    view: tuple[User, ...] = Field((), description="May read runs.")

    def roles(self) -> Iterator[tuple[str, str, int]]:
        """Yield every member as role, user and position in that role."""
        for role in ROLES:
            for position, user in enumerate(getattr(self, role)):
                yield role, user, position


class Share(Struct):
    """GPUs of a pool that a team has."""

    nominal: int = Field(ge=0, description="The team's own GPUs; lent ones are returned when it needs them.")
    borrow: int = Field(0, ge=0, description="Maximum number beyond nominal, while other teams do not use them.")
    lend: int | None = Field(None, ge=0, description="Maximum number that others may borrow; null: all of nominal.")

    @property
    def lent(self) -> int:
        return self.nominal if self.lend is None else self.lend


class TeamJob(Struct):
    """Size of the team's jobs, as its cluster.yaml has it."""

    pool: str = Field(description="Pool that jobs run in.")
    nodes: int = Field(1, ge=1, description="Number of pods.")
    gpus: int = Field(1, ge=1, description="GPUs of the trainer in each pod.")
    sampler_gpus: int = Field(0, ge=0, description="GPUs of the vLLM server in each pod; 0: no server.")

    @property
    def total(self) -> int:
        """GPUs of all pods."""
        return self.nodes * (self.gpus + self.sampler_gpus)


class Priorities(Struct):
    """Priorities of a team's jobs."""

    default: str = Field(description="Priority of a job that names none.")
    allowed: tuple[str, ...] = Field((), description="Priorities that its jobs may have; empty: the default alone.")

    @property
    def names(self) -> tuple[str, ...]:
        """All that jobs may have, in alphabetical order."""
        return tuple(sorted({self.default, *self.allowed}))


class Team(Struct):
    """One team: people, GPUs, and what its runs may use."""

    members: Members = Field(description="The team's users by role.")
    gpus: dict[str, Share] = Field(min_length=1, description="Share of each pool.")
    job: TeamJob = Field(description="Size of the team's jobs.")
    priorities: Priorities = Field(description="Priorities of the team's jobs.")
    storage: Annotated[str, StringConstraints(pattern=r"^[1-9]\d*(Mi|Gi|Ti)$")] = Field(
        "500Gi", description="Size of the team's workspace."
    )
    collections: tuple[str, ...] = Field((), description="Collections of the retriever that its runs may search.")
    secrets: tuple[Name, ...] = Field((), description="Names of Secrets that its runs may use, besides run-access.")
    internet: tuple[Cidr, ...] = Field((), description="Address ranges that its runs may reach over HTTPS.")

    @property
    def pools(self) -> tuple[str, ...]:
        """Pools in the order in which Kueue tries them: first the pool of the team's jobs, then by name."""
        return tuple(sorted(self.gpus, key=lambda pool: (pool != self.job.pool, pool)))


class Collection(Struct):
    """A collection that the retriever serves in addition to the collections of manifests/base."""

    environment: str = Field(description="Environment of its corpus, e.g. hotpot or 2wiki.")
    run_dir: Path | None = Field(None, description="Directory that contains corpus/; null: /workspace/corpora/NAME.")
    retrieval: RetrievalSpec = Field(
        RetrievalSpec(uri="http://milvus:19530"), description="Retrieval settings, as in the retriever's service.yaml."
    )


class Images(Struct):
    """Images of the cluster, by name and tag or digest."""

    launcher: Image = Field("hopforge/launcher:0.1.0", description="Image of the launcher and of most steps.")
    retriever: Image = Field("hopforge/retriever:0.1.0", description="Image of the retriever service.")
    sampler: Image = Field("hopforge/sampler:0.1.0", description="Image of the vLLM server.")
    trainer: Image = Field("hopforge/trainer:0.1.0", description="Image of training jobs.")


class TeamsSpec(Struct):
    """All teams of a cluster."""

    pools: dict[LabelName, Pool] = Field(min_length=1, description="GPUs by pool.")
    teams: dict[str, Team] = Field(min_length=1, description="Teams by name; the name is also the team's namespace.")
    priorities: dict[LabelName, Annotated[int, Field(ge=-(2**31), lt=2**31)]] = Field(
        min_length=1, description="Priorities of jobs: a higher number is admitted first, and preempts a lower one."
    )
    auditors: tuple[User, ...] = Field((), description="Users who may read every team's runs but change nothing.")
    collections: dict[str, Collection] = Field(
        default_factory=dict, description="Collections of the retriever that manifests/base does not have."
    )
    images: Images = Field(Images(), description="The cluster's images.")
    pipelines_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s@]+$",
        description="Address of Kubeflow Pipelines' UI, for links from runs in MLflow, e.g. "
        "https://kubeflow.example.com/pipeline.",
    )
    mlflow: Literal["workspaces", "kubernetes"] = Field(
        "workspaces",
        description="How MLflow keeps teams apart: workspaces: the server of manifests/base, with users and roles; "
        "kubernetes: the server of Kubeflow's own MLflow integration, by Roles in mlflow.kubeflow.org.",
    )
    mlflow_service: ServiceUrl = Field(
        "http://mlflow.kubeflow:5000", description="Address of the MLflow server if mlflow is kubernetes."
    )
