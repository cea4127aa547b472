"""Peak memory of a container or of ended child processes, as a line of a log that ``hopforge explain`` reads.

Kubernetes keeps a container's limit, not its use, and a process that the kernel kills can write nothing. A parent
process that outlives it can.
"""

from __future__ import annotations

import re
import resource

from platform_sdk.processes.cgroup import memory_texts

LINE = re.compile(r"peak memory: ([\d,]+ MiB) \((.+)\)")


def container_line() -> str:
    """Return the line for this container; for its largest ended process if the kernel does not count a container's."""
    for text in memory_texts("memory.peak", "memory.max_usage_in_bytes"):
        return _line(int(text), "container, with its file cache")
    return process_line(resource.getrusage(resource.RUSAGE_CHILDREN))


def process_line(usage: resource.struct_rusage) -> str:
    """Return the line for the largest process of a resource usage."""
    return _line(usage.ru_maxrss * 1024, "largest process")


def _line(size: int, whose: str) -> str:
    return f"peak memory: {size / 2**20:,.0f} MiB ({whose})"
