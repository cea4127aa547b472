"""Atomic writing of directories, and search for the latest intact checkpoint."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.files import read_object, sha256, sync, write_text

CHECKPOINT = re.compile(r"checkpoint-(\d+)")
DIGESTS = "digests.json"
KEPT = 2

logger = logging.getLogger(__name__)


def staging(final: Path) -> Path:
    """Return an empty directory next to ``final`` for writing its content."""
    path = final.with_name(f".{final.name}.writing")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def publish(written: Path, final: Path) -> None:
    """Move a finished directory to its final name, replacing an existing one; durable before it is visible."""
    for folder, _, names in os.walk(written):
        for name in names:
            sync(Path(folder) / name)
        sync(Path(folder))
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    written.rename(final)
    sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def seal(checkpoint: Path) -> None:
    """Write the digests of a checkpoint's files into it."""
    files = {
        str(path.relative_to(checkpoint)): sha256(path) for path in sorted(checkpoint.rglob("*")) if path.is_file()
    }
    write_text(checkpoint / DIGESTS, json.dumps({"files": files, "sha256": _digest(files)}, indent=1) + "\n")


def fault(checkpoint: Path) -> str | None:
    """Return the error of a checkpoint with a missing or altered file, or None."""
    path = checkpoint / DIGESTS
    try:
        sealed = read_object(path)
    except UserError as error:
        return str(error)
    files = sealed.get("files")
    if not isinstance(files, dict) or sealed.get("sha256") != _digest(files):
        return f"{path}: was altered"
    for name, expected in files.items():
        file = checkpoint / name
        if not file.is_file():
            return f"{file}: is missing"
        if (found := sha256(file)) != expected:
            return f"{file}: was altered (SHA-256 expected {expected[:16]}…, found {found[:16]}…)"
    return None


def latest(folder: Path) -> Path | None:
    """Return the latest intact checkpoint, or None, and warn of damaged later ones."""
    for path in reversed(_checkpoints(folder)):
        wrong = fault(path)
        if wrong is None:
            return path
        logger.warning("%s; the checkpoint is not used, and training resumes from the one before or its start", wrong)
    return None


def discard_after(folder: Path, checkpoint: Path | None) -> None:
    """Delete the checkpoints after ``checkpoint``, or all for None, which are damaged and will be written again."""
    found = _checkpoints(folder)
    for path in found[found.index(checkpoint) + 1 :] if checkpoint else found:
        shutil.rmtree(path)


def discard_older(folder: Path) -> None:
    """Delete all checkpoints except the latest and the previous one, which is the fallback for a damaged one."""
    for path in _checkpoints(folder)[:-KEPT]:
        shutil.rmtree(path)


def _checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints by step; half-written ones have other names."""
    found = {int(m[1]): path for path in folder.glob("checkpoint-*") if (m := CHECKPOINT.fullmatch(path.name))}
    return [found[step] for step in sorted(found)]


def _digest(files: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
