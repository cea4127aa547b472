"""Peak memory of a container or of ended child processes, as a line of a log that ``hopforge explain`` reads.

Kubernetes keeps a container's limit, not its use, and a process that the kernel kills can write nothing. A parent
process that outlives it can.
"""

from __future__ import annotations

import re
import resource
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
PEAKS = ("memory.peak", "memory/memory.max_usage_in_bytes")  # of cgroup v2 and v1; a container sees its own as root
LINE = re.compile(r"peak memory: ([\d,]+ MiB) \((.+)\)")


def container_line() -> str:
    """Return the line for this container; for its largest ended process if the kernel does not count a container's."""
    for name in PEAKS:
        try:
            return _line(int((CGROUP / name).read_text()), "container, with its file cache")
        except (OSError, ValueError):
            continue
    return process_line(resource.getrusage(resource.RUSAGE_CHILDREN))


def process_line(usage: resource.struct_rusage) -> str:
    """Return the line for the largest process of a resource usage."""
    return _line(usage.ru_maxrss * 1024, "largest process")


def _line(size: int, whose: str) -> str:
    return f"peak memory: {size / 2**20:,.0f} MiB ({whose})"
