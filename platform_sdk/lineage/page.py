"""Lineage as a self-contained HTML page of nested disclosures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from platform_sdk.lineage.graph import read_graph_of
from platform_sdk.lineage.text import Branch
from platform_sdk.lineage.text import trees as trees_of
from platform_sdk.pages import render

TEMPLATE = Path(__file__).parent / "lineage.html.j2"


def build_run_page(run_dir: Path) -> str:
    """Return the page of a run's origins, through the runs in its folder that trained its base models.

    Raises:
        ManifestError: the run's manifest is broken.
    """
    graph, run = read_graph_of(run_dir), run_dir.resolve().name
    return build_page(run, trees_of(graph, graph.ends_of(run, down=False), down=False), down=False)


def build_page(target: str, trees: Sequence[Sequence[Branch]], *, down: bool) -> str:
    """Return the page of a lineage; it needs no script to open and close its nodes."""
    return render(TEMPLATE, (), name=target, trees=trees, direction="uses" if down else "origins")
