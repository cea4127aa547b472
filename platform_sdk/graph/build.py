"""Building of a run's graph: extraction in shards, resumed per chunk, then merging.

``RUN/graph/extractions`` has a log for each shard: a chunk that is in one is not extracted again. Passages that are
added later are kept in ``RUN/graph/added``, and only their chunks are extracted; the graph is the one that a build of
all passages together gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from platform_sdk.config.graph import GraphSpec
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.data.dataset import read_corpus, read_triples
from platform_sdk.display import shortened
from platform_sdk.errors import UserError
from platform_sdk.files import read_model
from platform_sdk.graph import llm, rules, triples
from platform_sdk.graph.chunks import Chunk, chunks
from platform_sdk.graph.facts import Extraction
from platform_sdk.graph.graph import MANIFEST, Graph, Manifest, write_graph
from platform_sdk.record_files import AppendLog
from platform_sdk.records import Passage, Triple
from platform_sdk.tracking.outcomes import begin, digest_of

VERSIONS = {"rules": rules.VERSION, "triples": triples.VERSION, "llm": llm.VERSION}
Extractor = Callable[[Sequence[Chunk]], Iterable[Extraction]]


@dataclass(frozen=True)
class Built:
    """A built graph, and how many chunks this build extracted."""

    graph: Graph
    extracted: int


def graph_folder(run_dir: Path) -> Path:
    return run_dir / "graph"


def build(run_dir: Path, spec: GraphSpec) -> Built:
    """Build the graph of a run's corpus and of what was added to it; resume a build that was killed.

    Raises:
        UserError: the folder has a graph of other settings, the corpus was altered, or the model cannot be used.
    """
    folder = graph_folder(run_dir)
    sources = _Sources(run_dir)
    settings = _settings(spec)
    inputs = digest_of(settings, sources.digests)
    if (folder / MANIFEST).exists() and read_model(folder / MANIFEST, Manifest).inputs == inputs:
        return Built(Graph.open(folder), 0)
    begin(folder, digest_of(settings, sources.digests[:2]))
    extracted = sum(extract_shard(run_dir, spec, shard) for shard in range(spec.shards))
    graph = write_graph(
        folder,
        sorted((folder / "extractions").glob("*.jsonl")),
        titles=((passage.title, passage.id) for passage in sources.passages()),
        extractor=spec.extractor,
        version=VERSIONS[spec.extractor],
        inputs=inputs,
    )
    return Built(graph, extracted)


def add(run_dir: Path, spec: GraphSpec, path: Path) -> Built:
    """Add a file of passages (or, to a graph of triples, of triples) to a run's graph.

    Raises:
        UserError: a passage's id is that of another passage; or as ``build``.
    """
    sources = _Sources(run_dir)
    if spec.extractor == "triples":
        added: Corpus | TripleStore = TripleStore.load(path)
    else:
        added = Corpus.load(path)
        known = {passage.id: passage for passage in sources.passages()}
        for passage in added.passages:
            if known.get(passage.id, passage) != passage:
                raise UserError(
                    f"{path}: passage {shortened(passage.id)} is in the graph with another title or text; rename it"
                )
    added.save(sources.added / f"{spec.extractor}-{added.digest}.jsonl")
    return build(run_dir, spec)


def extract_shard(run_dir: Path, spec: GraphSpec, shard: int) -> int:
    """Extract the chunks of one shard that are not in its log; return how many."""
    log_path = graph_folder(run_dir) / "extractions" / f"{shard}-of-{spec.shards}.jsonl"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    sources = _Sources(run_dir)
    with AppendLog(log_path, Extraction) as log:
        done = {record.chunk for record in log.records}
        before = len(done)

        def is_open(chunk: str) -> bool:
            return int(chunk, 16) % spec.shards == shard and chunk not in done

        for extraction in _extractions(sources, spec, is_open):
            done.add(extraction.chunk)
            log.append(extraction)
        return len(done) - before


def _extractions(sources: _Sources, spec: GraphSpec, is_open: Callable[[str], bool]) -> Iterator[Extraction]:
    if spec.extractor == "triples":
        yield from (
            block for store in sources.triples() for block in triples.extractions(store) if is_open(block.chunk)
        )
        return
    todo = (
        chunk
        for passage in sources.passages()
        for chunk in chunks(passage, spec.chunk_tokens, spec.overlap_tokens)
        if is_open(chunk.id)
    )
    if spec.extractor == "rules":
        yield from (Extraction(chunk=chunk.id, facts=rules.extract(chunk)) for chunk in todo)
        return
    first = next(todo, None)
    if first is None:
        return  # a model that has nothing to read is not loaded
    with _engine(spec) as extract:
        yield from extract([first])
        while batch := list(islice(todo, spec.engine.live)):
            yield from extract(batch)


@contextmanager
def _engine(spec: GraphSpec) -> Iterator[Extractor]:
    from platform_sdk.sampling.load import load_engine

    assert spec.model is not None, "GraphSpec has checked it"
    engine = load_engine(spec.engine, spec.model)
    try:
        yield lambda batch: llm.extract(engine, batch, spec.passes, spec.max_tokens)
    finally:
        engine.close()


def _settings(spec: GraphSpec) -> dict[str, object]:
    """Return everything of a specification that the graph depends on."""
    settings: dict[str, object] = {"extractor": spec.extractor, "version": VERSIONS[spec.extractor]}
    if spec.extractor != "triples":
        settings |= {"chunk_tokens": spec.chunk_tokens, "overlap_tokens": spec.overlap_tokens}
    if spec.model is not None:
        from platform_sdk.sampling.pairs import policy_digest

        settings |= {"model": policy_digest(spec.model), "dtype": spec.engine.dtype, "passes": spec.passes}
        settings |= {"max_tokens": spec.max_tokens, "engine": spec.engine.engine}
    return settings


class _Sources:
    """The prepared corpus of a run and what was added to its graph."""

    def __init__(self, run_dir: Path) -> None:
        self.added = graph_folder(run_dir) / "added"
        self._corpus, self._triples = read_corpus(run_dir), read_triples(run_dir)

    @property
    def digests(self) -> list[str]:
        """Digests of passages and triples, and the names of the added files, which are digests too."""
        return [self._corpus.digest, self._triples.digest, *sorted(path.name for path in self._files())]

    def passages(self) -> Iterator[Passage]:
        yield from self._corpus.passages
        for path in self._files():
            if not path.name.startswith("triples-"):
                yield from Corpus.load(path).passages

    def triples(self) -> Iterator[Sequence[Triple]]:
        yield self._triples.triples
        for path in self._files():
            if path.name.startswith("triples-"):
                yield TripleStore.load(path).triples

    def _files(self) -> list[Path]:
        return sorted(self.added.glob("*.jsonl"))
