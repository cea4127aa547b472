"""Random attacks on the command line: ``python -m tests.fuzz.attacks --runs DIR [--alterations N] [--commands N]``.

Alterations damage one to three files of a finished run in DIR at random places and then open it: the run must be
refused. Files that nobody reads are left out. Commands are command lines with odd arguments, files and
environments, in an ASCII locale, with closed streams, on a full disk or without HOME: each must end within 20 seconds,
without a traceback.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.tracking.opened import open_run
from tests.e2e.runs import environment

LONGEST = 20.0
UNREAD = (".lock", "report.html", "logs/", "kfp/", "tracking/mlflow.json", "tracking/digests.json",
          "tracking/verified.json", "tracking/follower.log", "tracking/lock", "tracking/run.jsonl")  # fmt: skip
"""Files of a run that hold no results; in the run's journal, all but the last line is sealed."""
UNREAD_NAMES = ("begun.json", ".seconds.json", ".sha256", "-step.json", "LOCK", "manifest.json.prev", "schema.json")
WORDS = (
    "", "-", "--", ".", "/", "/dev/null", "/dev/zero", "/dev/full", "nan", "-1", "1e999", "\udce4", "a\x1b[2J", "näme",
    "run:.", "hopforge:nope", "{{x}}", "x" * 5000, "pipelines/mygo/world.yaml", "studies/world-mygo.yaml", "RUN",
    "PIPE", "seed=1", "model=run:RUN", "--set", "--json", "--help", "--altered", "-o", "--workdir", "--folder",
    "--recipe",
    "--dry-run",
)  # fmt: skip
COMMANDS = (
    "validate", "compile", "schema", "evaluate", "runs", "report", "ask", "compare", "study status", "study table",
    "export", "metrics hotpotqa", "score", "convert", "search", "recall", "graph stats", "serve retriever",
)  # fmt: skip
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
REDIRECTS = ("", "", "", ">&-", "2>&-", "> /dev/full", "| head -c 1")


def alterations(run_dir: Path, count: int, drawn: random.Random) -> Iterator[str]:
    """Yield what opened without a word although a file that is read was altered."""
    found = (path for path in run_dir.rglob("*") if path.is_file() and path.stat().st_size)
    files = sorted(path for path in found if not _is_unread(str(path.relative_to(run_dir))))
    for _ in range(count):
        chosen = drawn.sample(files, drawn.randint(1, 3))
        kept = {path: path.read_bytes() for path in chosen}
        altered = {path: _altered(data, drawn) for path, data in kept.items()}
        names = [str(path.relative_to(run_dir)) for path in chosen]
        try:
            for path, data in altered.items():
                path.write_bytes(data)
            open_run(run_dir)
            if not all(_same_json(path, kept) for path in chosen):
                yield f"silent: {names}"
        except UserError:
            pass
        except Exception as error:  # any other is a traceback of a command
            yield f"{type(error).__name__}: {error}: {names}"
        finally:
            for path, data in kept.items():
                path.write_bytes(data)


def commands(run_dir: Path, count: int, drawn: random.Random, folder: Path) -> Iterator[str]:
    """Yield the command lines that ended in a traceback, or not in time."""
    pipe = folder / "pipe"
    if not pipe.exists():
        os.mkfifo(pipe)
    for number in range(count):
        words = [
            drawn.choice(WORDS).replace("RUN", str(run_dir)).replace("PIPE", str(pipe))
            for _ in range(drawn.randint(0, 4))
        ]
        arguments = [*drawn.choice(COMMANDS).split(), *words]
        variables = {**environment(), "HOPFORGE_CACHE": str(folder / "cache")}
        if drawn.random() < 0.4:
            variables |= ASCII
        if drawn.random() < 0.2:
            del variables["HOME"], variables["HOPFORGE_CACHE"]
        redirect = drawn.choice(REDIRECTS)
        place = folder / str(number)
        place.mkdir()
        began = time.monotonic()
        try:
            done = subprocess.run(
                ["bash", "-c", f'exec "$@" {redirect}' if not redirect.startswith("|") else f'"$@" {redirect}', "_",
                 sys.executable, "-m", "platform_sdk.cli", *map(os.fsencode, arguments)],
                cwd=place, env=variables, capture_output=True, stdin=subprocess.DEVNULL, timeout=LONGEST, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            yield f"longer than {LONGEST:g} s: {arguments} {redirect}"
            continue
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if b"Traceback" in done.stderr or b"Exception ignored" in done.stderr:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1]
            yield f"{last}: {arguments} {redirect} after {time.monotonic() - began:.0f} s"


def _altered(data: bytes, drawn: random.Random) -> bytes:
    place = drawn.randrange(len(data))
    match drawn.randrange(4):
        case 0:
            return data[:place] + bytes([data[place] ^ (1 << drawn.randrange(8))]) + data[place + 1 :]
        case 1:
            return data[:place]
        case 2:
            return data[:place] + drawn.randbytes(drawn.randint(1, 8)) + data[place:]
        case _:
            return data + b"\n{}"


def _same_json(path: Path, kept: Mapping[Path, bytes]) -> bool:
    """Return True if only the layout of a recipe has changed: its seal covers the values."""
    return path.name == "recipe.json" and json.loads(path.read_bytes()) == json.loads(kept[path])


def _is_unread(name: str) -> bool:
    return name.startswith(UNREAD) or name.endswith(UNREAD_NAMES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.attacks")
    parser.add_argument("--runs", type=Path, required=True, help="a folder with a finished run named arena")
    parser.add_argument("--alterations", type=int, default=1000)
    parser.add_argument("--commands", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    drawn, faults = random.Random(arguments.seed), 0
    with tempfile.TemporaryDirectory(prefix="hopforge-attacks-") as temporary:
        folder = Path(temporary)
        run_dir = folder / "arena"
        shutil.copytree(arguments.runs / "arena", run_dir, symlinks=True)
        for fault in alterations(run_dir, arguments.alterations, drawn):
            faults += 1
            print(fault, flush=True)
        for fault in commands(run_dir, arguments.commands, drawn, folder):
            faults += 1
            print(fault, flush=True)
    print(f"{arguments.alterations} alterations, {arguments.commands} commands: {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
