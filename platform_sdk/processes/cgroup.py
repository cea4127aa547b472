"""Memory files of this process's cgroup."""

from __future__ import annotations

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
GROUPS_OF_PROCESS = Path("/proc/self/cgroup")


def memory_texts(unified: str, legacy: str) -> list[str]:
    """Return the contents of a memory file that exist, the innermost cgroup's first.

    Args:
        unified: Name of the file in cgroup v2.
        legacy: Name of the file in cgroup v1.
    """
    paths = []
    for line in _read(GROUPS_OF_PROCESS).splitlines():
        _, controllers, group = line.split(":", 2)
        inner = group.lstrip("/")
        # A container sees its own cgroup as the root.
        if not controllers:
            paths += [CGROUPS / inner / unified, CGROUPS / unified]
        elif "memory" in controllers.split(","):
            paths += [CGROUPS / "memory" / inner / legacy, CGROUPS / "memory" / legacy]
    return [text for path in paths if (text := _read(path))]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
