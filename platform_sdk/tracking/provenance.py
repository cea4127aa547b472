"""Provenance of a run: git commit, uncommitted changes, versions of the installed packages, the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import platform_sdk
from platform_sdk.config.struct import Struct


class Provenance(Struct):
    """``commit`` is None if the code is not in a git checkout, or git is not installed."""

    commit: str | None
    dirty: bool | None
    python: str
    packages: dict[str, str]
    hardware: str


def provenance() -> Provenance:
    """Return the provenance of this process's code and environment."""
    checkout = Path(platform_sdk.__file__).resolve().parents[1]
    commit = _git(checkout, "rev-parse", "HEAD") if (checkout / ".git").exists() else None
    changes = _git(checkout, "status", "--porcelain") if commit else None
    packages = {str(package.metadata["Name"]): package.version for package in metadata.distributions()}
    return Provenance(
        commit=commit,
        dirty=None if changes is None else bool(changes),
        python=platform.python_version(),
        packages=dict(sorted(packages.items())),
        hardware=_hardware(),
    )


def _hardware() -> str:
    """Return a description of this machine's processors, memory and GPUs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [f"{os.cpu_count()} {platform.machine()} CPUs", f"{memory:.0f} GiB memory"]
    try:
        query = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):  # not installed, or its driver hangs
        return ", ".join(parts)
    gpus = query.stdout.strip().splitlines() if query.returncode == 0 else []
    return ", ".join([*parts, *(f"{gpus.count(gpu)} × {gpu}" for gpu in dict.fromkeys(gpus))])


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
