"""Command lines of users' programs: their search path, shipped files, and check before a run."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

NO_IMAGE_HERE = (
    "an image runs in a cluster's jobs only; submit the recipe, or take it out on this machine with "
    "--set agent.image=null"
)
_INTERPRETER = re.compile(r"(python|node|bash|sh)[\d.]*")
_CODE = re.compile(r"-\w*[cme]|--")
"""Options of an interpreter after which its program is no file, or after which another word may be a value."""
_SCRIPTS = (".py", ".js", ".mjs", ".sh")


def search_path() -> str:
    """Return PATH with the folder of this Python first, so that ``python`` is the one with hopforge's packages."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def located(command: Sequence[str], home: Path) -> tuple[str, ...]:
    """Return a command in which relative paths of files that exist in ``home`` alone are replaced by these files."""
    return tuple(
        str(home / word) if "/" in word and not os.path.exists(word) and os.path.isfile(home / word) else word
        for word in command
    )


def fault_of(command: Sequence[str]) -> str | None:
    """Return the reason why a command cannot be run here, or None; the command is not run."""
    first = command[0]
    if shutil.which(first, path=search_path()) is None:
        if "/" not in first:
            return f"{first}: there is no such program; install it, or give its path"
        there = os.path.isfile(first)
        return f"{first}: {'is not executable; run chmod +x' if there else 'there is no such program; check the path'}"
    script = _script(command)
    return None if script is None or os.path.isfile(script) else f"{script}: there is no such file; check the path"


def _script(command: Sequence[str]) -> str | None:
    """Return the file that an interpreter runs; None if the command names none, or its options leave it open."""
    if not _INTERPRETER.fullmatch(Path(command[0]).name):
        return None
    for word in command[1:]:
        if not word.startswith("-"):
            return word if Path(word).suffix in _SCRIPTS else None
        if _CODE.match(word):
            return None
    return None
