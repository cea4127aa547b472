"""Tasks of an unrolled pipeline, and the sources of their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RUN_DIR = "run_dir"


class Unknown:
    """Placeholder for the value of an invalid parameter."""


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Constant:
    value: Any


@dataclass(frozen=True)
class FromParameter:
    """The value of a parameter that the form sets, wholly or in part; ``run_dir`` is one that every pipeline has."""

    name: str


@dataclass(frozen=True)
class FromTask:
    task: str
    output: str


Wire = Constant | FromParameter | FromTask


@dataclass(frozen=True)
class Task:
    """One step of one iteration: ``id`` is the step's, followed by the iteration's number (``train-02``).

    ``group`` is the id of the group that the task belongs to; empty outside of groups.
    """

    id: str
    component: str
    inputs: Mapping[str, Wire]
    group: str = ""

    @property
    def upstream(self) -> set[str]:
        return {wire.task for wire in self.inputs.values() if isinstance(wire, FromTask)}


@dataclass(frozen=True)
class Group:
    """Tasks that are one step on a cluster, e.g. all iterations of a repeat; ``carried`` are their final outputs."""

    id: str
    carried: Mapping[str, Wire]


@dataclass(frozen=True)
class Plan:
    """The tasks of a run in topological order, and the groups that some of them belong to."""

    tasks: tuple[Task, ...] = ()
    groups: tuple[Group, ...] = ()
