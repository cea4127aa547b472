"""Outcomes of steps, by which no step is done twice or continued with other settings.

``begun.json`` in a phase's folder holds the digest of the inputs it was begun with; the step's outcome (a JSON
object with a name of its own) holds the digest of those it was finished with.
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

BEGUN = "begun.json"
logger = logging.getLogger(__name__)


def digest_of(*parts: Any) -> str:
    """SHA-256 (hex) of a step's inputs: settings (pydantic models), names, numbers, and mappings of these."""

    def plain(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {key: plain(value) for key, value in part.items()}
        return part.model_dump(mode="json") if isinstance(part, BaseModel) else part

    return hashlib.sha256(json.dumps([plain(part) for part in parts], sort_keys=True).encode()).hexdigest()


def begin(folder: Path, inputs: str) -> None:
    """Note what a phase is begun with, so that a killed one is not continued with other settings.

    Raises:
        UserError: it was begun with other inputs.
    """
    begun = folder / BEGUN
    if begun.exists() and read_object(begun).get("inputs") != inputs:
        raise UserError(f"{begun}: was begun with other settings; use another --workdir")
    write_json(begun, {"inputs": inputs})


def set_aside(folder: Path, inputs: str) -> None:
    """Rename a folder that was begun with other inputs (``NAME.stale1``), so that the phase can begin again."""
    begun = folder / BEGUN
    if not begun.exists() or read_object(begun).get("inputs") == inputs:
        return
    logger.warning("%s: was begun with other inputs; set aside as %s", folder, rename_stale(folder))


def rename_stale(path: Path) -> str:
    """Rename a file or folder to ``NAME.stale1``, or the next number that is free; return the new name."""
    number = 1
    while (aside := path.with_name(f"{path.name}.stale{number}")).exists():
        number += 1
    path.rename(aside)
    return aside.name


def finished(path: Path, inputs: str) -> dict[str, Any] | None:
    """The outcome of an earlier, finished run of a step with the same inputs; None: there is none yet.

    Raises:
        UserError: the outcome is of other inputs.
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
    """Write an object as one atomic step."""
    write_text(path, json.dumps(content, indent=1) + "\n")
