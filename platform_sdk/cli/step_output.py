"""Progress in a step's output: counter, rate, expected end, and the newest figures.

Steps write logs with tqdm's bars in them. The log file keeps all of it; a person sees one line, read from here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
# A line of Python's logging: in the worker's format, or in that of KFP's executor, as logs of earlier runs have it.
_LOGGED = re.compile(r"^(?:\[KFP Executor \S+ \S+ )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?: (?P<text>.*)$")
# tqdm's "{desc}: {percentage}|{bar}| {n}/{total} [{elapsed}<{remaining}, {rate}{postfix}]".
_BAR = re.compile(
    r"^(?P<what>.*?):? *\d+%\|[^|]*\| (?P<done>\d+)/(?P<total>\d+) "
    r"\[[^<\]]*<(?P<left>[^,\]]*), +(?P<rate>[^,\]]*?)(?:, (?P<figures>[^\]]*))?\]"
)
_RATE = re.compile(r"^(?:(?P<per_second>[\d.]+)(?P<unit>[a-z]+)/s|(?P<each>[\d.]+)s/(?P<slow_unit>[a-z]+))$")
_OF_LIBRARIES = "it"  # tqdm's default unit: loading weights, writing shards; every bar of ours names its own


@dataclass(frozen=True)
class Counter:
    """A bar: ``done`` of ``total`` units; ``rate`` and ``left`` are as tqdm writes them, empty where unknown."""

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
    """The newest that one step has said; lines are handed over as they come."""

    counter: Counter | None = None
    warning: str = ""
    _in_input: bool = False

    def read(self, line: str) -> None:
        """Take in one line. What is not about progress, and no warning, is for the log only."""
        text = _CONTROL.sub("", line).rstrip()
        if self._in_input:  # KFP shows a step's inputs as JSON over many lines; only the last is not indented
            self._in_input = text != "}"
            return
        if told := _LOGGED.match(text):
            self._in_input = told["text"] == "Got executor_input:"
            if told["level"] in ("WARNING", "ERROR", "CRITICAL") and told["text"].strip():
                self.warning = told["text"]
            return
        if (bar := _BAR.match(text)) and (counter := _counter(bar)):
            self.counter = counter

    def __str__(self) -> str:
        return " · ".join(str(part) for part in (self.counter, self.warning) if part)


def _counter(bar: re.Match[str]) -> Counter | None:
    """The bar as a counter; None for one of a library's own, or one whose rate, and so its unit, is not known yet."""
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
