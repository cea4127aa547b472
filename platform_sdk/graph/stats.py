"""Statistics of a graph, and its export as JSONL."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from platform_sdk.graph.graph import Graph
from platform_sdk.outputs import writing_output

HUBS = 10


def measure(graph: Graph) -> dict[str, Any]:
    """Return a graph's counts, hyperedge sizes, entity degrees, largest hubs and mentions by rule."""
    sizes, degrees = np.diff(graph.edge_entities.indptr), np.diff(graph.entity_edges.indptr)
    rules: Counter[str] = Counter()
    for batch in graph.mentions.iter_batches(columns=["rule"]):
        rules.update(batch.column(0).to_pylist())
    hubs = np.argsort(-degrees, kind="stable")[:HUBS]
    manifest = graph.manifest
    return {
        "entities": manifest.entities,
        "hyperedges": manifest.hyperedges,
        "mentions": manifest.mentions,
        "incidences": len(graph.edge_entities.indices),
        "digest": manifest.digest,
        "extractor": manifest.extractor,
        "version": manifest.version,
        "chunks": manifest.chunks,
        "malformed": manifest.malformed,
        "passages": manifest.passages,
        "passages_without_hyperedges": manifest.unused,
        "hyperedges_without_passage": manifest.unsourced,
        "entities_per_hyperedge": float(sizes.mean()) if len(sizes) else 0.0,
        "hyperedges_without_entities": int((sizes == 0).sum()),
        "hyperedges_per_entity": float(degrees.mean()) if len(degrees) else 0.0,
        "maximum_hyperedges_per_entity": int(degrees.max(initial=0)),
        "hubs": {graph.entity_names[int(entity)]: int(degrees[entity]) for entity in hubs},
        "rules": dict(sorted(rules.items())),
    }


def write_export(graph: Graph, path: Path) -> None:
    """Write entities, then hyperedges as JSON lines; ``embedded`` is the text given to the encoder."""
    ids = list(graph.entity_ids)
    with writing_output(path) as stream:
        entities = zip(ids, graph.entity_names, graph.entity_aliases, graph.entity_texts, strict=True)
        for id, name, aliases, text in entities:
            row = {"entity": id, "name": name, "aliases": aliases, "embedded": text}
            stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        edges = zip(graph.hyperedge_ids, graph.hyperedge_texts, graph.hyperedge_sources, strict=True)
        for number, (id, text, source) in enumerate(edges):
            members = [ids[entity] for entity in graph.edge_entities.row(number)]
            edge = {"hyperedge": id, "text": text, "entities": members, "passage": source.passage, "embedded": text}
            stream.write(json.dumps(edge, ensure_ascii=False).encode() + b"\n")
