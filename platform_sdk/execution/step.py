"""Interface of a step: a module with ``Inputs``, ``Outputs`` and ``run(inputs) -> Finished``.

A step reads and writes the run directory. It does nothing if its result for the same inputs exists, and resumes where a
killed one stopped. Heavy imports stand inside ``run``.
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
    """Values that a step hands to later steps: names, digests, small structs."""


O_co = TypeVar("O_co", bound=StepOutputs, covariant=True)


@dataclass(frozen=True)
class Finished(Generic[O_co]):
    """Outcome of a step: outputs for later steps, and what the Kubeflow UI shows.

    Attributes:
        outputs: for later steps.
        card: Markdown that the Kubeflow UI shows for the step.
        facts: digests, counts and parents, kept as the card's metadata.
        metrics: figures that the Kubeflow UI compares between runs, for a module whose ``SHOWS`` names ``metrics``.
        page: a self-contained HTML page, for a module whose ``SHOWS`` names ``page``.
    """

    outputs: O_co
    card: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    page: str = ""


class StepModule(Protocol):
    """A module that defines a step."""

    Inputs: type[StepInputs]
    Outputs: type[StepOutputs]

    def run(self, inputs: Any) -> Finished[StepOutputs]:
        """Run the step, or read its outcome where it is done."""


def load_step(component: str) -> StepModule:
    """Import the module of a component."""
    return cast(StepModule, import_module(step_module(component)))
