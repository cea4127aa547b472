"""Course of online training in a study's finished runs, as a table in Markdown: means over successive updates.

Rewards are of the sampled training rollouts, entropy in nats per token; "no advantage" is the share of groups without a
gradient, in percent; minutes are the sum over the updates, sampling and training.

    HOPFORGE_DATA=DATA python benchmarks/online_updates.py studies/arena-real.yaml [--folder runs] [--every 10]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.linked_recall import row
from platform_sdk.studies.cells import state_of
from platform_sdk.studies.study import load_study
from platform_sdk.tracking.updates import FILE, Update, read_updates


def cells_of(updates: Sequence[Update], rewards: Sequence[str]) -> list[str]:
    seconds = sum(update.sampling_seconds + update.training_seconds + update.sync_seconds for update in updates)
    return [
        f"{updates[0].update} to {updates[-1].update}",
        *(f"{fmean(update.rewards[name] for update in updates):.3f}" for name in rewards),
        f"{fmean(update.statistics['entropy'] for update in updates):.2f}",
        f"{100 * fmean(update.zero_variance for update in updates):.0f}",
        f"{seconds / 60:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="folder of the run directories")
    parser.add_argument("--every", type=int, default=10, help="updates in a row")
    given = parser.parse_args()
    study = load_study(given.study, given.folder)
    head: list[str] = []
    for cell in (cell for place in study.places for cell in study.at(place)):
        file = cell.run_dir / "online" / FILE
        if state_of(cell).state != "finished" or not file.is_file():
            continue
        updates = read_updates(file.parent)
        rewards = list(updates[0].rewards)
        names = [" · ".join(study.document.axes), "seed", "updates", *rewards, "entropy", "no advantage", "minutes"]
        if names != head:
            head = names
            print(row(*head))
            print(row(*["---"] * len(head)))
        for first in range(0, len(updates), given.every):
            print(row(" · ".join(cell.place), str(cell.seed), *cells_of(updates[first : first + given.every], rewards)))
    if not head:
        missing = f"no run with updates has finished in {given.folder}"
        sys.exit(f"{given.study}: {missing}; run the study first, with the same HOPFORGE_DATA")


if __name__ == "__main__":
    main()
