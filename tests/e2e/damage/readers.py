"""Altered files of finished runs, and what every command that opens a run does with them.

::

    python -m tests.e2e.damage.readers                # every method, kind of file, damage and command; half an hour
    python -m tests.e2e.damage.readers --write        # also write the table into docs/reproducibility.md
    python -m tests.e2e.damage.readers --runs DIR     # take the runs in DIR, named by their methods

Each cell damages one file in place, gives the command, and puts the file back. Good outcomes are *refused* (one error)
and *unaffected* (the same output as before the damage). One command in fifty is a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.files import storage_error
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question
from platform_sdk.studies.study import load_study
from tests.chaos.reduced import REDUCED
from tests.e2e.damage.table import edit
from tests.e2e.runs import ROOT, environment, options, run_here
from tests.sealing import sealed

METHODS = ("arena", "mygo", "prograph", "evipath")
MODELS = {"arena": "online", "mygo": "iteration-01", "prograph": "online", "evipath": "finetuning"}
KINDS = {
    "model's configuration": "MODEL/model/config.json",
    "tokenizer": "MODEL/model/tokenizer.json",
    "chat template": "MODEL/model/chat_template.jinja",
    "weights": "MODEL/model/model.safetensors",
    "corpus": "corpus/passages.jsonl",
    "questions": "corpus/questions.eval.jsonl",
    "index": "index/*/collections/*/**/data_*",
    "rollouts": "eval-final/rollouts.jsonl",
    "scores": "eval-final/scores.json",
    "scores before training": "eval-start/scores.json",
    "settings of the evaluation": "eval-final/evaluate-step.json",
    "recipe": "recipe.json",
    "manifest": "manifest.jsonl",
    "journal of the run": "tracking/run.jsonl",
    "journal of a step": "tracking/steps/eval-final.jsonl",
    "environment": "tracking/environment.json",
    "report": "report.html",
}
DOCUMENT = ROOT / "docs/reproducibility.md"
BEGIN, END = "<!-- table of damage -->", "<!-- end of the table of damage -->"
REAL_EVERY = 50
LONGEST = 600.0


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def replaced(path: Path, run_dir: Path, other: Path) -> None:
    """Put another run's file of the kind in place; if there is none that differs, the run's manifest or recipe."""
    own = [run_dir / name for name in ("manifest.jsonl", "recipe.json")]
    source = next(one for one in (other, *own) if one.is_file() and one.read_bytes() != path.read_bytes())
    path.write_bytes(source.read_bytes())


DAMAGES = ("edited", "cut", "emptied", "deleted", "replaced")


@dataclass(frozen=True)
class Cell:
    """One damage to one file of a method's run, seen by one command."""

    method: str
    kind: str
    damage: str
    command: str
    outcome: str

    @property
    def good(self) -> bool:
        return self.outcome in ("refused", "unaffected")

    def __str__(self) -> str:
        return "\t".join((self.method, self.kind, self.damage, self.command, self.outcome))


