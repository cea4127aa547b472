"""Graph of the digests in the manifests of runs: data, rollouts, models and scores, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import Field

from platform_sdk.config.struct import Struct
from platform_sdk.files import read_regular
from platform_sdk.lineage.products import Product, products_of, sources_of
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.listing import run_dirs


class Node(Struct):
    """Data or weights with one digest.

    ``names`` are paths, first ``RUN/PATH`` for files in a run directory, then absolute ones, e.g. of a model that a run
    began with; ``runs`` are the runs that read or wrote the digest.
    """

    digest: str
    kind: str
    names: tuple[str, ...]
    runs: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return " ".join((self.kind, self.digest[:12], *self.names[:1])) + more


class Edge(Struct):
    """A step that read ``source`` and wrote ``target``."""

    source: str
    target: str
    run: str
    step: str


class Graph(Struct):
    """Nodes by digest, the edges between them, and the digests of the nodes that each file belongs to."""

    nodes: dict[str, Node] = Field(default_factory=dict)
    edges: tuple[Edge, ...] = ()
    files: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    def neighbours(self, *, down: bool) -> dict[str, dict[str, list[Edge]]]:
        """Return the edges of each node by the digest at their other end: users if ``down``, else origins."""
        found: dict[str, dict[str, list[Edge]]] = {digest: {} for digest in self.nodes}
        for edge in self.edges:
            here, there = (edge.source, edge.target) if down else (edge.target, edge.source)
            found[here].setdefault(there, []).append(edge)
        return found

    def reachable(self, starts: Iterable[str], *, down: bool) -> Graph:
        """Return the part of the graph that led to the starts, or that follows from them."""
        ends: dict[str, list[Edge]] = {}
        for edge in self.edges:
            ends.setdefault(edge.source if down else edge.target, []).append(edge)
        waiting = list(starts)
        seen, edges = set(waiting), set()
        while waiting:
            for edge in ends.get(waiting.pop(), ()):
                edges.add(edge)
                other = edge.target if down else edge.source
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        kept = {digest: node for digest, node in self.nodes.items() if digest in seen}
        return Graph(nodes=kept, edges=tuple(edge for edge in self.edges if edge in edges))

    def base_models(self) -> set[str]:
        """Return the digests of the models that no step of the runs trained."""
        made = {edge.target for edge in self.edges}
        return {digest for digest, node in self.nodes.items() if node.kind == "model" and digest not in made}

    def models_from(self, model: str) -> list[str]:
        """Return the models that were trained from a model, directly or through other models."""
        found, waiting = dict.fromkeys([model]), [model]
        while waiting:
            source = waiting.pop()
            for edge in self.edges:
                is_training = edge.source == source and self.nodes[edge.target].kind == "model"
                if is_training and edge.target not in found:
                    found[edge.target] = None
                    waiting.append(edge.target)
        return [digest for digest in found if digest != model]

    def nodes_of(self, run: str) -> list[str]:
        """Return the digests of the nodes that a run read or wrote."""
        return [digest for digest, node in self.nodes.items() if run in node.runs]

    def ends_of(self, run: str, *, down: bool) -> list[str]:
        """Return a run's final nodes, which no other node of the run follows from; its first nodes if ``down``."""
        own = [edge for edge in self.edges if edge.run == run]
        inner = {edge.target if down else edge.source for edge in own}
        return [digest for digest in self.nodes_of(run) if digest not in inner]


def read_graph(folder: Path) -> Graph:
    """Return the graph of all runs in a folder.

    Raises:
        ManifestError: a manifest is broken.
    """
    return build_graph({run_dir.name: manifest.read(run_dir) for run_dir in run_dirs(folder)})


def read_graph_of(run_dir: Path) -> Graph:
    """Return the graph of a run, and of the runs in its folder that trained the models which it began with.

    Other manifests are searched for the digests of trained models, and parsed only if they have one. Runs with a broken
    manifest are left out, and so is the run's own report, which is made after the graph.

    Raises:
        ManifestError: the run's own manifest is broken.
    """
    run_dir = run_dir.resolve()
    entries = manifest.read(run_dir)
    runs = {run_dir.name: [entry for entry in entries if not entry.event.startswith(seals.ENDED)]}
    graph = build_graph(runs)
    searched: set[str] = set()
    while bases := graph.base_models() - searched:
        searched |= bases
        for other in run_dirs(run_dir.parent):
            if other.name not in runs and (trained := _trained_in(other, bases)):
                runs = {other.name: trained, **runs}  # the run that trained a model names it
        graph = build_graph(runs)
    return graph


def _trained_in(run_dir: Path, models: set[str]) -> list[manifest.Entry]:
    """Return a run's manifest if it trained one of the models; otherwise nothing."""
    try:
        content = read_regular(run_dir / manifest.FILE_NAME)
        if not any(f'"weights":"{digest}"'.encode() in content for digest in models):
            return []
        entries = manifest.read(run_dir)
    except (OSError, manifest.ManifestError):
        return []
    made = {edge.target for edge in build_graph({run_dir.name: entries}).edges}
    return entries if made & models else []


def build_graph(runs: Mapping[str, Iterable[manifest.Entry]]) -> Graph:
    """Return the graph of manifests by the name of their run. Only the last entry of a step counts."""
    drafts: dict[str, _Draft] = {}
    edges: dict[Edge, None] = {}
    files: dict[str, dict[str, None]] = {}
    for run, entries in runs.items():
        for step, made, read in _steps(list(entries)):
            for product in read:
                drafts.setdefault(product.digest, _Draft()).add(run, product, made=product.is_external)
            for product in made:
                drafts.setdefault(product.digest, _Draft()).add(run, product, made=True)
                for file in product.files:
                    files.setdefault(file, {})[product.digest] = None
                for source in read:
                    if source.digest != product.digest and product.follows(source, read):
                        edges[Edge(source=source.digest, target=product.digest, run=run, step=step)] = None
    nodes = {digest: draft.node(digest) for digest, draft in drafts.items()}
    return Graph(nodes=nodes, edges=tuple(edges), files={file: tuple(found) for file, found in files.items()})


class _Draft:
    """Kinds, names and runs of a node; the kinds of its readers count only if no step of the runs wrote it."""

    def __init__(self) -> None:
        self._made: dict[str, None] = {}
        self._read: dict[str, None] = {}
        self._names: dict[str, None] = {}
        self._runs: dict[str, None] = {}

    def add(self, run: str, product: Product, *, made: bool) -> None:
        (self._made if made else self._read)[product.kind] = None
        self._runs[run] = None
        if made:
            self._names[product.name if product.is_absolute else f"{run}/{product.name}"] = None

    def node(self, digest: str) -> Node:
        kind = ", ".join(self._made or self._read)
        names = sorted(self._names, key=lambda name: name.startswith("/"))
        return Node(digest=digest, kind=kind, names=tuple(names), runs=tuple(self._runs))


def _steps(entries: list[manifest.Entry]) -> Iterator[tuple[str, list[Product], list[Product]]]:
    """Yield each step of a run with the products that it wrote and read."""
    last = seals.last_entries(entries)
    index = last.get("index")
    for step, entry in last.items():
        made = products_of(step, entry)
        if made:
            yield step, made, sources_of(step, entry, index)
    end = next((entry for entry in reversed(entries) if entry.event.startswith(seals.ENDED)), None)
    report = last.get("report")
    if end is not None and report is not None and (pages := products_of("report", end)):
        yield "report", pages, sources_of("report", report, index)
