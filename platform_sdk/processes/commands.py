"""Command lines of users' programs: where they are found, and why one cannot be run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

NO_IMAGE_HERE = (
    "an image runs in a cluster's jobs only; submit the recipe, or take it out on this machine with "
    "--set agent.image=null"
)
_SCRIPTS = (".py", ".js", ".mjs", ".sh")


def search_path() -> str:
    """Return PATH with the folder of this Python first, so that ``python`` is the one with hopforge's packages."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def located(command: Sequence[str], home: Path) -> tuple[str, ...]:
    """Return a command whose relative paths, if they do not exist here, are those of shipped files in ``home``."""
    return tuple(
        str(home / word) if "/" in word and not Path(word).exists() and (home / word).is_file() else word
        for word in command
    )


def fault_of(command: Sequence[str]) -> str | None:
    """Return why a command cannot be run here, or None; nothing is run."""
    first = command[0]
    if shutil.which(first, path=search_path()) is None:
        there = Path(first).is_file()
        return f"{first}: {'is not executable; run chmod +x' if there else 'there is no such program; check the path'}"
    scripts = [word for word in command[1:] if "/" in word and Path(word).suffix in _SCRIPTS]
    missing = next((word for word in scripts if not Path(word).is_file()), None)
    return None if missing is None else f"{missing}: there is no such file; check the path"
