"""Provenance of a run: git commit, uncommitted changes, versions of the installed packages, the machine."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import re
import subprocess
import time
from importlib import metadata
from pathlib import Path

import platform_sdk
from platform_sdk.config.struct import Struct
from platform_sdk.files import sha256


class Provenance(Struct):
    """``commit`` is None if the code is not in a git checkout, or git is not installed."""

    commit: str | None
    dirty: bool | None
    python: str
    packages: dict[str, str]
    hardware: str
    version: str = ""
    source: str = ""
    host: str = ""
    user: str = ""

    def entry(self) -> dict[str, str]:
        """Return the fields of the manifest's entry; the environment's description has the others."""
        shown = {name: getattr(self, name) for name in ("version", "commit", "source", "host", "user", "hardware")}
        return {name: value for name, value in shown.items() if value}


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
        version=metadata.version("hopforge"),
        source=source_digest(Path(platform_sdk.__file__).parent),
        host=platform.node(),
        user=_user(),
    )


def source_digest(package: Path) -> str:
    """Return the digest of a package's source files: of their names and SHA-256, with or without git."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()} {sha256(path)}\n".encode())
    return digest.hexdigest()


def used(began: float) -> dict[str, str | int | float]:
    """Return what this process used since ``began``, a time of ``time.monotonic``: host, seconds, GPUs."""
    seconds, gpus = round(time.monotonic() - began, 3), len(list(Path("/dev").glob("nvidia[0-9]*")))
    return {"host": platform.node(), "seconds": seconds, "gpus": gpus}


def _user() -> str:
    """Return the user of this process; its number if it has no name, as in most pods."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _hardware() -> str:
    """Return a description of this machine's processors, memory and GPUs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [f"{os.cpu_count()} {_processor()} CPUs", f"{memory:.0f} GiB memory"]
    try:
        query = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):  # not installed, or its driver hangs
        return ", ".join(parts)
    gpus = query.stdout.strip().splitlines() if query.returncode == 0 else []
    return ", ".join([*parts, *(f"{gpus.count(gpu)} × {gpu}" for gpu in dict.fromkeys(gpus))])


def _processor() -> str:
    """Return the processor's model, which decides the last bits of results; its architecture if it is unknown."""
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.machine()
    model = re.search(r"^model name\s*:\s*(\S.*)$", described, re.MULTILINE)
    return " ".join(model[1].split()) if model else platform.machine()


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
