"""Where a run's code came from: git commit, uncommitted changes, versions of the installed packages."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path

import platform_sdk
from platform_sdk.config.struct import Struct


class Provenance(Struct):
    """``commit`` is None where the code does not stand in a git checkout (or git is not installed)."""

    commit: str | None
    dirty: bool | None
    python: str
    packages: dict[str, str]


def provenance() -> Provenance:
    """Look at the code and the environment of this process."""
    checkout = Path(platform_sdk.__file__).resolve().parents[1]
    commit = _git(checkout, "rev-parse", "HEAD") if (checkout / ".git").exists() else None
    changes = _git(checkout, "status", "--porcelain") if commit else None
    packages = {str(found.metadata["Name"]): found.version for found in metadata.distributions()}
    return Provenance(
        commit=commit,
        dirty=None if changes is None else bool(changes),
        python=platform.python_version(),
        packages=dict(sorted(packages.items())),
    )


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
