"""Count of processes that the kernel killed for lack of memory in this process's cgroup."""

from __future__ import annotations

import re
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def oom_kills() -> int:
    """Return the count since the cgroup was created; 0 if the kernel does not report it."""
    return next((int(found[1]) for path in _files() if (found := COUNT.search(_read(path)))), 0)


def _files() -> list[Path]:
    """Return the files with the count: of cgroup v2, of v1, and of a container, which sees its own cgroup as root."""
    files = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, group = line.split(":", 2)
        inner = group.lstrip("/")
        if not controllers:
            files += [CGROUPS / inner / "memory.events", CGROUPS / "memory.events"]
        elif "memory" in controllers.split(","):
            files += [CGROUPS / "memory" / inner / "memory.oom_control", CGROUPS / "memory" / "memory.oom_control"]
    return files


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
