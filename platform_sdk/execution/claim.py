"""Assignment of a run directory to one recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platform_sdk.config.differences import Change, differences
from platform_sdk.config.errors import UserError
from platform_sdk.files import read_object, write_text
from platform_sdk.run_dir import RunDir

FILE = RunDir.recipe


def claim(run_dir: Path, recipe: Mapping[str, Any], *, moved: bool = False) -> None:
    """Write the resolved recipe into a new run directory, or compare it with the recipe of a started run.

    Args:
        moved: True if data and runs may lie in other folders, as on another machine: ``data_dir``, and the folder of
            a run whose model is named (``run:FOLDER/NAME``). The data's content is compared apart.

    Raises:
        UserError: the directory contains a run of another recipe; the message lists the differences.
    """
    path = run_dir / FILE
    resolved = json.loads(json.dumps(recipe))
    if not path.exists():
        write_text(path, json.dumps(resolved, indent=1, ensure_ascii=False) + "\n")
        return
    existing = read_object(path)
    changes = [change for change in differences(existing, resolved) if not (moved and _is_place(change))]
    if changes:
        raise UserError(
            f"{path}: belongs to a run with other parameters; choose another --workdir, or repeat the command "
            "that started it. Differences (recorded, now):\n" + "\n".join(f"  {change}" for change in changes),
            code="run.other-recipe",
        )


def _is_place(change: Change) -> bool:
    if change.name == "parameters.data_dir":
        return True
    runs = [Path(value).name for value in (change.old, change.new) if str(value).startswith("run:")]
    return len(runs) == 2 and runs[0] == runs[1]
