"""The claim of a run directory by one recipe."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from platform_sdk.config.differences import differences
from platform_sdk.config.errors import UserError
from platform_sdk.files import read_object, write_text

FILE = "recipe.json"


def claim(run_dir: Path, recipe: Mapping[str, Any], *, beside: Collection[str] = ()) -> None:
    """Write the resolved recipe into a new run directory; check that it is the one of a begun run.

    Args:
        beside: dotted names of settings that may differ.

    Raises:
        UserError: the directory holds a run of another recipe; the message says what differs.
    """
    path = run_dir / FILE
    resolved = json.loads(json.dumps(recipe))
    if not path.exists():
        write_text(path, json.dumps(resolved, indent=1, ensure_ascii=False) + "\n")
        return
    found = read_object(path)
    changes = [change for change in differences(found, resolved) if change.name not in beside]
    if changes:
        raise UserError(
            f"{path}: is of a run with other parameters; choose another --workdir, or repeat the command that "
            "began it. What differs (there, now):\n" + "\n".join(f"  {change}" for change in changes)
        )
