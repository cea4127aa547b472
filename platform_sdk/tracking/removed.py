"""Record in a run directory of the files that were removed from it: a copy of the log's entries.

Readers of a run use this copy, so that they need no log; ``hopforge verify`` uses the log only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from platform_sdk.files import whole_lines
from platform_sdk.tracking.journal import FOLDER

RECORD = f"{FOLDER}/removed.jsonl"


def removed_paths(run_dir: Path) -> tuple[str, ...]:
    """Return the paths of the removed files and folders, as the run directory records them."""
    paths = []
    for line in whole_lines(run_dir / RECORD)[0]:
        with suppress(ValueError, KeyError, TypeError):
            paths.append(str(json.loads(line)["path"]))
    return tuple(paths)


def is_in(name: str, paths: Iterable[str]) -> bool:
    """Return True if a file has one of these paths, or is in a folder that has one."""
    return any(name == path or name.startswith(f"{path}/") for path in paths)
