"""The commands of a documentation page, run in their order with a ``kubectl`` that asks no cluster.

What kubectl can do without one it does: build an overlay, make a Secret. ``hopforge`` looks at its options and no more.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kubeflow.rendered import MANIFESTS

ROOT = MANIFESTS.parent
KUBECTL = f"""#!{sys.executable}
import subprocess, sys
real, words = {shutil.which("kubectl")!r}, sys.argv[1:]
if "secret" in words and "create" in words:
    done = subprocess.run([real, *words, "--dry-run=client", "-o", "json"], stdout=subprocess.PIPE)
    open("secrets.json", "ab").write(done.stdout)
    sys.stdout.buffer.write(done.stdout)
    sys.exit(done.returncode)
if "-k" in words:
    build = [real, "kustomize", words[words.index("-k") + 1]]
    sys.exit(subprocess.run(build, stdout=subprocess.DEVNULL).returncode)
if words[-2:] == ["-f", "-"]:
    assert "kind" in sys.stdin.read()
elif "-f" in words:
    open(words[words.index("-f") + 1])
if "--" in words:
    sys.exit(subprocess.run(words[words.index("--") + 1:]).returncode)
"""
HOPFORGE = f'#!/bin/sh\nexec {sys.executable} -m platform_sdk.cli "$@" --help > help.txt\n'
PYTHON = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
NOTHING = "#!/bin/sh\n"


def blocks(page: str) -> list[str]:
    """Return the shell commands of a page."""
    return re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def run_all(folder: Path, commands: list[str]) -> None:
    """Run them in a folder that looks like a checkout."""
    programs = {"kubectl": KUBECTL, "hopforge": HOPFORGE, "python": PYTHON} | dict.fromkeys(
        ("make", "podman", "pip", "hf"), NOTHING
    )
    (folder / "bin").mkdir()
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    for name in ("manifests", "pipelines"):
        (folder / name).symlink_to(ROOT / name)
    environment = {
        **os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOPFORGE_DATA": "/data",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def secrets_made(file: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Return the contents of the Secrets that ``secrets.json`` has, by namespace and name."""
    text, decoder, made = file.read_text().strip(), json.JSONDecoder(), {}
    while text:
        item, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        place = item["metadata"]["namespace"], item["metadata"]["name"]
        made[place] = {key: base64.b64decode(value).decode() for key, value in item["data"].items()}
    return made
