"""An entity's neighbourhood, as data and as a self-contained page."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from platform_sdk.display import excerpt, near_names
from platform_sdk.errors import UserError
from platform_sdk.graph.graph import Graph
from platform_sdk.outputs import write_output
from platform_sdk.pages import embedded_json, render

TEMPLATE = Path(__file__).with_name("neighbourhood.html.j2")
MAX_EDGES = 2000


def find_entity(graph: Graph, wanted: str) -> int:
    """Return the row of the entity with this id, name or alias, ignoring case.

    Raises:
        UserError: the graph has no such entity.
    """
    folded = wanted.casefold()
    rows = enumerate(zip(graph.entity_ids, graph.entity_names, graph.entity_aliases, strict=True))
    alias = None
    for row, (id, name, aliases) in rows:
        if id == wanted or name.casefold() == folded:
            return row
        if alias is None and any(each.casefold() == folded for each in aliases):
            alias = row
    if alias is None:
        known = chain(graph.entity_names, chain.from_iterable(graph.entity_aliases))
        remedy = near_names(wanted, known) or "; hopforge graph export lists names and aliases"
        raise UserError(f"the graph has no entity {excerpt(wanted)}{remedy}")
    return alias


def neighbourhood(graph: Graph, entity: int) -> dict[str, Any]:
    """Return an entity with its hyperedges and the entities in them."""
    edges = []
    for edge in map(int, graph.entity_edges.row(entity)):
        members = [int(member) for member in graph.edge_entities.row(edge)]
        edges.append(
            {
                "hyperedge": graph.hyperedge_ids[edge],
                "text": graph.hyperedge_texts[edge],
                "passage": graph.hyperedge_sources[edge].passage,
                "entities": [
                    {"entity": graph.entity_ids[member], "name": graph.entity_names[member]} for member in members
                ],
            }
        )
    return {
        "entity": graph.entity_ids[entity],
        "name": graph.entity_names[entity],
        "aliases": list(graph.entity_aliases[entity]),
        "embedded": graph.entity_texts[entity],
        "hyperedges": edges,
    }


def write_page(found: dict[str, Any], path: Path) -> None:
    """Write a neighbourhood as an HTML page with a drawing and a search field.

    The page of a hub has the ``MAX_EDGES`` hyperedges with the fewest entities, which are the most specific.
    """
    edges = sorted(found["hyperedges"], key=lambda edge: len(edge["entities"]))[:MAX_EDGES]
    page = render(
        TEMPLATE,
        ("hypergraph.js", "neighbourhood.js"),
        ("hypergraph.css",),
        total=len(found["hyperedges"]),
        held=len(edges),
        data=embedded_json(found | {"hyperedges": edges}),
        **{name: found[name] for name in ("name", "entity", "aliases", "embedded")},
    )
    write_output(path, page)
