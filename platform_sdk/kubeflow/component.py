"""Descriptions of the artifacts that components make."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

# The image that runs the steps on a cluster: Python with hopforge installed, no GPU.
LAUNCHER_IMAGE = os.environ.get("HOPFORGE_LAUNCHER_IMAGE", "hopforge/launcher:latest")
NULL = "${null}"


def describe(artifact: Any, path: Path, **facts: Any) -> None:
    """Fill an artifact's metadata (digest, counts, parents) and write them, with where the content is, at its path.

    The content itself stays in the run directory: an artifact that copied a model or a thousand rollouts would
    double every run.
    """
    metadata = {"path": str(path.resolve()), **facts}
    artifact.metadata.update(metadata)
    Path(artifact.path).parent.mkdir(parents=True, exist_ok=True)
    Path(artifact.path).write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")


def describe_skipped(reason: str, run_dir: Path, *artifacts: Any) -> None:
    """Print why a step has nothing to do, and describe its artifacts so."""
    print(f"nothing to do: {reason}", flush=True)
    for artifact in artifacts:
        describe(artifact, run_dir, skipped=reason)


def beyond_last(iteration: int, iterations: int, run_dir: Path, *artifacts: Any) -> bool:
    """Return whether a run of ``iterations`` has no such iteration, and say so if it has none; below 0 it has all."""
    beyond = 0 <= iterations < iteration
    if beyond:
        describe_skipped(f"iteration {iteration} of {iterations}", run_dir, *artifacts)
    return beyond


def log_numbers(metrics: Any, numbers: dict[str, Any]) -> None:
    """Write the numbers among ``numbers`` into a Metrics artifact."""
    for name, value in numbers.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            metrics.log_metric(name, float(value))


def sent(value: Any) -> Any:
    """A parameter's value as KFP's parameters can hold it: they know no null inside a struct."""
    if isinstance(value, dict):
        return {key: NULL if inner is None else sent(inner) for key, inner in value.items()}
    return [NULL if inner is None else sent(inner) for inner in value] if isinstance(value, list) else value


def received(value: Any) -> Any:
    """A struct as the recipe gave it: undoes ``sent``, and KFP's doubles, as which 16 arrives as 16.0."""
    if isinstance(value, dict):
        return {key: received(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [received(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None if value == NULL else value
