"""Directories that appear whole or not at all, and finding the checkpoint to go on from."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from platform_sdk.files import sync

CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def staging(final: Path) -> Path:
    """The empty directory beside ``final`` in which its content is to be written."""
    path = final.with_name(f".{final.name}.writing")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def publish(written: Path, final: Path) -> None:
    """Move a finished directory to its name, in place of what was there; durable before it is visible."""
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


def latest(folder: Path) -> Path | None:
    """The complete checkpoint with the most steps, if there is one: half-written ones have other names."""
    found = {int(m[1]): path for path in folder.glob("checkpoint-*") if (m := CHECKPOINT.fullmatch(path.name))}
    return found[max(found)] if found else None


def discard_older(folder: Path) -> None:
    """Delete all checkpoints but the latest."""
    newest = latest(folder)
    for path in folder.glob("checkpoint-*"):
        if path != newest:
            shutil.rmtree(path)
