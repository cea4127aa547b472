"""The nearest passages of the whole corpus: what the graph's methods are compared with."""

from __future__ import annotations

from platform_sdk.retrieval.methods.passages import Passages


class Chunks(Passages):
    """Search passages by similarity to the query."""


METHOD = Chunks()
