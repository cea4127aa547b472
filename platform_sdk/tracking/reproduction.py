"""Comparison of a run with a second run of its recipe, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from platform_sdk.config.struct import Struct
from platform_sdk.files import read_object
from platform_sdk.run_dir import PhaseDir
from platform_sdk.tracking.manifest import Entry
from platform_sdk.tracking.opened import STARTED
from platform_sdk.tracking.outcomes import digest_of
from platform_sdk.tracking.seals import last_entries

NO_RESULTS = ("report", "figures", "settings", "scores", "scores_start", "scores_final")
"""Digests that are not compared directly: they contain times or settings."""
SCORES = PhaseDir.scores
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
    machine, and the datasets' own files. ``head`` is the last entry of the original's manifest.
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


Results = Mapping[str, Mapping[str, str]]
"""Digests of the results of every step, by the step's name and the result's."""


def results_of(run_dir: Path, entries: Sequence[Entry]) -> Results:
    """Return the digests of the results of a run's steps: data, index, weights, rollouts, selections, scores.

    Scores are digested without the digest of their settings, which grow with hopforge's versions.
    """
    found: dict[str, dict[str, str]] = {}
    for step, entry in last_entries(entries).items():
        found[step] = {name: digest for name, digest in entry.digests.items() if name not in NO_RESULTS}
        if (scores := run_dir / step / SCORES).is_file():
            content = read_object(scores)
            found[step] |= {"scores": digest_of({name: value for name, value in content.items() if name != "inputs"})}
    return found


def compare_steps(original: Results, repeated: Results) -> tuple[StepComparison, ...]:
    """Compare the results of every step of a run with those of another run."""
    return tuple(
        StepComparison(step=step, differences=tuple(_of_step(results, repeated.get(step))))
        for step, results in original.items()
    )


def _of_step(results: Mapping[str, str], others: Mapping[str, str] | None) -> Iterator[Difference]:
    if others is None:
        yield Difference(name="step", original="finished", repeated=UNKNOWN)
    else:
        yield from _differences(results, others)


def compare_circumstances(
    original: Sequence[Entry],
    repeated: Sequence[Entry],
    environments: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> tuple[Difference, ...]:
    """Compare the environments of the two runs; ``environments`` are their environment.json."""
    return tuple(
        _differences(
            *(
                {**_origin(entries), **_installed(given)}
                for entries, given in zip((original, repeated), environments, strict=True)
            )
        )
    )


def _origin(entries: Sequence[Entry]) -> dict[str, str]:
    """Return a run's record of code, machine, data and evaluation settings; its user does not affect results."""
    start = next((entry for entry in reversed(entries) if entry.event == STARTED), None)
    origin = {} if start is None else start.origin
    code = {name: value for name, value in origin.items() if name in ("version", "commit", "source", "hardware")}
    steps = last_entries(entries).items()
    asked = {f"settings of {step}": entry.digests["settings"] for step, entry in steps if "settings" in entry.digests}
    files = {
        f"{read.kind} {Path(read.name).name}": read.digest
        for _, entry in steps for read in entry.inputs if read.kind.endswith(" file")
    }  # fmt: skip
    return code | files | asked


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