class Subject:
    """A finished run of a method, with the commands that open it."""

    def __init__(self, method: str, folder: Path) -> None:
        self.method, self.folder, self.run_dir = method, folder, folder / method
        self.twin = folder / f"{method}-twin"  # equal results under another manifest
        if not self.twin.exists():
            shutil.copytree(self.run_dir, self.twin, symlinks=True)
            sealed(self.twin)
        self.output = folder / "output"
        question = next(iter(read_jsonl(self.run_dir / "corpus/questions.eval.jsonl", Question))).text
        run, out = str(self.run_dir), str(self.output)
        recipe = str(ROOT / "pipelines" / REDUCED[method].recipe)
        changes = [part for one in options(REDUCED[method].shorter().overrides) for part in ("--set", one)]
        self.commands: dict[str, tuple[str, ...]] = {
            "ask": ("ask", run, question, "--json"),
            "export": ("export", run, "-o", out),
            "evaluate": ("evaluate", run, "--dry-run", "--json"),
            "report": ("report", run, "-o", out),
            "compare": ("compare", run, str(self.twin), "--json"),
            "runs": ("runs", str(folder), "--json"),
            "study table": ("study", "table", *self._study(recipe), "--json"),
        }
        if method != "arena":
            self.commands["search"] = (
                "search", question, "--recipe", recipe, *changes, "--workdir", run, "--json", *self._scope(),
            )  # fmt: skip

    def path(self, kind: str) -> Path:
        name = KINDS[kind].replace("MODEL", MODELS[self.method])
        return next(self.run_dir.glob(name), self.run_dir / name)

    def outcome(self, command: str, *, real: bool) -> str:
        """Return what a command does: its error, or a digest of everything that it shows and writes."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.output) if self.output.is_dir() else self.output.unlink()
        arguments = self.commands[command]
        return self._real(arguments) if real else self._here(arguments)

    def _here(self, arguments: tuple[str, ...]) -> str:
        done = CliRunner().invoke(app, list(arguments))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            told = done.exception if isinstance(done.exception, UserError) else storage_error(done.exception)
            return "refused" if told else f"TRACEBACK {type(done.exception).__name__}: {done.exception}"
        return self._shown(done.exit_code, done.stdout, done.stderr)

    def _real(self, arguments: tuple[str, ...]) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "platform_sdk.cli", *arguments], env=environment(), cwd=ROOT, text=True,
            capture_output=True, timeout=LONGEST, check=False,
        )  # fmt: skip
        if "Traceback" in done.stderr:
            return f"TRACEBACK {done.stderr.strip().splitlines()[-1]}"
        refused = done.returncode == 2 and len(re.findall("^error: ", done.stderr, re.MULTILINE)) == 1
        return "refused" if refused else self._shown(done.returncode, done.stdout, done.stderr)

    def _shown(self, code: int, stdout: str, stderr: str) -> str:
        # Where several runs are shown, the altered one is named and left out.
        if ("warning: " in stderr and str(self.run_dir) in stderr) or (code == 1 and stderr.startswith("error: ")):
            return "refused"
        files = [self.output] if self.output.is_file() else sorted(self.output.rglob("*"))
        written = [(str(path), path.read_bytes()) for path in files if path.is_file()]
        return hashlib.sha256(repr((code, stdout, written)).encode()).hexdigest()

    def _study(self, recipe: str) -> tuple[str, ...]:
        """Write a study whose only cell is the run, linked into a folder of its own."""
        file, cells = self.folder / f"{self.method}-study.yaml", self.folder / f"{self.method}-cells"
        settings = dict(REDUCED[self.method].shorter().overrides)
        study = {"title": "t", "recipe": recipe, "settings": settings, "axes": {"run": {"only": {}}}, "metrics": ["em"]}
        file.write_text(json.dumps(study))
        cells.mkdir(exist_ok=True)
        link = cells / load_study(file, cells).cells[0].run_dir.name
        if not link.exists():
            link.symlink_to(self.run_dir)
        return str(file), "--folder", str(cells)

    def _scope(self) -> tuple[str, ...]:
        head = json.loads((self.run_dir / "corpus/triples.jsonl").read_text().splitlines()[1])["head"]
        return ("--scope", f"head={head}") if self.method == "evipath" else ()


@contextlib.contextmanager
def damaged(path: Path, damage: str, run_dir: Path, other: Path) -> Iterator[None]:
    """Damage a file, and put it back."""
    data = path.read_bytes()
    times = path.stat()
    deeds: Mapping[str, Callable[[], object]] = {
        "edited": lambda: edit(path),
        "cut": lambda: cut(path),
        "emptied": lambda: path.write_bytes(b""),
        "deleted": path.unlink,
        "replaced": lambda: replaced(path, run_dir, other),
    }
    deeds[damage]()
    try:
        yield
    finally:
        path.write_bytes(data)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def cells(folder: Path, methods: Iterable[str], *, every: int = 1) -> Iterator[Cell]:
    """Yield every cell of the table, or one in ``every``: with 4, each file, damage and command of one method."""
    subjects = {method: Subject(method, folder) for method in METHODS if (folder / method).is_dir()}
    number = 0
    for method in methods:
        subject = subjects[method]
        others = [other for name, other in subjects.items() if name != method]
        expected = {command: subject.outcome(command, real=False) for command in subject.commands}
        assert not any(found == "refused" or found.startswith("TRACEBACK") for found in expected.values()), expected
        for kind in KINDS:
            path = subject.path(kind)
            if not path.is_file():
                continue
            for damage in DAMAGES:
                for place, command in enumerate(subject.commands):
                    position = METHODS.index(method) + [*KINDS].index(kind) + DAMAGES.index(damage) + place
                    if position % every:
                        continue
                    number += 1
                    real = number % REAL_EVERY == 0
                    usual = subject.outcome(command, real=True) if real else expected[command]
                    with damaged(path, damage, subject.run_dir, others[0].path(kind) if others else path):
                        found = subject.outcome(command, real=real)
                    outcome = "unaffected" if found == usual else found if len(found) != 64 else "SILENT"
                    yield Cell(method, kind, damage, command, outcome)


def table(found: Iterable[Cell]) -> str:
    """Return the cells as a Markdown table: how many were refused, and how many had no effect."""
    counted = Counter((cell.kind, cell.command, cell.outcome) for cell in found)
    commands = list(dict.fromkeys(command for _, command, _ in counted))
    rows = [["file", *(f"`{command}`" for command in commands)], ["---"] * (len(commands) + 1)]
    for kind in KINDS:
        numbers = [(counted[kind, command, "refused"], counted[kind, command, "unaffected"]) for command in commands]
        rows.append([kind, *(f"{refused} / {unaffected}" for refused, unaffected in numbers)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def make_runs(folder: Path) -> None:
    for method in METHODS:
        short = REDUCED[method].shorter()
        run_here(str(ROOT / "pipelines" / short.recipe), folder / method, short.overrides)


def write_table(text: str) -> None:
    """Replace the table in the documentation."""
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.damage.readers")
    parser.add_argument("--runs", type=Path, help="a folder of finished runs, named by their methods")
    parser.add_argument("--method", action="append", choices=METHODS, help="may be repeated; default: all")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only one cell in N; default: all")
    parser.add_argument("--write", action="store_true", help="write the table into the documentation")
    parser.add_argument("--json", action="store_true", help="print the cells as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hopforge-readers-") as temporary:
        folder = arguments.runs or Path(temporary)
        if arguments.runs is None:
            make_runs(folder)
        found = []
        for cell in cells(folder, arguments.method or METHODS, every=arguments.every):
            found.append(cell)
            if not cell.good:
                print(cell, file=sys.stderr, flush=True)
    print(json.dumps([vars(cell) | {"good": cell.good} for cell in found]) if arguments.json else table(found))
    outcomes = Counter(cell.outcome if cell.good else "FAULT" for cell in found)
    print(f"{len(found)} cells: {dict(outcomes)}", file=sys.stderr)
    if arguments.write:
        write_table(table(found))
    return int(not all(cell.good for cell in found))


if __name__ == "__main__":
    sys.exit(main())
