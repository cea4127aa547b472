"""The report as text: a line for each attack, and a summary."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.chaos.drive import Course, Strike
from tests.chaos.plan import Timeline

COLUMNS = "{run:>3} {number:>3} {signal:<8} {hit:<34} {second:>7} {step:<16} {kind:<8} {ended}"


def header(name: str, seed: int, undisturbed: Course, timeline: Timeline) -> str:
    """Return the undisturbed run's figures and the table's head."""
    head = COLUMNS.format(
        run="run", number="no.", signal="signal", hit="whom", second="second", step="in step", kind="moment",
        ended="how the command ended",
    )  # fmt: skip
    return (
        f"\n{name}, seed {seed}: undisturbed {undisturbed.seconds:.1f} s, {len(timeline.steps)} steps, "
        f"{len(timeline.names)} events of {len(timeline.places)} names\n{head}\n{'-' * 120}"
    )


def row(strike: Strike) -> str:
    """A line for the attack, and under it where exactly it came and what was the newest then."""
    attack = strike.attack
    line = COLUMNS.format(
        run=strike.run, number=strike.number, signal=attack.signal, hit=strike.hit[:34], second=f"{strike.second:.2f}",
        step=strike.step, kind=attack.moment.kind, ended=strike.ended,
    )  # fmt: skip
    return f"{line}\n        {attack.moment}\n        newest: {'; '.join(strike.newest)}; log: {strike.said}"


def summary(name: str, runs: list[dict[str, Any]]) -> str:
    """Return the counts, and whether all runs ended as the undisturbed one."""
    strikes = [strike for run in runs for strike in run["strikes"]]
    kinds = Counter(f"{strike['attack']['signal']} to {strike['attack']['victim']}" for strike in strikes)
    moments = Counter(strike["attack"]["moment"]["kind"] for strike in strikes)
    steps = Counter(strike["step"] for strike in strikes)
    wrong = [run["run"] for run in runs if run["faults"] or run["differences"]]
    lines = [
        f"{name}: {sum(strike['attack']['signal'] == 'SIGKILL' for strike in strikes)} SIGKILLs and "
        f"{sum(strike['attack']['signal'] != 'SIGKILL' for strike in strikes)} other attacks in {len(runs) - 1} runs "
        f"({sum(run['starts'] for run in runs[1:])} starts of the command)",
        *(f"  {title}: {', '.join(f'{what} {count}' for what, count in counted.most_common())}"
          for title, counted in (("attacks", kinds), ("moments", moments), ("steps", steps))),
        f"  runs with faults or differences: {', '.join(map(str, wrong)) or 'none'}",
    ]  # fmt: skip
    return "\n".join(lines)
