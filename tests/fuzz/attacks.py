"""Random attacks on finished runs and on the command line, drawn and shrunk by hypothesis.

``python -m tests.fuzz.attacks --runs DIR [--alterations 1000] [--commands 1000] [--seed 0]`` attacks the finished run
``DIR/arena``, for example one of ``python -m tests.chaos``; ``test_attacks.py`` makes a few of the same attacks.

An *alteration* damages one to three files of a run: the run must be refused, or the damaged files must be ones that
hold no results. A *command line* has odd arguments, files and environments, in an ASCII locale, with closed streams, on
a full disk or without HOME: it must end without a traceback, within ``LONGEST`` seconds of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal, TypeVar

import hypothesis
from hypothesis import strategies as st

from platform_sdk.errors import UserError
from platform_sdk.tracking.opened import open_run
from tests.e2e.runs import environment

LONGEST = 20.0
WAITED = 180.0  # for a machine that does other things; a command that waits for nothing ends far earlier
UNREAD = (".lock", "report.html", "lineage.html", "logs/", "kfp/", "tracking/mlflow.json", "tracking/digests.json",
          "tracking/verified.json", "tracking/follower.log", "tracking/lock", "tracking/run.jsonl")  # fmt: skip
"""Files of a run that hold no results; of the run's journal, the lines before its end are sealed."""
UNREAD_NAMES = ("begun.json", ".seconds.json", ".sha256", "-step.json", "LOCK", "manifest.json.prev", "schema.json")
WORDS = (
    "", "-", "--", ".", "/", "/dev/null", "/dev/zero", "/dev/full", "nan", "-1", "1e999", "\udce4", "a\x1b[2J", "näme",
    "run:.", "hopforge:nope", "{{x}}", "x" * 5000, "pipelines/mygo/world.yaml", "studies/world-mygo.yaml", "RUN",
    "PIPE", "seed=1", "model=run:RUN", "--set", "--json", "--help", "--altered", "-o", "--workdir", "--folder",
    "--recipe", "--dry-run",
)  # fmt: skip
COMMANDS = (
    "validate", "compile", "schema", "evaluate --dry-run", "runs", "report", "ask", "compare", "study status",
    "study table", "export", "metrics hotpotqa", "score", "convert", "search", "recall", "graph stats",
    "serve retriever",
)  # fmt: skip
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
T = TypeVar("T")


@dataclass(frozen=True)
class Alteration:
    """Damage to one file; ``file`` and ``place`` are shares, of the list of files and of the file's length."""

    file: float
    place: float
    how: Literal["flip", "cut", "insert", "append"]
    bits: bytes

    def apply(self, data: bytes) -> bytes:
        """Return the altered content."""
        at = int(self.place * len(data))
        match self.how:
            case "flip":
                return data[:at] + bytes([data[at] ^ (1 << self.bits[0] % 8)]) + data[at + 1 :]
            case "cut":
                return data[:at]
            case "insert":
                return data[:at] + self.bits + data[at:]
            case "append":
                return data + b"\n{}"


