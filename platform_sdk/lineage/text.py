"""Lineage as a tree of text, a Mermaid flowchart, and nested nodes for a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from platform_sdk.config.struct import Struct
from platform_sdk.lineage.graph import Edge, Graph, Node


class Branch(Struct):
    """Node of a tree. ``repeated``: the node's own branches are shown at its first occurrence."""

    node: Node
    steps: tuple[str, ...] = ()
    repeated: bool = False
    branches: tuple[Branch, ...] = ()

    @property
    def label(self) -> str:
        """Kind, digest and name of the node, and the steps on the way to it."""
        steps = f" ({', '.join(self.steps)})" if self.steps else ""
        again = ", see above" if self.repeated else ""
        return f"{self.node}{steps}{again}"


def trees(graph: Graph, starts: Iterable[str], *, down: bool) -> list[Branch]:
    """Return the origins, or with ``down`` the uses, of each start; a node's branches are shown once."""
    seen: set[str] = set()
    neighbours = graph.neighbours(down=down)
    return [_branch(graph, start, (), seen, neighbours) for start in starts]


def _branch(
    graph: Graph,
    digest: str,
    edges: Iterable[Edge],
    seen: set[str],
    neighbours: Mapping[str, Mapping[str, Iterable[Edge]]],
) -> Branch:
    others = neighbours[digest]
    steps = tuple(dict.fromkeys(f"{edge.run}: {edge.step}" for edge in edges))
    repeated = digest in seen and bool(others)
    known = {} if repeated else others
    seen.add(digest)
    branches = tuple(_branch(graph, other, found, seen, neighbours) for other, found in known.items())
    return Branch(node=graph.nodes[digest], steps=steps, repeated=repeated, branches=branches)


def lines(branch: Branch, first: str = "", rest: str = "") -> Iterator[str]:
    """Yield the lines of a tree."""
    yield f"{first}{branch.label}"
    for number, inner in enumerate(branch.branches, start=1):
        last = number == len(branch.branches)
        yield from lines(inner, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}")


def mermaid(graph: Graph) -> str:
    """Return a graph as a Mermaid flowchart from data to uses."""
    ids = {digest: f"n{number}" for number, digest in enumerate(graph.nodes)}
    text = [f'  {ids[digest]}["{_quoted(node)}"]' for digest, node in graph.nodes.items()]
    arrows: dict[tuple[str, str], dict[str, None]] = {}
    for edge in graph.edges:
        arrows.setdefault((edge.source, edge.target), {})[f"{edge.run}: {edge.step}"] = None
    text += [
        f'  {ids[source]} -->|"{_escaped(", ".join(steps))}"| {ids[target]}'
        for (source, target), steps in arrows.items()
    ]
    return "\n".join(["flowchart LR", *text])


def _quoted(node: Node) -> str:
    return "<br>".join(_escaped(part) for part in (node.kind, node.digest[:12], *node.names[:1]))


def _escaped(text: str) -> str:
    """Return text for a quoted label, with Mermaid's entity codes."""
    codes = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;"}
    return "".join(codes.get(character, character if character.isprintable() else " ") for character in text)
