"""A campaign: seeded inputs of every kind in turn, each run within its limits, and a table of how they ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from platform_sdk.config.recipe import load_recipe
from tests.fuzz.kinds import HOME, KINDS
from tests.fuzz.workers import Outcome, run_limited


@dataclass(frozen=True)
class Result:
    """An input by its name, ``SEED/KIND/NUMBER``, and how it ended."""

    name: str
    kind: str
    outcome: Outcome


def fuzz(inputs: int, seed: int, only: str | None = None, keep: Path | None = None) -> list[Result]:
    """Run ``inputs`` inputs, the kinds in turn.

    Args:
        only: a kind, or ``KIND/NUMBER`` for one input.
        keep: the directory that the files of failing inputs are written into.
    """
    for method in ("mygo", "arena"):  # imports what the inputs' processes would each import again
        load_recipe(HOME / f"pipelines/{method}/world.yaml")
    kinds = list(KINDS)
    results = []
    for number in range(inputs):
        kind = kinds[number % len(kinds)]
        if only not in (None, kind, f"{kind}/{number}"):
            continue
        name = f"{seed}/{kind}/{number}"
        case = KINDS[kind](Random(name))
        result = Result(name, kind, run_limited(case))
        results.append(result)
        if result.outcome.ending == "failure" and keep is not None:
            folder = keep / name.replace("/", "-")
            folder.mkdir(parents=True, exist_ok=True)
            for file, data in case.files.items():
                (folder / file).write_bytes(data)
    return results


def table(results: Sequence[Result]) -> str:
    """Return how many inputs of each kind ended how, with the slowest and the largest."""
    rows = [f"{'kind':<12} {'inputs':>7} {'accepted':>9} {'refused':>8} {'failures':>9} {'slowest':>9} {'largest':>9}"]
    for kind in (*dict.fromkeys(result.kind for result in results), "all"):
        own = [result.outcome for result in results if kind in (result.kind, "all")]
        endings = [outcome.ending for outcome in own]
        counts = [endings.count(ending) for ending in ("accepted", "refused", "failure")]
        slowest = max((outcome.seconds for outcome in own), default=0.0)
        largest = max((outcome.mebibytes for outcome in own), default=0.0)
        ended = f"{counts[0]:>9} {counts[1]:>8} {counts[2]:>9}"
        rows.append(f"{kind:<12} {len(own):>7} {ended} {slowest:>7.2f} s {largest:>5.0f} MiB")
    return "\n".join(rows)
