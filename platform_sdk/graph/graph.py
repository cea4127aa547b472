"""A stored hypergraph: Parquet tables, incidence in memory-mapped arrays, and a manifest with their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from platform_sdk import files
from platform_sdk.config.graph import GraphSpec
from platform_sdk.config.struct import Struct
from platform_sdk.errors import UserError
from platform_sdk.graph.merge import merge
from platform_sdk.records import Source
from platform_sdk.rows import Rows

SCHEMA = 2
MANIFEST = "manifest.json"
ENTITIES, HYPEREDGES, MENTIONS = "entities.parquet", "hyperedges.parquet", "mentions.parquet"
FILES = sorted(
    [ENTITIES, HYPEREDGES, MENTIONS]
    + [f"{name}.{part}.npy" for name in ("edge_entities", "entity_edges") for part in ("indptr", "indices")]
)

T = TypeVar("T")


class Manifest(Struct):
    """Counts, digests and origin of a graph's files; see ``merge.MergeResult``.

    ``digest`` covers the content, independent of compression and order.
    """

    schema_version: int = SCHEMA
    digest: str
    extractor: str
    version: int
    inputs: str
    entities: int
    hyperedges: int
    mentions: int
    chunks: int
    malformed: int
    passages: int
    unused: int
    unsourced: int
    files: dict[str, str]


@dataclass(frozen=True)
class Incidence:
    """A sparse 0/1 matrix in CSR form; the indices of each row ascend."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]

    def row(self, number: int) -> npt.NDArray[np.int32]:
        return self.indices[self.indptr[number] : self.indptr[number + 1]]

    @classmethod
    def open(cls, folder: Path, name: str) -> Self:
        """Memory-map the arrays written by ``merge``."""
        indptr, indices = (np.load(folder / f"{name}.{part}.npy", mmap_mode="r") for part in ("indptr", "indices"))
        return cls(indptr, indices)


class Column(Rows[T]):
    """A column of a Parquet file, read on first use and kept as Arrow memory."""

    def __init__(self, file: pq.ParquetFile, names: Sequence[str], make: Callable[..., T]) -> None:
        self._file, self._names, self._make = file, names, make

    @cached_property
    def _columns(self) -> list[Any]:
        table = self._file.read(columns=list(self._names))
        columns = [table.column(name) for name in self._names]
        return [
            (column.cast(pa.large_string()) if pa.types.is_string(column.type) else column).combine_chunks()
            for column in columns
        ]

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def row(self, number: int) -> T:
        return self._make(*(column[number].as_py() for column in self._columns))

    def __iter__(self) -> Iterator[T]:
        for batch in self._file.iter_batches(columns=list(self._names)):
            rows = zip(*(batch.column(name).to_pylist() for name in self._names), strict=True)
            yield from (self._make(*row) for row in rows)


class Graph:
    """A hypergraph in a folder. Rows are sorted by id, and ids depend only on the content."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.manifest = manifest
        self.digest = manifest.digest
        entities, edges, self.mentions = (
            pq.ParquetFile(folder / name, memory_map=True) for name in (ENTITIES, HYPEREDGES, MENTIONS)
        )
        self.entity_ids: Sequence[str] = Column(entities, ["id"], str)
        self.entity_names: Sequence[str] = Column(entities, ["name"], str)
        self.entity_aliases: Sequence[tuple[str, ...]] = Column(entities, ["aliases"], tuple)
        self.entity_texts: Sequence[str] = Column(entities, ["text"], str)
        self.hyperedge_ids: Sequence[str] = Column(edges, ["id"], str)
        self.hyperedge_texts: Sequence[str] = Column(edges, ["text"], str)
        self.hyperedge_sources: Sequence[Source] = Column(edges, ["passage", "start", "end"], _source)
        self.edge_entities = Incidence.open(folder, "edge_entities")
        self.entity_edges = Incidence.open(folder, "entity_edges")

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a graph and compare its files with the manifest's digests.

        Raises:
            UserError: a file is missing or altered, or the graph was written by another version.
        """
        folder = Path(path)
        schema = files.read_object(folder / MANIFEST).get("schema_version")
        if schema != SCHEMA:
            raise UserError(
                f"{folder / MANIFEST}: a graph of schema {schema}, but this hopforge reads schema {SCHEMA}; "
                "build the graph again"
            )
        manifest = files.read_model(folder / MANIFEST, Manifest)
        if sorted(manifest.files) != FILES:
            raise UserError(f"{folder / MANIFEST}: files: must be {', '.join(FILES)}; build the graph again")
        for name, digest in manifest.files.items():
            if not (folder / name).exists():
                raise UserError(f"{folder / name}: is missing; build the graph again")
            if files.sha256(folder / name) != digest:
                raise UserError(f"{folder / name}: was altered after it was written; build the graph again")
        graph = cls(folder, manifest)
        counts = (len(graph.entity_ids), len(graph.hyperedge_ids), graph.mentions.metadata.num_rows)
        if (manifest.entities, manifest.hyperedges, manifest.mentions) != counts:
            raise UserError(
                f"{folder / MANIFEST}: its counts of entities, hyperedges and mentions were altered (the tables have "
                f"{counts}); build the graph again"
            )
        return graph


def check_extractor(folder: Path, spec: GraphSpec) -> None:
    """Compare the extractor of the graph in ``folder`` with the recipe's.

    Raises:
        UserError: the graph is missing, or has another extractor.
    """
    made = files.read_object(folder / MANIFEST).get("extractor")
    if made != spec.extractor:
        raise UserError(
            f"{folder}: holds a graph of graph.extractor {made}, but the recipe's is {spec.extractor}; "
            f"set graph.extractor={made}, or use another --workdir"
        )


def _source(passage: str, start: int | None, end: int | None) -> Source:
    return Source(passage=passage, start=start, end=end)


def write_graph(
    folder: Path,
    extractions: Sequence[Path],
    *,
    titles: Iterable[tuple[str, str]] = (),
    extractor: str,
    version: int,
    inputs: str,
    memory_gb: float = GraphSpec().memory_gb,
) -> Graph:
    """Merge files of extractions into a graph in ``folder``; the manifest is written last.

    Args:
        folder: Output directory; an existing graph is replaced.
        extractions: JSONL files of ``Extraction``, in any order.
        titles: Titles of the corpus for linking names, each with its passage's id.
        extractor: The extractor's name.
        version: The extractor's version.
        inputs: Digest of all inputs of the graph.
        memory_gb: Maximum memory of the merge, in GB.

    Raises:
        UserError: the merge needs more memory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    try:
        merged = merge(folder, extractions, titles, memory_gb)
    except duckdb.OutOfMemoryException as error:
        raise UserError(
            f"{folder}: the merge needs more than {memory_gb:g} GB; raise graph.memory_gb and repeat the command"
        ) from error
    manifest = Manifest(
        **asdict(merged),
        extractor=extractor,
        version=version,
        inputs=inputs,
        files={name: files.sha256(folder / name) for name in FILES},
    )
    files.write_text(folder / MANIFEST, manifest.model_dump_json(indent=1))
    return Graph(folder, manifest)
