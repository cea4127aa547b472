"""Trace of what a run's processes do to its files, told to the driver as it happens.

Every process of a run under attack tells, through a named pipe, that it has started and what it is about to do: open
a file for writing, rename, remove, make or link one. Python's audit hooks give these *before* they happen, so a
process that comes to the event it is to be killed at stops itself there, and the driver kills whom it wants to: a
kill is exactly between the temporary file and the rename, not some milliseconds later.

Imported in every process of a run: nothing heavy here.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

FOLDER, TRAP = "HOPFORGE_CHAOS", "HOPFORGE_CHAOS_TRAP"
PIPE = "trace"
TOLD_FIRST = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "shutil.rmtree"}
WRITING = os.O_WRONLY | os.O_RDWR
LOG = re.compile(r"/logs/([a-z0-9-]+)\.log$")

_pipe: int | None = None
_place: str = ""
_hooked = False
_unnamed = False


@dataclass(frozen=True)
class Event:
    """Something that a process is about to do, or (``process …``) that it has begun."""

    time: float
    pid: int
    name: str
    stopped: bool


def parse(line: str) -> Event:
    moment, pid, stopped, name = line.split(" ", 3)
    return Event(float(moment), int(pid), name, stopped == "1")


def begin(arguments: Sequence[str]) -> None:
    """Tell what this process does from now on; ``arguments`` are those it was started with."""
    global _pipe, _place, _hooked
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    _place = os.path.dirname(folder)
    try:
        _pipe = os.open(os.path.join(folder, PIPE), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # the driver is gone
        return
    os.set_blocking(_pipe, True)
    if not _hooked:
        _hooked = True
        sys.addaudithook(_heard)
    role = role_of(arguments)
    if role is not None:
        _tell(f"process {role}")
    if role == "worker":
        os.register_at_fork(after_in_child=_forked)


def role_of(arguments: Sequence[str]) -> str | None:
    """Return ``run``, ``guard``, ``follower`` or ``worker``; None for other processes."""
    if "platform_sdk.processes.guard" in arguments:
        return "guard"
    if "platform_sdk.cli" in arguments:
        return "run"
    if "platform_sdk.tracking" in arguments:
        return "follower"
    if "platform_sdk.execution.worker" in arguments:
        return "worker"
    return None


def _forked() -> None:
    """Note that this process was forked by the worker: it is a task, whose name its log will give."""
    global _unnamed
    _unnamed = True


def named(path: str) -> str:
    """A path without what is another in every process or run."""
    path = re.sub(r"\.[^./]+\.\d+\.tmp$|\.\d+\.tmp$", ".PID.tmp", path)
    path = re.sub(r"\.artifact\.uploading\.\w+", ".artifact.uploading.X", path)
    return re.sub(r"[0-9a-f]{12,}", "HEX", path)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    global _unnamed
    if _pipe is None:
        return
    if _unnamed and event == "open" and (log := LOG.search(str(arguments[0]))):
        _unnamed = False
        _tell(f"process step {log[1]}")
    if event == "open":
        path, mode, flags = arguments
        if not (any(letter in mode for letter in "wax+") if isinstance(mode, str) else flags & WRITING):
            return
        paths, folder = [path], -1
    elif event in TOLD_FIRST:
        folder = arguments[-1] if event in ("os.remove", "os.rmdir", "shutil.rmtree") else -1
        paths = list(arguments[:2] if event in ("os.rename", "os.link") else arguments[:1])
    else:
        return
    whole = [_whole(path, folder) for path in paths if isinstance(path, (str, bytes, os.PathLike))]
    ours = [path[len(_place) + 1 :] for path in whole if path.startswith(_place + "/")]
    made_already = event == "os.mkdir" and os.path.isdir(whole[0])
    if ours and not ours[-1].startswith("chaos/") and not made_already:
        _tell(f"{event.removeprefix('os.').removeprefix('shutil.')} {' -> '.join(map(named, ours))}")


def _whole(path: Any, folder: int | None) -> str:
    text = os.fsdecode(path)
    if folder is not None and folder >= 0 and not os.path.isabs(text):
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    return os.path.abspath(text)


def _tell(name: str, stop: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGSTOP)) -> None:
    assert _pipe is not None
    trapped = os.environ.get(TRAP) == name
    try:
        os.write(_pipe, f"{time.monotonic():.6f} {os.getpid()} {int(trapped)} {name}\n".encode()[:4000])
    except OSError:  # the driver is gone
        return
    if trapped:
        stop()
