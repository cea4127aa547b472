"""Bound on the entries per second of each team."""

from __future__ import annotations


class Rate:
    """Token bucket for each team: ``per_second`` on average, ``burst`` at once."""

    def __init__(self, per_second: float = 10.0, burst: int = 100) -> None:
        self._per_second, self._burst = per_second, burst
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, team: str, now: float) -> float:
        """Count an entry of a team; return 0, or the seconds to wait if the entry exceeds the rate."""
        left, before = self._left.get(team, (float(self._burst), now))
        left = min(self._burst, left + (now - before) * self._per_second)
        if left < 1:
            self._left[team] = left, now
            return (1 - left) / self._per_second
        self._left[team] = left - 1, now
        return 0.0
