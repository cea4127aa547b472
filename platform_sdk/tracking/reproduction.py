"""Comparison of a run with a second run of its recipe, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from platform_sdk.config.struct import Struct
from platform_sdk.tracking.manifest import Entry
from platform_sdk.tracking.opened import STARTED
from platform_sdk.tracking.seals import last_entries

TIMED = ("report", "figures")
"""Digests of files that contain how long things took."""
UNKNOWN = "not recorded"


class Difference(Struct):
    """A value that differs between the two runs; ``not recorded`` if a run lacks it."""

    name: str
    original: str
    repeated: str

    def __str__(self) -> str:
        return f"{self.name}: {_short(self.original)} -> {_short(self.repeated)}"


class StepComparison(Struct):
    """A step of the original run, and the digests of its results that the second run does not have."""

    step: str
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        return not self.differences


class Reproduction(Struct):
    """Two runs of one recipe.

    ``circumstances`` are what differed when the two runs began: hopforge's version and source, Python, packages, the
    machine. ``head`` is the last entry of the original's manifest.
    """

    original: str
    repeated: str
    head: str
    steps: tuple[StepComparison, ...]
    circumstances: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """True if every step has equal results."""
        return all(step.equal for step in self.steps)

    @property
    def first(self) -> StepComparison | None:
        """The first step that differs; later ones may differ as a consequence."""
        return next((step for step in self.steps if not step.equal), None)


def compare_steps(original: Sequence[Entry], repeated: Sequence[Entry]) -> tuple[StepComparison, ...]:
    """Compare the recorded digests of every step of two runs: data, weights, rollouts, selections, scores."""
    others = last_entries(repeated)
    return tuple(
        StepComparison(step=name, differences=tuple(_of_step(entry, others.get(name))))
        for name, entry in last_entries(original).items()
    )


def _of_step(entry: Entry, other: Entry | None) -> Iterator[Difference]:
    if other is None:
        yield Difference(name="step", original="finished", repeated=UNKNOWN)
        return
    yield from _differences(_results(entry), _results(other))


def _results(entry: Entry) -> dict[str, str]:
    return {name: digest for name, digest in entry.digests.items() if name not in TIMED}


def compare_circumstances(
    original: Sequence[Entry],
    repeated: Sequence[Entry],
    environments: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> tuple[Difference, ...]:
    """Compare under what the two runs began; ``environments`` are their environment.json."""
    return tuple(
        _differences(
            *(
                {**_origin(entries), **_installed(given)}
                for entries, given in zip((original, repeated), environments, strict=True)
            )
        )
    )


def _origin(entries: Sequence[Entry]) -> dict[str, str]:
    """Return what the last start of a run recorded of the code and the machine; who ran it changes no result."""
    start = next((entry for entry in reversed(entries) if entry.event == STARTED), None)
    origin = {} if start is None else start.origin
    return {name: value for name, value in origin.items() if name in ("version", "commit", "source", "hardware")}


def _installed(environment: Mapping[str, Any]) -> dict[str, str]:
    packages: Mapping[str, Any] = environment.get("packages") or {}
    found = {f"package {name}": str(version) for name, version in packages.items()}
    return {"python": str(environment.get("python", UNKNOWN)), **found}


def _differences(original: Mapping[str, str], repeated: Mapping[str, str]) -> Iterator[Difference]:
    for name in dict.fromkeys((*original, *repeated)):
        before, now = original.get(name, UNKNOWN), repeated.get(name, UNKNOWN)
        if before != now:
            yield Difference(name=name, original=before, repeated=now)


def _short(value: str) -> str:
    return f"{value[:12]}…" if len(value) > 32 and value.isalnum() else value
