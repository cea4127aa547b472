"""Checks that run one after another, and the table of what they saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

HEADINGS = ("step", "expected", "seen", "seconds", "ok")
LONGEST_CELL = 100


class Skipped(Exception):
    """The check cannot run here; the message is the reason."""


class Unmet(Exception):
    """The check ran, and saw what the message says instead of what was expected."""


@dataclass(frozen=True)
class Check:
    """One check: ``act`` returns what it saw.

    ``act`` raises ``Unmet`` if that is not what was expected, and ``Skipped`` if it cannot run.
    """

    name: str
    expected: str
    act: Callable[[], str]


@dataclass(frozen=True)
class Outcome:
    """Result of a check. ``ok`` is None for a skipped check, whose ``seen`` is the reason."""

    check: Check
    seen: str
    seconds: float
    ok: bool | None

    @property
    def verdict(self) -> str:
        return {True: "yes", False: "NO", None: "skipped"}[self.ok]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        seen = " ".join(self.seen.split())
        seen = seen if len(seen) <= LONGEST_CELL else f"{seen[: LONGEST_CELL - 1]}…"
        return self.check.name, self.check.expected, seen, f"{self.seconds:.0f}", self.verdict


def run_checks(
    checks: Iterable[Check], report: Callable[[Outcome], None], clock: Callable[[], float] = time.monotonic
) -> list[Outcome]:
    """Run every check, whatever becomes of the others.

    Args:
        report: Called with each outcome as soon as it is known.
    """
    outcomes: list[Outcome] = []
    interrupted = False
    for check in checks:
        start = clock()
        ok: bool | None = None
        try:
            if interrupted:
                raise Skipped("interrupted")
            seen, ok = check.act(), True
        except Skipped as reason:
            seen = str(reason)
        except KeyboardInterrupt:
            seen, interrupted = "interrupted", True
        except Unmet as difference:
            seen, ok = str(difference), False
        except Exception as error:  # a check of a foreign system can fail in any way, and the others still run
            seen, ok = f"{type(error).__name__}: {error}", False
        outcomes.append(Outcome(check, seen, clock() - start, ok))
        report(outcomes[-1])
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a Markdown table, with their number by verdict below it."""
    rows = [HEADINGS, *(outcome.cells for outcome in outcomes)]
    rows = [tuple(cell.replace("|", "\\|") for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    counts = {verdict: sum(outcome.verdict == verdict for outcome in outcomes) for verdict in ("yes", "NO", "skipped")}
    return "\n".join([*lines, "", f"{counts['yes']} ok, {counts['NO']} not ok, {counts['skipped']} skipped"])
