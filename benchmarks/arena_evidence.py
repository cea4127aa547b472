"""Precision and recall of the passages that ARENA's answers name, in a study's finished runs, as a table in Markdown.

In percent of the named and of the gold passages, of the first seed's sampled and greedy answers; differences are to the
row above, paired by question, with 95 % bootstrap intervals.

    python benchmarks/arena_evidence.py studies/arena-real.yaml [--folder runs]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.graph_recall import change, interval
from benchmarks.linked_recall import row
from platform_sdk.evaluation.intervals import bootstrap_interval, paired_bootstrap
from platform_sdk.methods.arena.measures import measures
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.studies.cells import state_of
from platform_sdk.studies.study import Cell, load_study

METRICS = ("evidence_precision", "evidence_recall")
Values = dict[tuple[str, int], dict[str, float]]
"""Values by question, of each metric and attempt (0 is sampled, 1 greedy)."""


def values_of(cell: Cell) -> Values:
    spec = AgentSpec.model_validate(cell.recipe.parameters["agent"])
    rollouts = list(read_jsonl(cell.run_dir / "eval-final" / "rollouts.jsonl", Rollout))
    found: Values = {(metric, attempt): {} for attempt in range(2) for metric in METRICS}
    for rollout, measured in zip(rollouts, measures(spec, None, rollouts), strict=True):
        for metric in METRICS:
            found[metric, rollout.attempt][rollout.question.id] = measured[metric]
    return found


def cells_of(values: Values, above: Values | None) -> list[str]:
    """Return each metric's mean and its difference from the row above, or nothing for the first row."""
    cells = []
    for key, own in values.items():
        ids = sorted(own)
        scores = [own[id] for id in ids]
        cells.append(interval(sum(scores) / len(scores), *bootstrap_interval(scores)))
        cells.append("" if above is None else change(paired_bootstrap(scores, [above[key][id] for id in ids])))
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="folder of the run directories")
    given = parser.parse_args()
    study = load_study(given.study, given.folder)
    names = [f"{decoding}{name}" for decoding in ("", "greedy ") for name in ("precision", "recall")]
    print(row(" · ".join(study.document.axes), *(cell for name in names for cell in (name, "difference"))))
    print(row(*["---"] * (1 + 2 * len(names))))
    above = None
    for place in study.places:
        cell = study.at(place)[0]
        if state_of(cell).state != "finished":
            continue
        values = values_of(cell)
        print(row(" · ".join(place), *cells_of(values, above)))
        above = values


if __name__ == "__main__":
    main()
