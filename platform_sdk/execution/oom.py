"""Count of processes that the kernel killed for lack of memory in this process's cgroup."""

from __future__ import annotations

import re

from platform_sdk.processes.cgroup import memory_texts

COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def oom_kills() -> int:
    """Return the count since the cgroup was created; 0 if the kernel does not report it."""
    texts = memory_texts("memory.events", "memory.oom_control")
    return next((int(found[1]) for text in texts if (found := COUNT.search(text))), 0)
