"""Script and style that draw hyperedges in a page, for pages that have them inside."""

from __future__ import annotations

from pathlib import Path

SCRIPT = Path(__file__).with_name("drawing.js")
STYLE = Path(__file__).with_name("drawing.css")
