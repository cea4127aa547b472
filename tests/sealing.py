"""A manifest and a journal for run directories that tests make by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.journal import FOLDER, Journal, run_file
from platform_sdk.tracking.opened import recipe_digest


def sealed(run_dir: Path) -> Path:
    """Record the files of a directory as they are now, as those of a run under way; return the directory."""
    (run_dir / manifest.FILE_NAME).unlink(missing_ok=True)
    shutil.rmtree(run_dir / FOLDER, ignore_errors=True)
    recipe = json.loads((run_dir / "recipe.json").read_text())
    head = manifest.record(run_dir, "run started", {"recipe": recipe_digest(recipe)}).hash
    Journal(run_file(run_dir)).append("started", manifest_head=head)
    folders = [path for path in run_dir.iterdir() if path.is_dir() and path.name != FOLDER]
    manifest.record(run_dir, "step made", {}, seals.seal(run_dir, folders))
    return run_dir
