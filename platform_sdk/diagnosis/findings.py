"""Findings of a diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from platform_sdk.config.struct import Struct
from platform_sdk.diagnosis.facts import Facts

Kind = Literal["failure", "waiting", "worthless"]


class Evidence(Struct):
    """Fact that a finding rests on: an object or file, its line (0 if it has none), the time, and the quoted text."""

    object: str
    line: int = 0
    time: str = ""
    text: str = ""

    def __str__(self) -> str:
        place = f"{self.object}:{self.line}" if self.line else self.object
        return " ".join(part for part in (self.time, f"{place}:" if self.text else place, self.text) if part)


class Finding(Struct):
    """A cause, its evidence and its remedy.

    Attributes:
        rule: name of the rule.
        kind: ``failure`` ends a run, ``waiting`` delays it, ``worthless`` makes its result useless.
        where: the step, job or pod.
    """

    rule: str
    kind: Kind
    where: str
    cause: str
    evidence: tuple[Evidence, ...]
    remedy: str


Rule = Callable[[Facts], Iterator[Finding]]
