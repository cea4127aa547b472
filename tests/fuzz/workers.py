"""Runs inputs in forked processes with limits on processor time and memory, and says how each ended."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from platform_sdk.config.errors import UserError
from platform_sdk.config.source import ConfigError
from platform_sdk.record_files import RecordError

CPU_SECONDS = 10
"""More than 20 times what the slowest input takes; one that is read in quadratic time would take minutes."""
MEMORY_BYTES = 200 * 2**20
LONGEST_LINE = 3000
MOST_LINES = 120

Ending = Literal["accepted", "refused", "failure"]


@dataclass(frozen=True)
class Input:
    """An input: its files, and what reads them. ``run`` says whether the input was accepted; an error refuses it."""

    files: dict[str, bytes]
    run: Callable[[Path], bool]
    names: tuple[str, ...] = ()
    """An error's message must hold one of these; the files' names if none are given."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of an input; ``seconds`` of processor time and growth of memory in ``mebibytes``."""

    ending: Ending
    message: str
    seconds: float
    mebibytes: float


def run_limited(case: Input, cpu_seconds: int = CPU_SECONDS) -> Outcome:
    """Run an input in a process of its own, which ends after ``cpu_seconds`` seconds of processor time."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        for file, data in case.files.items():
            (folder / file).write_bytes(data)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _work(case, folder, writing, cpu_seconds)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            before, _, said = stream.read().partition(b"\n")
        _, status, usage = os.wait4(child, 0)
    seconds, growth = usage.ru_utime + usage.ru_stime, max(0.0, usage.ru_maxrss / 1024 - float(before or 0))
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        spent = f"more than {cpu_seconds} s of processor time"
        what = spent if number == signal.SIGXCPU else signal.Signals(number).name
        return Outcome("failure", what, seconds, growth)
    if not said:
        return Outcome("failure", f"the process ended without a word, status {status}", seconds, growth)
    ending, message = json.loads(said)
    return Outcome(ending, message, seconds, growth)


def _work(case: Input, folder: Path, writing: int, cpu_seconds: int) -> None:
    """Run an input in this forked process, write how it ended, and exit."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.write(writing, b"%f\n" % _resident())
        used = os.times()
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.user + used.system) + cpu_seconds, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, size + MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        result = _ending(case, folder)
        os.write(writing, json.dumps(result).encode()[:60_000])
    finally:
        os._exit(0)


def _ending(case: Input, folder: Path) -> tuple[Ending, str]:
    try:
        return ("accepted" if case.run(folder) else "refused"), ""
    except (UserError, RecordError) as error:
        message = str(error)
        wrong = _wrong(message, case.names or tuple(case.files), isinstance(error, ConfigError))
        return ("failure", f"{wrong}: {message[:500]!r}") if wrong else ("refused", message[:300])
    except MemoryError:
        return "failure", f"more than {MEMORY_BYTES >> 20} MiB"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-3:]
        where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(last))
        return "failure", f"{type(error).__name__}: {str(error)[:200]!r} at {where}"


def _wrong(message: str, names: tuple[str, ...], several: bool) -> str:
    """Return what is wrong with a message to the user; empty if nothing is."""
    lines = message.split("\n")
    if not any(name in message for name in names):
        return "the message names no file"
    if len(lines) > (MOST_LINES if several else 1):
        return f"the message has {len(lines)} lines"
    if max(map(len, lines)) > LONGEST_LINE:
        return f"the message has a line of {max(map(len, lines))} characters"
    if not all(line.isprintable() for line in lines):
        return "the message holds characters that do not print"
    return ""


def _resident() -> float:
    """The process's memory in mebibytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
