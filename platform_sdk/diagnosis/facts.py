"""Record of a run's facts, as ``hopforge explain --save`` writes it. Times are UTC in ISO 8601; empty if unknown."""

from __future__ import annotations

from typing import Literal

from platform_sdk.config.struct import Struct

RunState = Literal["PENDING", "RUNNING", "FINISHED", "FAILED", "KILLED"]
"""State of a run or step; ``KILLED`` also if its process ended without recording an end."""


class Line(Struct):
    """Line of a log; ``number`` counts from 1."""

    number: int
    text: str


class StepFacts(Struct):
    """One step of a run.

    Attributes:
        error: the error that the step recorded, with its type.
        exit_code: exit status of the step's process, negative for a signal; None if unknown or zero.
        log: name of the log.
        lines: last lines of the log, without progress bars.
        changed: time of the log's last line.
    """

    name: str
    state: RunState
    started: str = ""
    ended: str = ""
    error: str = ""
    exit_code: int | None = None
    log: str = ""
    lines: tuple[Line, ...] = ()
    changed: str = ""


class TrainingPoint(Struct):
    """An optimizer step or update; ``not_finite`` names figures that are infinite or not a number."""

    phase: str
    number: int
    not_finite: tuple[str, ...] = ()
    equal_groups: float | None = None
    mean_reward: float | None = None


class Selection(Struct):
    """Number of sampled rollouts in a phase, and of those accepted for training."""

    phase: str
    rollouts: int
    accepted: int
    well_formed: float | None = None
    threshold: float | None = None


class Delivery(Struct):
    """Delivery to MLflow: the store, whether it has the run's end, and the follower's last error."""

    store: str
    complete: bool
    error: str = ""
    log: str = ""
    line: int = 0


class Disk(Struct):
    """File system of the run directory."""

    free_bytes: int
    writable: bool


class Condition(Struct):
    """Condition of a Kubernetes object."""

    type: str
    holds: bool
    reason: str = ""
    message: str = ""
    time: str = ""


class ContainerFacts(Struct):
    """Container of a pod.

    Attributes:
        reason: of its waiting or of its end, e.g. ImagePullBackOff, OOMKilled.
        exit_code: of its end, or of its last end before a restart; None if it has not ended.
        lines: last lines of its log.
    """

    name: str
    state: Literal["waiting", "running", "terminated"] = "waiting"
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    finished: str = ""
    image: str = ""
    memory_limit: str = ""
    lines: tuple[Line, ...] = ()


class PodFacts(Struct):
    """Pod of a job; ``reason`` and ``message`` are the pod's own, e.g. Evicted."""

    name: str
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    node: str = ""
    created: str = ""
    deleted: str = ""
    conditions: tuple[Condition, ...] = ()
    containers: tuple[ContainerFacts, ...] = ()


class Event(Struct):
    """Warning of the cluster about an object, e.g. ``Pod NAME``."""

    object: str
    reason: str
    message: str
    time: str = ""


class WorkloadFacts(Struct):
    """Kueue's object for a job; ``position`` counts from 0 in its LocalQueue, None if unknown."""

    name: str
    position: int | None = None
    conditions: tuple[Condition, ...] = ()


class JobFacts(Struct):
    """Job of a step.

    Attributes:
        state: a value of ``training_job.state.State``.
        queue: its LocalQueue; empty if it has none.
        suspended: True while Kueue, or a person, holds it back.
        unseen: the reason why pods, events or Workloads could not be read.
    """

    kind: str
    name: str
    step: str = ""
    state: str = ""
    reason: str = ""
    created: str = ""
    queue: str = ""
    suspended: bool = False
    conditions: tuple[Condition, ...] = ()
    pods: tuple[PodFacts, ...] = ()
    workload: WorkloadFacts | None = None
    events: tuple[Event, ...] = ()
    unseen: str = ""


class QueueUsage(Struct):
    """Totals of a ClusterQueue for one resource of a flavor, as Kueue writes quantities."""

    queue: str
    flavor: str
    resource: str
    nominal: str = "0"
    used: str = "0"
    borrowed: str = "0"


class Facts(Struct):
    """Facts about a run.

    Attributes:
        error: the error that ended the run.
        oom_kills: processes that the kernel killed for lack of memory, in the run's cgroup and during the run.
    """

    run: str
    place: Literal["local", "cluster"] = "local"
    collected: str = ""
    state: RunState
    started: str = ""
    ended: str = ""
    error: str = ""
    oom_kills: int = 0
    steps: tuple[StepFacts, ...] = ()
    training: tuple[TrainingPoint, ...] = ()
    selections: tuple[Selection, ...] = ()
    delivery: Delivery | None = None
    disk: Disk | None = None
    jobs: tuple[JobFacts, ...] = ()
    usage: tuple[QueueUsage, ...] = ()
