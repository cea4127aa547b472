"""Building of a run's graph: extraction in shards, resumed per chunk, then merging.

``RUN/graph/extractions`` has the logs of each shard: a logged chunk is not extracted again. A finished shard also has
an outcome with the digest of the build's inputs. Passages added later are kept in ``RUN/graph/added``, and only their
chunks are extracted; the graph equals a build of all passages together. Texts and facts are streamed.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from platform_sdk.config.graph import GraphSpec
from platform_sdk.config.struct import Struct
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.display import shortened
from platform_sdk.errors import UserError
from platform_sdk.files import read_object
from platform_sdk.graph import llm, rules, triples
from platform_sdk.graph.chunks import Chunk, chunks
from platform_sdk.graph.facts import Extraction
from platform_sdk.graph.graph import MANIFEST, Graph, check_extractor, write_graph
from platform_sdk.graph.sources import Sources, graph_folder
from platform_sdk.processes.launch import ProcessRunner, StepProcesses
from platform_sdk.record_files import AppendLog, check_log
from platform_sdk.tracking.outcomes import begin, digest_of, write_json

logger = logging.getLogger(__name__)
VERSIONS = {"rules": rules.VERSION, "triples": triples.VERSION, "llm": llm.VERSION}
EXTRACTIONS = "extractions"
CHUNKS_PER_LOG = 1000
"""Chunks per log; a resumed extraction reads a whole log."""
Extractor = Callable[[Sequence[Chunk]], Iterable[Extraction]]


@dataclass(frozen=True)
class BuildResult:
    """A built graph, and the number of chunks that this build extracted."""

    graph: Graph
    extracted: int


def build(run_dir: Path, spec: GraphSpec, runner: ProcessRunner | None = None) -> BuildResult:
    """Build the graph of a run's corpus and of added passages; resume a killed build.

    Args:
        run_dir: The run, with a prepared corpus.
        spec: How to build.
        runner: Extracts the shards elsewhere; None to extract them here, one after another.

    Raises:
        UserError: the folder has a graph of other settings, the corpus is empty or was altered, the model cannot be
            used, the runner left out a shard, or another process builds the graph.
    """
    with _locked(graph_folder(run_dir)) as folder:
        return _build(folder, run_dir, spec, runner)


def _build(folder: Path, run_dir: Path, spec: GraphSpec, runner: ProcessRunner | None = None) -> BuildResult:
    sources = Sources(run_dir)
    if not sources.any(spec.extractor):
        wanted = "triples" if spec.extractor == "triples" else "corpus"
        raise UserError(
            f"{run_dir}: there is nothing to build a graph of; the extractor {spec.extractor} reads dataset.{wanted}"
        )
    settings, digests = _settings(spec), sources.digests()
    inputs = digest_of(settings, digests)
    begin(folder, digest_of(settings, digests[:2]))
    if built := _built(folder, inputs):
        return BuildResult(built, 0)
    step = ExtractStep(run_dir=run_dir, spec=spec, inputs=inputs)
    extracted = _extract(step, runner)
    logs = [log for shard in range(spec.shards) for log in step.logs(shard)]
    for log in logs:
        check_log(log)
    graph = write_graph(
        folder,
        logs,
        titles=((passage.title, passage.id) for passage in sources.passages()),
        extractor=spec.extractor,
        version=VERSIONS[spec.extractor],
        inputs=inputs,
        memory_gb=spec.memory_gb,
    )
    return BuildResult(graph, extracted)


def _built(folder: Path, inputs: str) -> Graph | None:
    """Return the graph in ``folder`` if it is intact and has the digest ``inputs``, else None."""
    if not (folder / MANIFEST).exists():
        return None
    try:
        if read_object(folder / MANIFEST).get("inputs") == inputs:
            return Graph.open(folder)
    except UserError as error:
        logger.warning("%s: is merged again, since it was damaged: %s", folder, error)
    return None


def add(run_dir: Path, spec: GraphSpec, path: Path) -> BuildResult:
    """Add a file of passages (or, to a graph of triples, of triples) to a run's graph.

    Raises:
        UserError: a passage's id belongs to another passage, or the graph has another extractor; see also ``build``.
    """
    with _locked(graph_folder(run_dir)) as folder:
        if (folder / MANIFEST).exists():
            check_extractor(folder, spec)
        sources = Sources(run_dir)
        if spec.extractor == "triples":
            added: Corpus | TripleStore = TripleStore.load(path)
        else:
            added = Corpus.load(path)
            new = {passage.id: passage for passage in added.passages}
            for passage in sources.passages():
                if new.get(passage.id, passage) != passage:
                    raise UserError(
                        f"{path}: passage {shortened(passage.id)} is in the graph with another title or text; rename it"
                    )
        sources.add(spec.extractor, added)
        return _build(folder, run_dir, spec)


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    """Create and lock a graph's folder; the lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"{folder}: another process builds this graph; wait for its end") from error
        yield folder


