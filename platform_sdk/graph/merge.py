"""Out-of-core merging of extracted facts into one graph: DuckDB sorts, joins and spills to disk.

In Polars' streaming engine the same joins took 1.6 times the CPU time, and Polars has no memory limit
(``benchmarks/graph_engines.py``).

Entities with equal normalised names are merged. Names found by rules are linked to titles of the corpus here, not
during extraction, so that a graph does not depend on the order of adding passages:

* a ``span`` is the title that has its name (rule ``title``), else the only title that has its name before a bracket
  (``alias``, e.g. *Oslo* of *Oslo (band)*), else a new entity (``span``);
* a ``phrase`` is linked alike, and dropped if there is no such title;
* those of 3 to 12 words that are no title also mention the longest titles of two or more words inside them
  (``within``).

A fact without a passage (a triple) gets the passage whose title is its first entity, if any.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import duckdb
import numpy as np
import pyarrow as pa

from platform_sdk import files
from platform_sdk.graph.statements import (
    ENTITIES,
    FACTS,
    HYPEREDGES,
    LINKS,
    MACROS,
    MALFORMED_RECORDS,
    TABLES,
    TITLES,
)

logger = logging.getLogger(__name__)
ROWS = 65_536
"""Rows hashed or copied at once, and rows of a Parquet row group."""
MALFORMED = "malformed.jsonl"


@dataclass(frozen=True)
class MergeResult:
    """Counts of a merged graph, and the digest of its content.

    ``unsourced`` hyperedges have no passage: triples whose head is not a title. ``unused`` passages have no hyperedge.
    """

    digest: str
    entities: int
    hyperedges: int
    mentions: int
    chunks: int
    malformed: int
    passages: int
    unused: int
    unsourced: int


def merge(
    folder: Path, extractions: Sequence[Path], titles: Iterable[tuple[str, str]], memory_gb: float
) -> MergeResult:
    """Merge files of extractions; write the tables as Parquet and the incidence as arrays into ``folder``.

    Args:
        folder: Directory of the files, and of data spilled to disk.
        extractions: JSONL files of ``Extraction``.
        titles: Titles of the corpus, each with its passage's id.
        memory_gb: Maximum memory of the engine, in GB.
    """
    with (
        _scratch(folder / ".merge") as scratch,
        duckdb.connect(config={"memory_limit": f"{memory_gb}GB", "temp_directory": str(scratch)}) as db,
    ):
        logger.info("merging: facts")
        db.execute("SET enable_progress_bar = false")  # the bar would mix with the command's output
        db.execute("SET preserve_insertion_order = false")  # of what is not sorted: memory stays bounded
        db.execute(MACROS)
        _load_titles(db, titles)
        db.execute(TITLES)
        db.execute(FACTS, {"paths": [glob.escape(str(path)) for path in extractions]})  # DuckDB reads them as patterns
        db.execute(MALFORMED_RECORDS)
        chunks = _number(db, "SELECT count(DISTINCT chunk) FROM facts")
        for stage, statements in (("hyperedges", HYPEREDGES), ("links", LINKS), ("entities", ENTITIES)):
            logger.info("merging: %s", stage)
            db.execute(statements)
        logger.info("merging: tables")
        db.execute("SET preserve_insertion_order = true")
        malformed = _number(db, f"COPY (FROM malformed ORDER BY ALL) TO '{_quoted(folder / MALFORMED)}' (FORMAT json)")
        entities, hyperedges, mentions = (
            _number(
                db,
                f"COPY ({query}) TO '{_quoted(folder / name)}.parquet' "
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROWS})",
            )
            for name, query in TABLES.items()
        )
        logger.info("merging: incidence")
        incidences = _number(db, "SELECT count(*) FROM incidence")
        arrays = [
            *_write_incidence(db, folder / "edge_entities", ("edge", "entity"), hyperedges, incidences),
            *_write_incidence(db, folder / "entity_edges", ("entity", "edge"), entities, incidences),
        ]
        passages = _number(db, "SELECT count(DISTINCT passage) FROM titles")
        unused = _number(db, "SELECT count(DISTINCT passage) FROM titles ANTI JOIN hyperedges USING (passage)")
        unsourced = _number(db, "SELECT count(*) FROM hyperedges WHERE passage = ''")
        logger.info("merging: digest")
        digest = _digest(db, arrays[:2])
        return MergeResult(digest, entities, hyperedges, mentions, chunks, malformed, passages, unused, unsourced)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Create a folder for spilled data and remove it at the end; remove one of a killed merge first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _load_titles(db: duckdb.DuckDBPyConnection, titles: Iterable[tuple[str, str]]) -> None:
    db.execute("CREATE TABLE titles (title VARCHAR, passage VARCHAR)")
    iterator = iter(titles)
    while batch := list(islice(iterator, ROWS)):
        db.register("batch", pa.table([*map(pa.array, zip(*batch, strict=True))], names=["title", "passage"]))
        db.execute("INSERT INTO titles SELECT title, passage FROM batch")
        db.unregister("batch")


def _write_incidence(
    db: duckdb.DuckDBPyConnection, path: Path, by: tuple[str, str], rows: int, entries: int
) -> tuple[Path, Path]:
    """Write the CSR arrays of the incidence in batches, row by row."""
    paths = path.with_name(f"{path.name}.indptr.npy"), path.with_name(f"{path.name}.indices.npy")
    row, at = 0, 0
    with paths[0].open("wb") as indptr, paths[1].open("wb") as indices:
        _write_header(indptr, np.dtype(np.int64), rows + 1)
        _write_header(indices, np.dtype(np.int32), entries)
        for batch in _batches(db, f"SELECT {', '.join(by)} FROM incidence ORDER BY ALL"):
            owners, others = (batch.column(i).to_numpy() for i in (0, 1))
            # Rows end where the next one begins; the batch's last row may continue in the next batch.
            indptr.write((at + np.searchsorted(owners, np.arange(row, owners[-1] + 1))).astype(np.int64).tobytes())
            indices.write(others.astype(np.int32).tobytes())
            row, at = int(owners[-1]) + 1, at + len(others)
        indptr.write(np.full(rows + 1 - row, at, dtype=np.int64).tobytes())
    return paths


def _write_header(stream: IO[bytes], dtype: np.dtype[Any], length: int) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(stream, header)


def _digest(db: duckdb.DuckDBPyConnection, incidence: Iterable[Path]) -> str:
    """Hash entities, hyperedges and incidence. A hyperedge's id follows from its text and source."""
    sha = hashlib.sha256()
    for query in ("SELECT to_json(entities)::VARCHAR FROM entities", "SELECT id FROM hyperedges"):
        for batch in _batches(db, query):
            sha.update("".join(f"{line}\n" for line in batch.column(0).to_pylist()).encode())
        sha.update(b"\n")
    for path in incidence:
        sha.update(files.sha256(path).encode())
    return sha.hexdigest()


def _batches(db: duckdb.DuckDBPyConnection, query: str) -> Iterator[pa.RecordBatch]:
    with db.cursor() as cursor:
        yield from cursor.sql(query).to_arrow_reader(ROWS)


def _number(db: duckdb.DuckDBPyConnection, query: str) -> int:
    """Return a query's single number; for COPY, the number of written rows."""
    row = db.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
