"""Retry with backoff until a deadline."""

from __future__ import annotations

import logging
import random
import time

from platform_sdk.config.errors import UserError
from platform_sdk.credentials import without_credentials
from platform_sdk.sampling.rollout import RetrieverFault

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0  # seconds


class Patience:
    """Backoff of one retried request.

    Args:
        name: the dependency's name in messages.
        seconds: time limit of all retries; 0 if the caller retries.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self._name, self._seconds = name, seconds
        self._until = time.monotonic() + seconds
        self._pause = FIRST_PAUSE
        self._told = False

    def wait(self, fault: str, at_least: float = 0.0) -> None:
        """Pause after ``fault``, for at least ``at_least`` seconds.

        Raises:
            RetrieverFault: the time limit is 0.
            UserError: the time limit is reached. Not a fault, since rollouts retry faults.
        """
        if not self._seconds:
            raise RetrieverFault(f"{self._name}: {fault}")
        # Jitter, so that clients do not retry at the same time.
        pause = at_least + self._pause * random.uniform(0.5, 1.0)
        if time.monotonic() + pause > self._until:
            raise UserError(
                f"{self._name}: {fault}; waited {self._seconds:g} s for it (retrieval.patience_seconds). "
                "Start it again and repeat the command: the run resumes where it stopped",
                code="retrieval.unavailable",
            )
        if not self._told:
            log.warning("%s; waiting up to %g s for it", without_credentials(f"{self._name}: {fault}"), self._seconds)
            self._told = True
        time.sleep(pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
