"""Seeds of single samples, derived from their names."""

from __future__ import annotations

import hashlib


def seed_of(*parts: str | int) -> int:
    """Return a 63-bit seed that depends only on ``parts``, not on other concurrent requests."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1
