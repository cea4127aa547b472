"""Attacks and their moments: drawn from a seed, over what an undisturbed run was seen to do."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.chaos.trace import Event

Victim = Literal["tree", "run", "step", "worker", "guard", "follower", "second start", "program"]
SHARES: dict[Victim, int] = {"tree": 33, "run": 33, "step": 14, "worker": 6, "guard": 7, "follower": 7}
PROGRAMS: dict[Victim, int] = {"tree": 20, "run": 20, "step": 25, "program": 35}
"""Victims where programs run: their gateway is in the step's process."""
OTHERS: Sequence[tuple[Victim, str]] = (
    ("run", "SIGTERM"), ("run", "SIGINT"), ("step", "SIGSTOP"), ("second start", "-"), ("run", "SIGSTOP"),
)  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """``delay`` seconds after the ``occurrence``-th event of this name in a run; 0: before it happens.

    ``place`` is that of the event in the undisturbed run's. ``kind`` says how the moment was drawn: ``aimed`` at an
    event of any name, each name as likely as the others; ``timed`` uniformly over the seconds; ``startup``.
    """

    kind: Literal["aimed", "timed", "startup"]
    event: str
    occurrence: int
    delay: float
    place: int

    def __str__(self) -> str:
        nth = f" (no. {self.occurrence})" if self.occurrence > 1 else ""
        return f"{self.delay:.2f} s after {self.event}{nth}" if self.delay else f"before {self.event}{nth}"


@dataclass(frozen=True)
class Attack:
    """Attack on a process: its moment, and whether the command is given again before all processes are gone."""

    moment: Moment
    victim: Victim
    signal: str
    at_once: bool

    @property
    def kills(self) -> bool:
        return self.signal == "SIGKILL"


class Timeline:
    """The events of an undisturbed run."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.names = [event.name for event in events]
        self.places: dict[str, list[int]] = defaultdict(list)
        for place, name in enumerate(self.names):
            self.places[name].append(place)
        self.steps = [name.removeprefix("process step ") for name in self.names if name.startswith("process step ")]

    def moment(self, draw: random.Random, kind: Literal["aimed", "timed", "startup"]) -> Moment:
        if kind == "aimed":
            name = draw.choice([name for name in self.places if not name.startswith("open run/logs/")])
            return self._at(draw.choice(self.places[name]), 0.0, kind)
        began = self.events[0].time
        if kind == "startup":
            first = next(event.time for event in self.events if event.name.startswith("process step "))
            return self._at(0, draw.uniform(0.001, first - began), kind)
        when = draw.uniform(began, self.events[-1].time)
        place = max(place for place, event in enumerate(self.events) if event.time <= when)
        return self._at(place, when - self.events[place].time + 1e-4, kind)

    def step_at(self, place: int) -> str | None:
        """The step that was the last to begin before an event."""
        steps = [name for name in self.names[: place + 1] if name.startswith("process step ")]
        return steps[-1].removeprefix("process step ") if steps else None

    def _at(self, place: int, delay: float, kind: Literal["aimed", "timed", "startup"]) -> Moment:
        name = self.names[place]
        return Moment(kind, name, self.places[name].index(place) + 1, round(delay, 4), place)


def plan(timeline: Timeline, seed: str, kills: int, others: int, shares: Mapping[Victim, int] = SHARES) -> list[Attack]:
    """The attacks of one run, in the order of their moments (those at a start anywhere among them)."""
    draw = random.Random(seed)
    found = []
    for number in range(kills + others):
        kind = draw.choices(("aimed", "timed", "startup"), (55, 35, 10))[0]
        victim, signal = draw.choices(list(shares), list(shares.values()))[0], "SIGKILL"
        if number >= kills:
            victim, signal = draw.choice(OTHERS)
        moment = timeline.moment(draw, kind)
        found.append((draw.random() if kind == "startup" else moment.place / len(timeline.names),
                      Attack(moment, victim, signal, draw.random() < 0.5)))  # fmt: skip
    return [attack for _, attack in sorted(found, key=lambda pair: pair[0])]


def aimed(timeline: Timeline, event: str, victim: Victim, *, at_once: bool = False) -> Attack:
    """A SIGKILL before the first event whose name contains ``event``."""
    places = [place for place, name in enumerate(timeline.names) if event in name]
    if not places:
        raise SystemExit(
            f"no event of the undisturbed run is called {event!r}; mend POINTED in tests/chaos/__main__.py"
        )
    place = places[0]
    return Attack(Moment("aimed", timeline.names[place], 1, 0.0, place), victim, "SIGKILL", at_once)
