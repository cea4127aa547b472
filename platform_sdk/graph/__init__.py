"""Knowledge hypergraphs: facts extracted from passages, merged into a graph, stored and opened."""
