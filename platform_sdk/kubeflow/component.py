"""What the components need to describe what they made."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

# The image that runs the steps on a cluster: Python with hopforge installed, no GPU.
LAUNCHER_IMAGE = os.environ.get("HOPFORGE_LAUNCHER_IMAGE", "hopforge/launcher:latest")


def describe(artifact: Any, path: Path, **facts: Any) -> None:
    """Fill an artifact's metadata (digest, counts, parents) and write them, with where the content is, at its path.

    The content itself stays in the run directory: an artifact that copied a model or a thousand rollouts would
    double every run.
    """
    metadata = {"path": str(path.resolve()), **facts}
    artifact.metadata.update(metadata)
    Path(artifact.path).parent.mkdir(parents=True, exist_ok=True)
    Path(artifact.path).write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")


def log_numbers(metrics: Any, numbers: dict[str, Any]) -> None:
    """Write the numbers among ``numbers`` into a Metrics artifact."""
    for name, value in numbers.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            metrics.log_metric(name, float(value))


def whole_numbers(struct: Any) -> Any:
    """A struct as the recipe gave it: KFP carries numbers as doubles, so that 16 arrives as 16.0."""
    if isinstance(struct, dict):
        return {key: whole_numbers(value) for key, value in struct.items()}
    if isinstance(struct, list):
        return [whole_numbers(value) for value in struct]
    return int(struct) if isinstance(struct, float) and struct.is_integer() else struct