SHARES = st.floats(0, 1, exclude_max=True)
ALTERATIONS = st.lists(
    st.builds(
        Alteration, SHARES, SHARES, st.sampled_from(["flip", "cut", "insert", "append"]),
        st.binary(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=3,
)  # fmt: skip


def opened_silently(run_dir: Path, alterations: list[Alteration]) -> str | None:
    """Return what opened without a word although a file that is read was altered; None if the run was refused."""
    files = sorted(path for path in run_dir.rglob("*") if path.is_file() and path.stat().st_size)
    chosen = {files[int(one.file * len(files))]: one for one in alterations}
    kept = {path: path.read_bytes() for path in chosen}
    for path, alteration in chosen.items():
        path.write_bytes(alteration.apply(kept[path]))
    names = [path.relative_to(run_dir).as_posix() for path in chosen]
    try:
        open_run(run_dir)
        read = [name for name in names if not _is_unread(name) and not _is_equal(run_dir / name, kept)]
        return f"opened although {' and '.join(read)} were altered" if read else None
    except UserError:
        return None
    except Exception as error:  # any other is a traceback of a command
        return f"{type(error).__name__}: {error}: {names}"
    finally:
        for path, data in kept.items():
            path.write_bytes(data)


def _is_equal(path: Path, kept: Mapping[Path, bytes]) -> bool:
    """Return True if only the layout of a recipe has changed: its seal covers the values."""
    return path.name == "recipe.json" and json.loads(path.read_bytes()) == json.loads(kept[path])


def _is_unread(name: str) -> bool:
    rebuilt = name.startswith("index/") and not Path(name).name.startswith("data_")
    return rebuilt or name.startswith(UNREAD) or name.endswith(UNREAD_NAMES)


@dataclass(frozen=True)
class CommandLine:
    """A command with its words, and what it runs in; RUN and PIPE in a word stand for a run and a named pipe."""

    command: str
    words: list[str]
    ascii: bool
    home: bool
    redirect: Literal["", ">&-", "2>&-", "> /dev/full", "| head -c 1"]


COMMAND_LINES = st.builds(
    CommandLine, st.sampled_from(COMMANDS), st.lists(st.sampled_from(WORDS), max_size=4), st.booleans(), st.booleans(),
    st.sampled_from(["", ">&-", "2>&-", "> /dev/full", "| head -c 1"]),
)  # fmt: skip


class Shell:
    """Runs command lines, each in an empty directory, against one finished run."""

    def __init__(self, run_dir: Path, folder: Path) -> None:
        self._run_dir, self._folder, self._numbers = run_dir, folder, count()
        self._pipe = folder / "pipe"
        os.mkfifo(self._pipe)

    def fault(self, line: CommandLine) -> str | None:
        """Run the command line; return how it ended if it should not end so."""
        words = [word.replace("RUN", str(self._run_dir)).replace("PIPE", str(self._pipe)) for word in line.words]
        arguments = [sys.executable, "-m", "platform_sdk.cli", *line.command.split(), *words]
        variables = {**environment(), "HOPFORGE_CACHE": str(self._folder / "cache")}
        if line.ascii:
            variables |= ASCII
        if not line.home:
            del variables["HOME"], variables["HOPFORGE_CACHE"]
        text = f'"$@" {line.redirect}' if line.redirect.startswith("|") else f'exec "$@" {line.redirect}'
        place = self._folder / str(next(self._numbers))
        place.mkdir()
        before = _processor_seconds()
        try:
            done = subprocess.run(
                ["bash", "-c", text, "_", *map(os.fsencode, arguments)], cwd=place, env=variables,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=WAITED, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"not ended after {WAITED:g} s: {line}"
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if (taken := _processor_seconds() - before) > LONGEST:
            return f"{taken:.0f} s of processor time: {line}"
        if b"Traceback" in done.stderr or b"Exception ignored" in done.stderr:
            return f"{done.stderr.decode(errors='replace').strip().splitlines()[-1]}: {line}"
        return None


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def attack(strategy: st.SearchStrategy[T], fault: Callable[[T], str | None], examples: int, seed: int | None) -> None:
    """Draw ``examples`` attacks, the same ones whenever ``seed`` is None.

    Raises:
        AssertionError: an attack showed a fault; hypothesis has reduced it to a small one.
    """

    @hypothesis.settings(
        max_examples=examples, deadline=None, derandomize=seed is None, database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(strategy)
    def attempt(drawn: T) -> None:
        found = fault(drawn)
        assert found is None, found

    (attempt if seed is None else hypothesis.seed(seed)(attempt))()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.attacks")
    parser.add_argument("--runs", type=Path, required=True, help="a folder with a finished run named arena")
    parser.add_argument("--alterations", type=int, default=1000)
    parser.add_argument("--commands", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hopforge-attacks-") as temporary:
        run_dir = Path(temporary) / "arena"
        shutil.copytree(arguments.runs / "arena", run_dir, symlinks=True)
        attack(ALTERATIONS, lambda drawn: opened_silently(run_dir, drawn), arguments.alterations, arguments.seed)
        print(f"{arguments.alterations} alterations: none opened without a word", flush=True)
        attack(COMMAND_LINES, Shell(run_dir, Path(temporary)).fault, arguments.commands, arguments.seed)
        print(f"{arguments.commands} command lines: no traceback, none above {LONGEST:g} s")


if __name__ == "__main__":
    main()
