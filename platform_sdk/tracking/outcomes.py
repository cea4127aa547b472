"""Outcomes of steps: a step neither runs twice nor continues with other settings.

``begun.json`` in a phase's folder contains the digest of the inputs at its start; the step's outcome (a JSON file)
contains the digest of the inputs at its end.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from platform_sdk.config.errors import UserError
from platform_sdk.files import read_object, write_text
from platform_sdk.run_dir import PhaseDir

BEGUN = PhaseDir.begun
logger = logging.getLogger(__name__)


def digest_of(*parts: Any) -> str:
    """Return the SHA-256 (hex) of a step's inputs: settings (pydantic models), names, numbers, or mappings."""

    def plain(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {key: plain(value) for key, value in part.items()}
        return part.model_dump(mode="json") if isinstance(part, BaseModel) else part

    return hashlib.sha256(json.dumps([plain(part) for part in parts], sort_keys=True).encode()).hexdigest()


def begin(folder: Path, inputs: str) -> None:
    """Record the inputs of a phase at its start, so that it is never continued with others.

    Raises:
        UserError: the phase was started with other inputs.
    """
    begun = folder / BEGUN
    if begun.exists() and read_object(begun).get("inputs") != inputs:
        raise UserError(f"{begun}: was started with other settings; use another --workdir")
    write_json(begun, {"inputs": inputs})


def set_aside(folder: Path, inputs: str) -> None:
    """Rename a folder with other inputs (to ``NAME.stale1``), so that the phase can start again."""
    begun = folder / BEGUN
    if not begun.exists() or read_object(begun).get("inputs") == inputs:
        return
    logger.warning("%s: was begun with other inputs; set aside as %s", folder, rename_stale(folder))


def rename_stale(path: Path) -> str:
    """Rename a file or folder to ``NAME.stale1``, or the next free number; return the new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.stale{number}")).exists():
        number += 1
    path.rename(aside)
    return aside.name


def finished(path: Path, inputs: str) -> dict[str, Any] | None:
    """Return the outcome of an earlier run of a step with the same inputs, or None.

    Raises:
        UserError: the outcome has other inputs.
    """
    if not path.exists():
        return None
    outcome = read_object(path)
    if outcome.get("inputs") != inputs:
        raise UserError(
            f"{path}: was made with other settings, data or weights (digest {str(outcome.get('inputs'))[:12]}…, now "
            f"{inputs[:12]}…); use another --workdir"
        )
    return outcome


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object atomically."""
    write_text(path, json.dumps(content, indent=1) + "\n")
