"""Seeds of single samples, drawn from what they are for."""

from __future__ import annotations

import hashlib


def seed_of(*parts: str | int) -> int:
    """A 63-bit seed that depends on ``parts`` alone: who samples beside makes no difference."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1
