"""Contexts of runs for tests: the settings that a recipe gives, without a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from platform_sdk.methods.context import Context

Structs = dict[str, Any]


def plain(
    run_dir: Path, environment: str, agent: Structs, sampling: Structs, retrieval: Structs, **own: Any
) -> Context:
    """Return a run's context; ``own`` are the method, the searched digest and the seed."""
    structs: Structs = {"agent": agent, "sampling": sampling, "retrieval": retrieval}
    own = {"method": "mygo", "searched_digest": "c" * 64, "seed": 0, **own}
    return Context(run_dir=run_dir, environment=environment, **structs, **own)
