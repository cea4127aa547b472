"""``python -m tests.chaos``: see ``tests/chaos/__init__.py``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos.drive import Course, Driver, adopt_orphans
from tests.chaos.outcome import differences, findings, leftovers, locks, outcome
from tests.chaos.plan import PROGRAMS, SHARES, Attack, Timeline, Victim, aimed, plan
from tests.chaos.reduced import REDUCED
from tests.chaos.report import header, row, summary

SHOWN = 12
"""Differences of one run that are told."""
POINTED: dict[str, tuple[tuple[str, Victim], ...]] = {
    "mygo": (
        ("schema.json.tmp -> ", "tree"),  # the index is complete, and does not know it
        ("rename run/warmup/checkpoints", "run"),
        ("rename run/iteration-01/.rollouts.seconds", "tree"),  # others are half said
        ("rename run/eval-final/.scores", "run"),
    ),
    "arena": (
        ("rename run/online/rollouts/.0002.seconds", "tree"),
        ("rename run/online/.model.writing", "run"),
        ("link run/online/model/model.safetensors", "follower"),
    ),
    "evipath": (
        ("rename run/synthesis/.examples.jsonl", "run"),  # all drafts are there
        ("rename run/finetuning/checkpoints", "run"),
        ("rename run/eval-final/.scores", "tree"),
    ),
    "prograph": (
        ("rename run/online/rollouts/.0002.seconds", "tree"),
        ("open run/online/rollouts/prepared/0002.jsonl", "run"),  # sampled, and no completion yet
        ("rename run/eval-final/.scores", "tree"),
    ),
    "program": (
        ("rename run/online/rollouts/.0002.seconds", "tree"),
        ("rename run/online/.model.writing", "run"),
        ("rename run/eval-final/.scores", "tree"),
    ),
    "react": (
        ("rename run/online/rollouts/.0002.seconds", "tree"),
        ("rename run/online/.model.writing", "run"),
        ("rename run/eval-final/.scores", "tree"),
    ),
    "toy": (
        ("rename run/round-01/.sample.json", "tree"),
        ("open run/online/rollouts/prepared/0002.jsonl", "run"),  # sampled, and not prepared
        ("rename run/online/rollouts/prepared/.0002", "tree"),
    ),
}
"""The short form's kills: before which event, and whom."""


def main() -> int:
    arguments = _arguments()
    adopt_orphans()
    if not arguments.cold:
        from tests.chaos.warm import forking, import_everything

        import_everything()
        within: contextlib.AbstractContextManager[None] = forking()
    else:
        within = contextlib.nullcontext()
    workdir = arguments.workdir or Path(tempfile.mkdtemp(prefix="hopforge-chaos-"))
    results = []
    with within:
        for name in arguments.recipe or list(REDUCED):
            results.append(_attack(name, workdir.resolve() / name, arguments))
    if arguments.json:
        print(json.dumps(results, indent=1))
    if arguments.workdir is None:
        shutil.rmtree(workdir)
    return int(any(run["faults"] or run["differences"] for result in results for run in result["runs"]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Kill reduced runs, and compare.")
    parser.add_argument("--recipe", action="append", choices=list(REDUCED), help="may be repeated; default: all")
    parser.add_argument("--kills", type=int, default=50, help="SIGKILLs of each recipe")
    parser.add_argument("--others", type=int, help="SIGTERM, SIGINT, SIGSTOP, second starts; default: kills / 4")
    parser.add_argument("--per-run", type=int, default=10, help="kills in one run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="the few kills of the ordinary tests instead")
    parser.add_argument("--cold", action="store_true", help="start Python for each process, as a user does")
    parser.add_argument("--workdir", type=Path, help="kept, and the undisturbed run there is used again")
    parser.add_argument("--json", action="store_true", help="the report as JSON on standard output, the table on error")
    return parser.parse_args()


def _attack(name: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    def say(text: str) -> None:
        print(text, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    reduced = REDUCED[name].shorter() if arguments.short else REDUCED[name]

    def drive(number: int, attacks: Sequence[Attack] = (), timeline: Timeline | None = None) -> Course:
        return Driver(reduced, folder / f"{number:02d}", number, cold=arguments.cold).go(attacks, timeline)

    undisturbed = drive(0)
    wanted = outcome(undisturbed.folder)
    timeline = Timeline(undisturbed.events)
    say(header(name, arguments.seed, undisturbed, timeline))
    runs = [_judged(undisturbed, {}, wanted)]
    left, others = arguments.kills, arguments.kills // 4 if arguments.others is None else arguments.others
    if arguments.short:
        left, others = len(POINTED[name]), 0
    while left > 0 or others > 0:
        number = len(runs)
        kills = min(left, arguments.per_run)
        more = -(-others // max(1, -(-left // arguments.per_run))) if left > 0 else others
        seed = f"{name} {arguments.seed} {number}"
        attacks = (
            [aimed(timeline, *pair) for pair in POINTED[name]]
            if arguments.short
            else plan(timeline, seed, kills, more, PROGRAMS if name == "program" else SHARES)
        )
        course = drive(number, attacks, timeline)
        done = sum(strike.attack.kills for strike in course.strikes)
        left, others = left - done, others - (len(course.strikes) - done)
        run = _judged(course, wanted, outcome(course.folder))
        runs.append(run)
        for strike in course.strikes:
            say(row(strike))
        for told in [*run["faults"], *run["differences"]]:
            say(f"  !! run {number} (seed {seed!r}): {told}")
        if not run["faults"] and not run["differences"]:
            shutil.rmtree(course.folder)
        if arguments.short:
            break
    say(summary(name, runs))
    return {"recipe": name, "seed": arguments.seed, "cold": arguments.cold, "host_cpus": os.cpu_count(), "runs": runs}


def _judged(course: Course, wanted: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    faults = list(course.faults)
    faults += [f"somebody holds {name}" for name in locks(course.run_dir)]
    faults += [f"left behind: {name}" for name in leftovers(course.run_dir)]
    faults += [f"hopforge verify: {line}" for line in findings(course.run_dir)]
    return {
        "run": course.number,
        "folder": str(course.folder),
        "starts": course.starts,
        "seconds": round(course.seconds, 1),
        "strikes": [strike.plain() for strike in course.strikes],
        "missed": len(course.missed),
        "faults": faults,
        "differences": _first(list(differences(wanted, found))) if wanted else [],
    }


def _first(found: list[str]) -> list[str]:
    return [*found[:SHOWN], f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else found


if __name__ == "__main__":
    sys.exit(main())
