"""``python -m tests.e2e.damage``: see ``tests/e2e/damage/__init__.py``."""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict
from pathlib import Path

from tests.chaos.drive import adopt_orphans
from tests.chaos.warm import import_everything
from tests.e2e.damage.places import places
from tests.e2e.damage.table import SUBJECTS, Damage, Row, Table, kind

SHORT = [
    Damage("finished", file, how)
    for file, how in (
        ("online/model/model.safetensors", "flip"),
        ("online/model/config.json", "edit"),
        ("online/model/tokenizer.json", "halve"),
        ("online/rollouts/0002.jsonl", "edit"),
        ("online/train.json", "empty"),
        ("eval-final/scores.json", "edit"),
        ("eval-start/rollouts.jsonl", "remove"),
        ("corpus/questions.train.jsonl", "append"),
        ("manifest.jsonl", "remove"),
        ("recipe.json", "halve"),
        ("tracking/run.jsonl", "append"),
        ("tracking/mlflow.json", "flip"),
    )
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.damage", description="Damage files of runs.")
    parser.add_argument("--recipe", action="append", choices=list(SUBJECTS), help="may be repeated; default: both")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose 'MOMENT FILE DAMAGE' contains it")
    parser.add_argument("--sample", metavar="SEED", help="one row of each kind of file of either recipe")
    parser.add_argument("--short", action="store_true", help="a dozen rows of ARENA's, and unwritable places")
    parser.add_argument("--json", action="store_true", help="the rows as JSON on standard output, the table on error")
    arguments = parser.parse_args()
    adopt_orphans()
    import_everything()
    rows: list[Row] = []
    for name in ["arena"] if arguments.short else arguments.recipe or list(SUBJECTS):
        with tempfile.TemporaryDirectory(prefix="hopforge-damage-") as folder:
            known = {kind(row.damaged.file) for row in rows}
            for row in _rows(Table(name, Path(folder).resolve()), arguments, known):
                rows.append(row)
                print(row, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    print(json.dumps([{**asdict(row), "good": row.good} for row in rows]) if arguments.json else summary(rows))
    return int(not all(row.good for row in rows))


def _rows(table: Table, arguments: argparse.Namespace, known: Set[str]) -> Iterator[Row]:
    if arguments.short:
        table.prepare(moments=())
        yield from map(table.tried, SHORT)
        yield from places(table)
        return
    table.prepare(table.subject.stops)
    chosen = [row for row in table.possible() if re.search(arguments.only, str(row))]
    if arguments.sample is not None:
        chosen = sample([row for row in chosen if kind(row.file) not in known], arguments.sample)
    yield from map(table.tried, chosen)


def sample(rows: Sequence[Damage], seed: str) -> list[Damage]:
    """Return one row of each kind of file, drawn from a seed."""
    drawn = random.Random(seed).sample(sorted(rows, key=str), len(rows))
    return list({kind(row.file): row for row in drawn}.values())


def summary(rows: list[Row]) -> str:
    kinds = {(row.recipe, kind(row.damaged.file)) for row in rows}
    equal = sum(row.outcome == "equal" for row in rows)
    faults = sum(not row.good for row in rows)
    minutes = sum(row.seconds for row in rows) / 60
    return (
        f"{len(kinds)} kinds of files, {len(rows)} rows: {equal} equal, {len(rows) - equal - faults} one error, "
        f"{faults} faults; {minutes:.1f} minutes"
    )


if __name__ == "__main__":
    sys.exit(main())
