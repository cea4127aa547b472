"""Provenance of a run: git commit, uncommitted changes, versions of the installed packages, the machine."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

from pydantic import Field

import platform_sdk
from platform_sdk.config.struct import Struct
from platform_sdk.files import sha256

COMMIT = "HOPFORGE_COMMIT"
"""Environment variable of the images with the commit that they were built from."""
POD = "KFP_POD_NAME"
"""Environment variable of Kubeflow Pipelines with the name of a step's pod."""
DIFF_OPTIONS = (
    "-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false", "diff", "--binary", "--no-color", "--no-ext-diff",
    "--no-textconv",
)  # fmt: skip

REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
"""Environment variables with which git reads another repository, e.g. in the hook of one."""


class Provenance(Struct):
    """Code and environment of a run.

    Attributes:
        commit: None if the code is not in a git checkout, or git is not installed, and the image does not name one.
        dirty: True if the checkout has changes that are not committed; None without a checkout.
        diff: SHA-256 of the file with these changes; empty if there are none.
        source: digest of hopforge's source files.
        place: place on a cluster by names: ``team``, ``namespace``, ``account``, ``queue``, ``pipelines_run``, …; and
            ``submitted_by``, the name that ``hopforge submit`` gave.
        images: digests of the images of the process's pod by their names.
    """

    commit: str | None
    dirty: bool | None
    python: str
    packages: dict[str, str]
    hardware: str
    version: str = ""
    source: str = ""
    host: str = ""
    user: str = ""
    diff: str = ""
    place: dict[str, str] = Field(default_factory=dict)
    images: dict[str, str] = Field(default_factory=dict)

    def entry(self) -> dict[str, str]:
        """Return ``origin`` of the manifest's entry; the environment's description has the others."""
        names = ("version", "commit", "source", "diff", "host", "user", "hardware")
        shown = {name: getattr(self, name) for name in names} | self.place
        return {name: value for name, value in shown.items() if value}

    @property
    def shown_user(self) -> str:
        """Name for MLflow: on a cluster the submitter, or else the account; the process's user has no name there."""
        place = self.place
        account = f"{place['namespace']}/{place['account']}" if {"namespace", "account"} <= place.keys() else ""
        return place.get("submitted_by") or account or self.user


def provenance(place: Mapping[str, str] | None = None, images: Mapping[str, str] | None = None) -> Provenance:
    """Return the provenance of this process's code and environment, without the digest of uncommitted changes."""
    checkout = own_checkout()
    commit = (_git(checkout, "rev-parse", "HEAD") or b"").decode().strip() if checkout else ""
    changes = _git(checkout, "status", "--porcelain") if checkout and commit else None
    return Provenance(
        commit=commit or os.environ.get(COMMIT) or None,
        dirty=None if changes is None else bool(changes.strip()),
        python=platform.python_version(),
        packages=_packages(),
        hardware=_hardware(),
        version=metadata.version("hopforge"),
        source=source_digest(Path(platform_sdk.__file__).parent),
        host=platform.node(),
        user=user_name(),
        place=dict(place or {}),
        images=dict(images or {}),
    )


def _packages() -> dict[str, str]:
    """Return the versions of the installed packages; of several on the path, the first one, which is imported."""
    found: dict[str, str] = {}
    for package in metadata.distributions():
        # Not package.metadata, which reads the same three places, but parses the whole description too: seven times as
        # slow, half a second in all. A folder that an interrupted installation left has none of them.
        text = package.read_text("METADATA") or package.read_text("PKG-INFO") or package.read_text("")
        head = HeaderParser().parsestr((text or "").partition("\n\n")[0])
        if head["Name"] and head["Version"]:
            found.setdefault(head["Name"], head["Version"])
    return dict(sorted(found.items()))


def own_checkout() -> Path | None:
    """Return the git checkout of this process's code; None if it is installed without one."""
    folder = Path(platform_sdk.__file__).resolve().parents[1]
    return folder if (folder / ".git").exists() else None


def uncommitted_changes(checkout: Path, package: Path) -> bytes | None:
    """Return the changes since the last commit as a patch that ``git apply`` accepts; None if git fails.

    Args:
        checkout: The git checkout.
        package: The package in it, whose new files are included.
    """
    changed = _git(checkout, *DIFF_OPTIONS, "HEAD")
    listed = _git(checkout, "ls-files", "-z", "--others", "--exclude-standard", "--", f"{package}/*.py")
    if changed is None or listed is None:
        return None
    parts: list[bytes] = [changed]
    for name in filter(None, listed.split(b"\0")):
        # Unlike other commands, this one exits with 1 if the files differ.
        added = _git(checkout, *DIFF_OPTIONS, "--no-index", "--", os.devnull, os.fsdecode(name), status=1)
        if added is None:
            return None
        parts.append(added)
    return b"".join(parts)


def seeds_of(settings: object, name: str = "") -> dict[str, int]:
    """Return the seeds in a recipe's parameters by their dotted names."""
    if isinstance(settings, Mapping):
        inner = {str(key): value for key, value in settings.items()}
    elif isinstance(settings, list | tuple):
        inner = {str(number): value for number, value in enumerate(settings)}
    else:
        return {name: settings} if isinstance(settings, int) and re.search(r"(^|[._])seed$", name) else {}
    found = (seeds_of(value, f"{name}.{key}" if name else key) for key, value in inner.items())
    return {path: seed for seeds in found for path, seed in seeds.items()}


def source_digest(package: Path) -> str:
    """Return the digest of a package's source files: of their names and SHA-256, with or without git."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()} {sha256(path)}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Clocks:
    """Readings of the wall clock and of this process's CPU time with that of its ended children, in seconds."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Clocks:
        return cls(time.monotonic(), sum(os.times()[:4]))


def used(began: Clocks) -> dict[str, str | int | float]:
    """Return what this process used since ``began``: host, pod, seconds, CPU seconds, GPUs."""
    now, pod = Clocks.now(), os.environ.get(POD)
    return {
        "host": platform.node(), **({"pod": pod} if pod else {}),
        "seconds": round(now.wall - began.wall, 3), "cpu_seconds": round(now.cpu - began.cpu, 2),
        "gpus": len(list(Path("/dev").glob("nvidia[0-9]*"))),
    }  # fmt: skip


def user_name() -> str:
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


def _git(checkout: Path, *arguments: str, status: int = 0) -> bytes | None:
    """Return the output of a git command in a checkout; None if it fails, i.e. its exit status is not ``status``."""
    environment = {name: value for name, value in os.environ.items() if name not in REPOSITORY}
    command = ["git", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == status else None
