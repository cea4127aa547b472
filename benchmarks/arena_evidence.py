"""Precision and recall of the passages that ARENA's answers name, as a table in Markdown, from evaluations' rollouts.

In percent of the named and of the gold passages, of sampled and of greedy answers; differences are to the row above,
paired by question, with 95 % bootstrap intervals.

    python benchmarks/arena_evidence.py [NAME=]RUN/EVALUATION ...     # e.g. fine-tuned=runs/a/eval-final
"""

from __future__ import annotations

import sys
from pathlib import Path

from platform_sdk.evaluation.intervals import bootstrap_interval, paired_bootstrap
from platform_sdk.files import read_object
from platform_sdk.methods.arena.measures import measures
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout

METRICS = ("evidence_precision", "evidence_recall")
Values = dict[tuple[str, int], dict[str, float]]
"""Metrics by metric and attempt (0 is sampled, 1 greedy), by question."""


def values_of(evaluation: Path) -> Values:
    spec = AgentSpec.model_validate(read_object(evaluation.parent / "recipe.json")["parameters"]["agent"])
    rollouts = list(read_jsonl(evaluation / "rollouts.jsonl", Rollout))
    found: Values = {(metric, attempt): {} for attempt in range(2) for metric in METRICS}
    for rollout, measured in zip(rollouts, measures(spec, None, rollouts), strict=True):
        for metric in METRICS:
            found[metric, rollout.attempt][rollout.question.id] = measured[metric]
    return found


def row(name: str, values: Values, above: Values | None) -> str:
    cells = [name]
    for key, own in values.items():
        ids = sorted(own)
        low, high = bootstrap_interval([own[id] for id in ids])
        cells.append(f"{100 * sum(own.values()) / len(own):.1f} ({100 * low:.1f} to {100 * high:.1f})")
        if above is None:
            cells.append("")
        else:
            apart = paired_bootstrap([own[id] for id in ids], [above[key][id] for id in ids])
            difference, low, high = (f"{100 * share:+.1f}".replace("-", "−") for share in apart[:3])
            cells.append(f"{difference} ({low} to {high})")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    names = [f"{decoding}{name}" for decoding in ("", "greedy ") for name in ("precision", "recall")]
    print("| answers |", " | ".join(f"{name} | difference" for name in names), "|")
    print(f"|{'---|' * (1 + 2 * len(names))}")
    above = None
    for argument in sys.argv[1:]:
        name, _, folder = argument.rpartition("=")
        values = values_of(Path(folder))
        print(row(name or folder, values, above))
        above = values


if __name__ == "__main__":
    main()
