"""Altered files of finished runs, and what every command that opens a run does with them.

::

    python -m tests.e2e.damage.readers                # every method, kind of file, damage and command; an hour
    python -m tests.e2e.damage.readers --write        # also write the table into docs/reproducibility.md
    python -m tests.e2e.damage.readers --runs DIR     # take the runs in DIR, named by their methods

Each cell damages one file in place, runs a command, and restores the file. Good outcomes are *refused* (one
error), *unaffected* (the same output as before the damage) and, with ``--altered``, *warned* (every output has the
warning). One command in fifty is a separate process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.reduced import REDUCED
from tests.e2e.damage.reading import ALTERED, Subject
from tests.e2e.damage.table import edit
from tests.e2e.runs import ROOT, run_here

METHODS = ("arena", "mygo", "prograph", "evipath", "react")
MODELS = {"arena": "online", "mygo": "iteration-01", "prograph": "online", "evipath": "finetuning", "react": "online"}
KINDS = {
    "model's configuration": "MODEL/model/config.json",
    "tokenizer": "MODEL/model/tokenizer.json",
    "chat template": "MODEL/model/chat_template.jinja",
    "weights": "MODEL/model/model.safetensors",
    "corpus": "corpus/passages.jsonl",
    "questions": "corpus/questions.eval.jsonl",
    "index": "index/*/collections/*/**/data_*",
    "rollouts": "eval-final/rollouts.jsonl",
    "predictions": "eval-final/predictions-world.json",
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
GOOD = ("refused", "warned", "unaffected")


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
        return self.outcome in GOOD

    def __str__(self) -> str:
        return "\t".join((self.method, self.kind, self.damage, self.command, self.outcome))


def path_of(subject: Subject, kind: str) -> Path:
    """Return the first file of a kind in a run; it may not exist."""
    name = KINDS[kind].replace("MODEL", MODELS[subject.method])
    return next(subject.run_dir.glob(name), subject.run_dir / name)


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
        expected = {command: subject.outcome(command) for command in subject.names}
        assert all(len(found) == 64 for found in expected.values()), expected
        for kind in KINDS:
            path = path_of(subject, kind)
            if not path.is_file():
                continue
            for damage in DAMAGES:
                for place, command in enumerate(subject.names):
                    position = METHODS.index(method) + [*KINDS].index(kind) + DAMAGES.index(damage) + place
                    if position % every:
                        continue
                    number += 1
                    real = number % REAL_EVERY == 0
                    usual = subject.outcome(command, real=True) if real else expected[command]
                    with damaged(path, damage, subject.run_dir, path_of(others[0], kind) if others else path):
                        found = subject.outcome(command, real=real)
                    outcome = "unaffected" if found == usual else found if len(found) != 64 else "SILENT"
                    yield Cell(method, kind, damage, command, outcome)


def table(found: Iterable[Cell]) -> str:
    """Return the cells as Markdown tables, without and with ``--altered``.

    A table cell counts the runs that were refused, or with ``--altered`` shown with the warning, and those unaffected.
    """
    counted = Counter((cell.kind, cell.command, cell.outcome) for cell in found)
    commands = list(dict.fromkeys(command for _, command, _ in counted))
    parts = []
    for some in ([one for one in commands if ALTERED not in one], [one for one in commands if ALTERED in one]):
        rows = [["file", *(f"`{command}`" for command in some)], ["---"] * (len(some) + 1)]
        for kind in KINDS:
            stopped = [counted[kind, command, "refused"] + counted[kind, command, "warned"] for command in some]
            unaffected = [counted[kind, command, "unaffected"] for command in some]
            cells = (f"{left} / {right}" for left, right in zip(stopped, unaffected, strict=True))
            rows.append([kind, *cells])
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(part for part in parts)


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
            if len(found) % 100 == 0:
                print(f"{len(found)} cells", file=sys.stderr, flush=True)
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
