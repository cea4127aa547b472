"""Progress in a step's log: counter, rate, remaining time and newest figures, parsed from tqdm's bars."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
# A line of Python's logging, in the format of the worker or of KFP's executor.
_LOGGED = re.compile(r"^(?:\[KFP Executor \S+ \S+ )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?: (?P<text>.*)$")
# tqdm's "{desc}: {percentage}|{bar}| {n}/{total} [{elapsed}<{remaining}, {rate}{postfix}]".
_BAR = re.compile(
    r"^(?P<what>.*?):? *\d+%\|[^|]*\| (?P<done>\d+)/(?P<total>\d+) "
    r"\[[^<\]]*<(?P<left>[^,\]]*), +(?P<rate>[^,\]]*?)(?:, (?P<figures>[^\]]*))?\]"
)
_RATE = re.compile(r"^(?:(?P<per_second>[\d.]+)(?P<unit>[a-z]+)/s|(?P<each>[\d.]+)s/(?P<slow_unit>[a-z]+))$")
_OF_LIBRARIES = "it"  # tqdm's default unit, used by libraries (loading weights); hopforge's bars set their unit


@dataclass(frozen=True)
class Counter:
    """A bar: ``done`` of ``total`` units; ``rate`` and ``left`` are tqdm's texts, empty if unknown."""

    unit: str
    done: int
    total: int
    rate: str = ""
    left: str = ""
    figures: str = ""

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total} {self.unit}{'' if self.total == 1 else 's'}"]
        if self.done < self.total:
            parts += [part for part in (self.rate, f"{self.left} left" if self.left else "") if part]
        return ", ".join(part for part in (*parts, self.figures) if part)


@dataclass
class StepOutput:
    """Newest counter and warning in the log of a step."""

    counter: Counter | None = None
    warning: str = ""
    _in_input: bool = False

    def read(self, line: str) -> None:
        """Update counter and warning from a line; other lines are ignored."""
        text = _CONTROL.sub("", line).rstrip()
        if self._in_input:  # KFP shows a step's inputs as JSON over many lines; only the last is not indented
            self._in_input = text != "}"
            return
        if logged := _LOGGED.match(text):
            self._in_input = logged["text"] == "Got executor_input:"
            if logged["level"] in ("WARNING", "ERROR", "CRITICAL") and logged["text"].strip():
                self.warning = logged["text"]
            return
        if (bar := _BAR.match(text)) and (counter := _counter(bar)):
            self.counter = counter

    def __str__(self) -> str:
        return " · ".join(str(part) for part in (self.counter, self.warning) if part)


def _counter(bar: re.Match[str]) -> Counter | None:
    """Return a bar as a counter; None for a bar of a library, or if the rate, and so the unit, is not known yet."""
    rate = _RATE.match(bar["rate"])
    unit = (rate["unit"] or rate["slow_unit"]) if rate else bar["rate"].removeprefix("?").removesuffix("/s")
    if unit == _OF_LIBRARIES or not unit.isalpha():
        return None
    shown = bar["rate"] if rate else ""
    if rate and rate["per_second"]:
        shown = f"{rate['per_second']}/s"
    elif rate:
        shown = f"{rate['each']} s each"
    left = "" if "?" in bar["left"] else bar["left"]
    figures = (bar["figures"] or "").replace("=", " ")
    return Counter(unit, int(bar["done"]), int(bar["total"]), shown, left, figures)
