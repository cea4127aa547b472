"""Linux namespaces of a program, so that it cannot see hopforge's processes and its child processes end with it.

``unshare`` creates the namespaces if the kernel allows it for this user. Most containers do not allow it; the program
then runs without namespaces.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache

from platform_sdk.display import shortened
from platform_sdk.processes import guard

logger = logging.getLogger(__name__)
_GUARD = (sys.executable, "-I", guard.__file__)
_UNSHARE = ("unshare", "--user", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc")
_SECONDS = 20.0


def isolated(command: Sequence[str], owner: int) -> list[str]:
    """Return the command that runs ``command`` under a guard, which process ``owner`` owns, in namespaces if possible.

    A second guard is the first process of the namespaces: it ends the processes that the command leaves running.
    """
    within = (*_UNSHARE, *_GUARD, "0") if available() else ()
    return [*_GUARD, str(owner), *within, *command]


@lru_cache(maxsize=1)
def available() -> bool:
    """Return True if programs get namespaces; logs the reason if not."""
    try:
        tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, timeout=_SECONDS)
        fault = "" if tried.returncode == 0 else tried.stderr or f"exit status {tried.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        fault = str(error)
    if fault:
        logger.warning(
            "programs run without namespaces (%s): they can read the environment of this user's processes; run "
            "programs that you trust",
            shortened(fault.strip(), 200),
        )
    return not fault
