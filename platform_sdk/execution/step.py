"""Interface of a step: a module with ``Inputs``, ``Outputs`` and ``run(inputs) -> Finished``.

A step reads and writes the run directory. It does nothing if its result for the same inputs exists, and resumes after a
kill. Heavy imports belong inside ``run``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from platform_sdk.config.components import step_module
from platform_sdk.config.struct import Struct


class StepInputs(Struct):
    """Inputs of a step; every step has the run directory."""

    run_dir: Path


class StepOutputs(Struct):
    """Values for later steps: names, digests, small structs."""


O_co = TypeVar("O_co", bound=StepOutputs, covariant=True)


@dataclass(frozen=True)
class Finished(Generic[O_co]):
    """Outcome of a step: outputs for later steps, and content for the Kubeflow UI.

    Attributes:
        outputs: values for later steps.
        card: Markdown for the Kubeflow UI.
        facts: digests, counts and parents, kept as the card's metadata.
        metrics: figures that the Kubeflow UI compares between runs, if the module's ``SHOWS`` includes ``metrics``.
        page: a self-contained HTML page, if the module's ``SHOWS`` includes ``page``.
    """

    outputs: O_co
    card: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    page: str = ""


class StepModule(Protocol):
    """Interface of a module that defines a step."""

    Inputs: type[StepInputs]
    Outputs: type[StepOutputs]

    def run(self, inputs: Any) -> Finished[StepOutputs]:
        """Run the step, or read its outcome if it has finished."""


def step_name(component: str, phase: str = "") -> str:
    """Return the name under which a shipped component's step is tracked: in its journal and its manifest entry."""
    if component in ("policy", "evaluate"):
        return phase
    return f"{component}-{phase}" if phase else component


def load_step(component: str) -> StepModule:
    """Import the module of a component."""
    return cast(StepModule, import_module(step_module(component)))