class ExtractStep(Struct):
    """The extraction of one build: input of ``python -m platform_sdk.graph --spec FILE``, which extracts one shard."""

    run_dir: Path
    spec: GraphSpec
    inputs: str

    @property
    def folder(self) -> Path:
        return graph_folder(self.run_dir) / EXTRACTIONS

    def outcome(self, shard: int) -> Path:
        """Return the file that marks a shard as finished, with the digest of its inputs."""
        return self.folder / f"{shard}-of-{self.spec.shards}.json"

    def logs(self, shard: int) -> list[Path]:
        """Return the logs of a shard in the order of writing."""
        return sorted(self.folder.glob(f"{shard}-of-{self.spec.shards}.*.jsonl"))

    def sizes(self, shard: int) -> dict[str, int]:
        """Return the sizes of a shard's logs in bytes, by name."""
        return {path.name: path.stat().st_size for path in self.logs(shard)}

    def is_open(self, shard: int) -> bool:
        """Return True if a shard is unfinished, or its logs have become incomplete."""
        path = self.outcome(shard)
        done = read_object(path) if path.exists() else {}
        return (done.get("inputs"), done.get("logs")) != (self.inputs, self.sizes(shard))

    def open_shards(self) -> list[int]:
        """Return the shards that are not finished."""
        return [shard for shard in range(self.spec.shards) if self.is_open(shard)]


def extraction_file(run_dir: Path, inputs: str) -> Path:
    """Return the specification of an extraction, named by the digest of its inputs."""
    return graph_folder(run_dir) / f"extract-{inputs[:16]}.json"


def extraction_processes(spec_file: Path, spec: GraphSpec) -> StepProcesses:
    """Return the processes of an extraction, one for each shard."""
    own_gpus = spec.extractor == "llm" and spec.engine.engine != "openai"
    return StepProcesses(
        "platform_sdk.graph",
        spec_file,
        "extract",
        trains=False,
        vllm=spec.engine.engine == "vllm",
        gpus_each=spec.engine.gpus_each if own_gpus else 0,
        shards=spec.shards,
    )


def _extract(step: ExtractStep, runner: ProcessRunner | None) -> int:
    """Extract the unfinished shards; return the number of extracted chunks."""
    todo = step.open_shards()
    if runner is None:
        return sum(extract_shard(step, shard) for shard in todo)
    if todo:
        # A job is identified by its specification, so a finished job of other inputs must not match this one.
        spec_file = extraction_file(step.run_dir, step.inputs)
        write_json(spec_file, step.model_dump(mode="json"))
        runner(extraction_processes(spec_file, step.spec))
        if left := step.open_shards():
            raise UserError(f"{step.folder}: shards {shortened(str(left))} were not extracted; run the step again")
    return sum(int(read_object(step.outcome(shard))["extracted"]) for shard in todo)


def extract_shard(step: ExtractStep, shard: int) -> int:
    """Extract the chunks of a shard that are in none of its logs; return their number."""
    if not step.is_open(shard):
        return 0
    name = f"{shard}-of-{step.spec.shards}"
    done: set[str] = set()
    logs = step.logs(shard)
    for path in logs:
        with AppendLog(path, Extraction) as log:  # drops an incomplete last record
            done.update(record.chunk for record in log.records)
    before = len(done)

    stream = _extractions(Sources(step.run_dir), step.spec, shard, lambda chunk: chunk not in done)
    for number in count(int(logs[-1].name.split(".")[1]) + 1 if logs else 0):
        with AppendLog(step.folder / f"{name}.{number:06}.jsonl", Extraction) as log:
            for extraction in islice(stream, CHUNKS_PER_LOG):
                done.add(extraction.chunk)
                log.append(extraction)
            if len(log.records) < CHUNKS_PER_LOG:
                break
    write_json(step.outcome(shard), {"inputs": step.inputs, "logs": step.sizes(shard), "extracted": len(done) - before})
    return len(done) - before


def _extractions(sources: Sources, spec: GraphSpec, shard: int, is_open: Callable[[str], bool]) -> Iterator[Extraction]:
    def is_own(id: str) -> bool:
        return int(hashlib.sha256(id.encode()).hexdigest()[:16], 16) % spec.shards == shard

    if spec.extractor == "triples":
        for triples_file in sources.triples():
            for chunk, block in triples.blocks(triples_file):
                if is_own(chunk) and is_open(chunk):
                    yield Extraction(chunk=chunk, facts=tuple(map(triples.fact, block)))
        return
    todo = (
        chunk
        for passage in sources.passages()
        if is_own(passage.id)
        for chunk in chunks(passage, spec.chunk_tokens, spec.overlap_tokens)
        if is_open(chunk.id)
    )
    if spec.extractor == "rules":
        yield from (Extraction(chunk=chunk.id, facts=rules.extract(chunk)) for chunk in todo)
        return
    first = next(todo, None)
    if first is None:
        return  # do not load a model without work
    with _engine(spec) as extract:
        yield from extract([first])
        while batch := list(islice(todo, spec.engine.live)):
            yield from extract(batch)


@contextmanager
def _engine(spec: GraphSpec) -> Iterator[Extractor]:
    from platform_sdk.sampling.load import load_engine

    assert spec.model is not None, "GraphSpec has checked it"
    with closing(load_engine(spec.engine, spec.model)) as engine:
        yield lambda batch: llm.extract(engine, batch, spec.passes, spec.max_tokens)


def _settings(spec: GraphSpec) -> dict[str, object]:
    """Return the settings of a specification that affect the graph."""
    settings: dict[str, object] = {"extractor": spec.extractor, "version": VERSIONS[spec.extractor]}
    if spec.extractor != "triples":
        settings |= {"chunk_tokens": spec.chunk_tokens, "overlap_tokens": spec.overlap_tokens}
    if spec.model is not None:
        from platform_sdk.sampling.pairs import policy_digest

        settings |= {"model": policy_digest(spec.model), "dtype": spec.engine.dtype, "passes": spec.passes}
        settings |= {"max_tokens": spec.max_tokens, "engine": spec.engine.engine}
    return settings
