"""Record of the revision and the licence of a dataset or a base model."""

from __future__ import annotations

from platform_sdk.config.struct import Struct


class Terms(Struct):
    """Revision and licence of a dataset or a base model; ``source`` names the statement of the licence."""

    thing: str
    revision: str
    licence: str
    source: str
