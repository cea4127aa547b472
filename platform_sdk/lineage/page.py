"""Lineage as a self-contained HTML page of nested disclosures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from platform_sdk.lineage.text import Branch
from platform_sdk.pages import render

TEMPLATE = Path(__file__).parent / "lineage.html.j2"


def build_page(target: str, branches: Sequence[Branch], *, down: bool) -> str:
    """Return the page of a lineage; it needs no script to open and close its nodes."""
    return render(TEMPLATE, (), name=target, branches=branches, direction="uses" if down else "origins")
