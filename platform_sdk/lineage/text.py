"""Lineage as a tree of text, a Mermaid flowchart, and nested nodes for a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from platform_sdk.config.struct import Struct
from platform_sdk.lineage.graph import Edge, Graph, Node


class Branch(Struct):
    """Node of a tree.

    Attributes:
        depth: number of nodes above it.
        last: the node is the last branch of the node above it.
        repeated: the node's own branches are shown at its first occurrence.
    """

    node: Node
    steps: tuple[str, ...] = ()
    depth: int = 0
    last: bool = True
    repeated: bool = False

    @property
    def label(self) -> str:
        """Kind, digest and name of the node, and the steps on the way to it."""
        steps = f" ({', '.join(self.steps)})" if self.steps else ""
        again = ", see above" if self.repeated else ""
        return f"{self.node}{steps}{again}"


def trees(graph: Graph, starts: Iterable[str], *, down: bool) -> list[list[Branch]]:
    """Return the tree of origins, or with ``down`` of uses, of each start; a node's branches are shown once.

    A tree is a list in which every node comes before its branches: a chain of models may be thousands of nodes deep.
    """
    seen: set[str] = set()
    neighbours = graph.neighbours(down=down)
    return [list(_branches(graph, start, seen, neighbours)) for start in starts]


def _branches(
    graph: Graph, start: str, seen: set[str], neighbours: Mapping[str, Mapping[str, Iterable[Edge]]]
) -> Iterator[Branch]:
    waiting: list[tuple[str, Iterable[Edge], int, bool]] = [(start, (), 0, True)]
    while waiting:
        digest, edges, depth, last = waiting.pop()
        others = neighbours[digest]
        repeated = digest in seen and bool(others)
        seen.add(digest)
        steps = tuple(dict.fromkeys(f"{edge.run}: {edge.step}" for edge in edges))
        yield Branch(node=graph.nodes[digest], steps=steps, depth=depth, last=last, repeated=repeated)
        if not repeated:
            inner = [(other, found, depth + 1, False) for other, found in others.items()]
            waiting += [(*branch[:3], number == 0) for number, branch in enumerate(reversed(inner))]


def lines(tree: Iterable[Branch]) -> Iterator[str]:
    """Yield the lines of a tree."""
    above: list[str] = []
    for branch in tree:
        del above[max(branch.depth - 1, 0) :]
        if not branch.depth:
            yield branch.label
        else:
            yield f"{''.join(above)}{'└─ ' if branch.last else '├─ '}{branch.label}"
            above.append("   " if branch.last else "│  ")


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
