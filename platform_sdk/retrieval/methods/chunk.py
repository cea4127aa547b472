"""Nearest passages of the whole corpus: the baseline of the graph methods."""

from __future__ import annotations

from platform_sdk.retrieval.methods.passages import Passages


class Chunks(Passages):
    """Search passages by similarity to the query."""


METHOD = Chunks()
