"""Containers of the images, run as a cluster would run them."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# As pods are in manifests/ and in jobs: a root file system that is read-only, volumes at /tmp and for shared memory, no
# rights.
RESTRICTED = [
    "--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp:rw,mode=1777", "--shm-size", "512m",
    "--network", "none", "--cap-drop", "all", "--security-opt", "no-new-privileges",
    "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096",
]  # fmt: skip


class Podman:
    """Podman, and the images that were built with it.

    Args:
        command: how podman is called, with options that this machine needs.
        images: what stands before an image's name, as localhost/hopforge.
    """

    def __init__(self, command: str, images: str, version: str) -> None:
        self._command, self._images, self.version = shlex.split(command), images, version

    def image(self, name: str) -> str:
        return f"{self._images}/{name}:{self.version}"

    def inspect(self, name: str) -> dict[str, Any]:
        [facts] = json.loads(self._done("image", "inspect", self.image(name)).stdout)
        return dict(facts)

    def history(self, name: str) -> str:
        return self._done("history", "--no-trunc", "--format", "{{.CreatedBy}}", self.image(name)).stdout

    def run(
        self, image: str, *command: str, volumes: dict[Path, str] | None = None,
        environment: dict[str, str] | None = None, user: str | None = None, timeout: float = 600,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run a command in a new container to its end."""
        options = self._options(volumes, environment, user)
        return self._called("run", "--rm", *options, self.image(image), *command, timeout=timeout)

    @contextlib.contextmanager
    def started(
        self, image: str, *command: str, volumes: dict[Path, str], environment: dict[str, str] | None = None
    ) -> Iterator[str]:
        """A container that stands; its name."""
        name = f"hopforge-{uuid.uuid4().hex[:8]}"
        options = self._options(volumes, environment, None)
        self._done("run", "--detach", "--name", name, *options, self.image(image), *command)
        try:
            yield name
        finally:
            self._called("rm", "--force", "--time", "5", name)

    def ask(self, name: str, program: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a Python program in a container that stands."""
        return self._called("exec", name, "python", "-c", program, timeout=timeout)

    def stop(self, name: str, seconds: int) -> int:
        """Tell a container to end as a kubelet would, and wait for it; its exit status."""
        self._done("stop", "--time", str(seconds), name, timeout=seconds + 60)
        return int(self._done("inspect", "--format", "{{.State.ExitCode}}", name).stdout)

    def log(self, name: str) -> str:
        done = self._called("logs", name)
        return done.stdout + done.stderr

    def running(self, name: str) -> bool:
        return self._called("inspect", "--format", "{{.State.Running}}", name).stdout.strip() == "true"

    @staticmethod
    def _options(volumes: dict[Path, str] | None, environment: dict[str, str] | None, user: str | None) -> list[str]:
        options = [*RESTRICTED, *(("--user", user) if user else ())]
        for path, mount in (volumes or {}).items():
            options += ["--volume", f"{path}:{mount}"]
        for variable, value in (environment or {}).items():
            options += ["--env", f"{variable}={value}"]
        return options

    def _done(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        done = self._called(*arguments, timeout=timeout)
        assert done.returncode == 0, f"{arguments[0]}: {done.stderr}"
        return done

    def _called(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, timeout=timeout, env=environment
        )


def opened(path: Path) -> Path:
    """A folder in which everybody may write now, and so the images' user."""
    for one in (path, *path.rglob("*")):
        one.chmod(0o777 if one.is_dir() else 0o666)
    return path
