"""Merging of extracted facts into one graph, out of core: DuckDB sorts, joins and spills to the disk.

DuckDB rather than Polars' streaming engine: the same joins took 1.5 times the CPU time there, and Polars has no memory
limit to set (``benchmarks/graph_engines.py``).

Entities are one where their normalised names are equal. The names that rules find are linked to titles of the corpus
here and not while extracting, so that a graph does not depend on the order in which passages were added:

* a ``span`` is the title that has its name (rule ``title``), else the only title that has its name before a bracket
  (``alias``, e.g. *Oslo* of *Oslo (band)*), else an entity of its own (``span``);
* a ``phrase`` is linked alike, and dropped if there is no such title;
* both also mention the longest titles of two or more words inside them (``within``).

A fact without a passage (a triple) gets the passage whose title is its first entity, if there is one.
"""

from __future__ import annotations

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

logger = logging.getLogger(__name__)
ROWS = 65_536
"""Rows that are hashed or copied at once, and rows of a Parquet row group."""
MALFORMED = "malformed.jsonl"

MACROS = r"""
CREATE MACRO plain(name) AS trim(regexp_replace(lower(nfc_normalize(name)), '\s+', ' ', 'g'));
CREATE MACRO normal(name) AS coalesce(nullif(trim(plain(name), ' ''"“”‘’.,;:!?'), ''), plain(name));
CREATE MACRO short(text) AS substr(sha256(text), 1, 20);
"""

_TITLES = r"""
CREATE TABLE exact AS
    SELECT normal(title) AS key, min(title) AS name, min(passage) AS passage FROM titles WHERE trim(title) <> ''
    GROUP BY normal(title);
CREATE TABLE shortened AS
    SELECT short AS key, min(key) AS entity, min(passage) AS passage
    FROM (SELECT key, passage, normal(regexp_replace(name, '\s*\([^()]*\)$', '')) AS short FROM exact)
    WHERE short <> key AND short NOT IN (SELECT key FROM exact) GROUP BY short HAVING count(*) = 1;
"""

# One row for each fact; a chunk without facts has a row without text. Lists of structs never take part in a join, since
# joins of them do not spill.
_FACTS = """
CREATE TABLE facts AS
    SELECT chunk, malformed, fact.text AS text, fact.source AS source, fact.entities AS entities,
           CASE WHEN fact.source.passage = '' THEN normal(fact.entities[1].name) END AS head
    FROM (
        SELECT chunk, malformed, unnest(CASE WHEN len(facts) = 0 THEN [NULL] ELSE facts END) AS fact
        FROM read_json($paths, format = 'newline_delimited', columns = {
            chunk: 'VARCHAR', malformed: 'VARCHAR[]', facts: 'STRUCT("text" VARCHAR,
                entities STRUCT("name" VARCHAR, "type" VARCHAR, description VARCHAR, alias VARCHAR, rule VARCHAR)[],
                source STRUCT(passage VARCHAR, "start" BIGINT, "end" BIGINT))[]'})
        WHERE chunk IS NOT NULL
    )
"""

# Two facts are one hyperedge where text and source are equal, as they are where chunks overlap. From here on, rows of
# sorted tables stand for hyperedges, names and entities: numbers are joined and sorted much faster than texts.
_HYPEREDGES = """
CREATE TABLE heads AS
    SELECT head, coalesce(exact.passage, shortened.passage) AS passage
    FROM (SELECT DISTINCT head FROM facts WHERE head IS NOT NULL)
    LEFT JOIN exact ON exact.key = head LEFT JOIN shortened ON shortened.key = head;
CREATE TABLE stated AS
    SELECT *, short(concat_ws(chr(31), text, passage, coalesce("start", -1), coalesce("end", -1))) AS id
    FROM (
        SELECT facts.rowid AS fact, text, coalesce(heads.passage, source.passage) AS passage,
               source."start" AS "start", source."end" AS "end"
        FROM facts LEFT JOIN heads USING (head) WHERE text IS NOT NULL
    );
CREATE TABLE hyperedges AS SELECT DISTINCT id, text, passage, "start", "end" FROM stated ORDER BY id;
CREATE TABLE edges AS SELECT fact, hyperedges.rowid AS edge FROM stated JOIN hyperedges USING (id);
DROP TABLE stated;
CREATE TABLE spelled AS
    SELECT fact, mention.name, mention.rule, mention.type, mention.description, mention.alias
    FROM (SELECT rowid AS fact, unnest(entities) AS mention FROM facts);
DROP TABLE facts;
CREATE TABLE names AS SELECT name, normal(name) AS key FROM (SELECT DISTINCT name FROM spelled) ORDER BY name;
CREATE TABLE named AS
    SELECT edge, names.rowid AS name, rule, type, description, alias
    FROM spelled JOIN names USING (name) JOIN edges USING (fact);
DROP TABLE spelled;
DROP TABLE edges;
"""

# Links of the distinct names: to entities, each with the rule that found it.
_LINKS = r"""
CREATE TABLE uses AS
    SELECT used.name, key, found FROM (SELECT DISTINCT name, rule AS found FROM named) used
    JOIN names ON names.rowid = used.name;
CREATE TABLE spans AS SELECT DISTINCT key, found FROM uses WHERE found IN ('span', 'phrase');
CREATE TABLE links AS
    WITH inner_spans AS (
        SELECT key, first_word, last_word, array_to_string(words[first_word:last_word], ' ') AS part
        FROM (SELECT key, words, first_word, unnest(range(first_word + 1, len(words) + 1)) AS last_word
              FROM (SELECT key, string_split(key, ' ') AS words,
                           unnest(range(1, len(string_split(key, ' ')))) AS first_word
                    FROM (SELECT DISTINCT key FROM spans WHERE len(string_split(key, ' ')) BETWEEN 3 AND 12)))
        WHERE last_word - first_word + 1 < len(words)
    ), matched AS (
        SELECT i.key, first_word, last_word, coalesce(exact.key, shortened.entity) AS entity
        FROM inner_spans i LEFT JOIN exact ON exact.key = part LEFT JOIN shortened ON shortened.key = part
        WHERE exact.key IS NOT NULL OR shortened.key IS NOT NULL
    )
    SELECT spans.key, found, coalesce(exact.key, entity, spans.key) AS entity,
           CASE WHEN exact.key IS NOT NULL THEN 'title' WHEN entity IS NOT NULL THEN 'alias' ELSE 'span' END AS rule
    FROM spans LEFT JOIN exact USING (key) LEFT JOIN shortened ON shortened.key = spans.key
    WHERE found = 'span' OR exact.key IS NOT NULL OR entity IS NOT NULL
    UNION ALL
    SELECT DISTINCT key, found, entity, 'within' FROM matched m JOIN spans USING (key)
    WHERE key NOT IN (SELECT key FROM exact) AND NOT EXISTS (
        SELECT 1 FROM matched o WHERE o.key = m.key AND o.first_word <= m.first_word AND m.last_word <= o.last_word
        AND o.last_word - o.first_word > m.last_word - m.first_word);
CREATE TABLE resolved AS
    SELECT name, found, entity AS key, rule FROM uses JOIN links USING (key, found)
    UNION ALL SELECT name, found, key, found FROM uses WHERE found NOT IN ('span', 'phrase');
CREATE TABLE ids AS SELECT short(key) AS id, key FROM (SELECT DISTINCT key FROM resolved) ORDER BY id;
CREATE TABLE targets AS
    SELECT name, found, ids.rowid AS entity, rule FROM resolved JOIN ids USING (key);
CREATE TABLE mentions AS
    SELECT DISTINCT entity, edge, named.name, targets.rule
    FROM named JOIN targets ON targets.name = named.name AND targets.found = named.rule;
"""

# A name that is not a title has the key of its entity. So has a title, but not the other names that are linked to it.
_ENTITIES = """
CREATE TABLE spoken AS
    SELECT entity, name, count(*) AS times
    FROM (SELECT DISTINCT entity, name, edge FROM mentions WHERE rule <> 'within') GROUP BY entity, name;
CREATE TABLE told AS
    SELECT DISTINCT entity, edge, type, description, alias
    FROM named JOIN targets ON targets.name = named.name AND targets.found = named.rule
    WHERE targets.rule <> 'within' AND (type <> '' OR description <> '' OR alias <> '');
CREATE TABLE entities AS
    WITH chosen AS (SELECT entity, arg_min(name, (-times, name)) AS name FROM spoken GROUP BY entity),
    other_names AS (
        SELECT entity, names.name AS alias, names.key FROM spoken JOIN names ON names.rowid = spoken.name
        UNION ALL SELECT entity, alias, normal(alias) FROM told WHERE alias <> ''
        UNION ALL SELECT ids.rowid, shortened.key, normal(shortened.key)
        FROM shortened JOIN ids ON ids.key = shortened.entity
    ),
    aliases AS (
        SELECT entity, list_sort(list(alias)) AS aliases FROM (
            SELECT entity, min(alias) AS alias FROM other_names JOIN ids ON ids.rowid = entity
            WHERE other_names.key <> ids.key GROUP BY entity, other_names.key
        ) GROUP BY entity
    ),
    types AS (
        SELECT entity, arg_min(type, (-times, type)) AS type FROM (
            SELECT entity, type, count(*) AS times
            FROM (SELECT DISTINCT entity, edge, type FROM told WHERE type <> '') GROUP BY entity, type
        ) GROUP BY entity
    ),
    descriptions AS (
        SELECT entity, list_sort(list(description)) AS descriptions
        FROM (SELECT DISTINCT entity, description FROM told WHERE description <> '') GROUP BY entity
    ),
    joined AS (
        SELECT ids.id, coalesce(exact.name, names.name) AS name, coalesce(type, '') AS type,
               coalesce(aliases, []) AS aliases, coalesce(descriptions, []) AS descriptions
        FROM ids LEFT JOIN chosen ON chosen.entity = ids.rowid LEFT JOIN names ON names.rowid = chosen.name
        LEFT JOIN exact ON exact.key = ids.key LEFT JOIN types ON types.entity = ids.rowid
        LEFT JOIN descriptions ON descriptions.entity = ids.rowid LEFT JOIN aliases ON aliases.entity = ids.rowid
    )
    SELECT *, name || CASE WHEN type = '' THEN '' ELSE ' (' || type || ')' END
           || CASE WHEN len(descriptions) = 0 THEN '' ELSE ': ' || array_to_string(descriptions, ' ') END AS text
    FROM joined ORDER BY id;
CREATE TABLE incidence AS SELECT DISTINCT edge, entity FROM mentions;
"""

_TABLES = {
    "entities": "FROM entities",
    "hyperedges": "FROM hyperedges",
    "mentions": """
        SELECT ids.id AS entity, hyperedges.id AS hyperedge, names.name, rule
        FROM mentions JOIN ids ON ids.rowid = entity JOIN hyperedges ON hyperedges.rowid = edge
        JOIN names ON names.rowid = mentions.name ORDER BY mentions.entity, edge, mentions.name, rule""",
}


@dataclass(frozen=True)
class Merged:
    """Counts of a merged graph, and the digest of its content.

    ``unsourced`` hyperedges have no passage: triples whose head is no title. ``unused`` passages have no hyperedge.
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


def merge(folder: Path, extractions: Sequence[Path], titles: Iterable[tuple[str, str]], memory_gb: float) -> Merged:
    """Merge files of extractions; write the tables as Parquet and the incidence as arrays into ``folder``.

    Args:
        folder: Where the files go, and what the memory does not hold.
        extractions: JSONL files of ``Extraction``.
        titles: Titles of the corpus, each with its passage's id.
        memory_gb: Maximum memory of the engine, in GB.
    """
    with (
        _scratch(folder / ".merge") as scratch,
        duckdb.connect(config={"memory_limit": f"{memory_gb}GB", "temp_directory": str(scratch)}) as db,
    ):
        logger.info("facts")
        db.execute("SET enable_progress_bar = false")  # it is printed beside the command's own output
        db.execute("SET preserve_insertion_order = false")  # of what is not sorted: memory stays bounded
        db.execute(MACROS)
        _load_titles(db, titles)
        db.execute(_TITLES)
        db.execute(_FACTS, {"paths": [str(path) for path in extractions]})
        db.execute("CREATE TABLE malformed AS SELECT DISTINCT chunk, unnest(malformed) AS record FROM facts")
        chunks = _number(db, "SELECT count(DISTINCT chunk) FROM facts")
        for stage, statements in (("hyperedges", _HYPEREDGES), ("links", _LINKS), ("entities", _ENTITIES)):
            logger.info(stage)
            db.execute(statements)
        logger.info("tables")
        db.execute("SET preserve_insertion_order = true")
        malformed = _number(db, f"COPY (FROM malformed ORDER BY ALL) TO '{_quoted(folder / MALFORMED)}' (FORMAT json)")
        entities, hyperedges, mentions = (
            _number(
                db,
                f"COPY ({query}) TO '{_quoted(folder / name)}.parquet' "
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROWS})",
            )
            for name, query in _TABLES.items()
        )
        logger.info("incidence")
        incidences = _number(db, "SELECT count(*) FROM incidence")
        arrays = [
            *_write_incidence(db, folder / "edge_entities", ("edge", "entity"), hyperedges, incidences),
            *_write_incidence(db, folder / "entity_edges", ("entity", "edge"), entities, incidences),
        ]
        passages = _number(db, "SELECT count(DISTINCT passage) FROM titles")
        unused = _number(db, "SELECT count(DISTINCT passage) FROM titles ANTI JOIN hyperedges USING (passage)")
        unsourced = _number(db, "SELECT count(*) FROM hyperedges WHERE passage = ''")
        logger.info("digest")
        digest = _digest(db, arrays[:2])
        return Merged(digest, entities, hyperedges, mentions, chunks, malformed, passages, unused, unsourced)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Make a folder for what is spilled, and remove it at the end; one of a killed merge is removed first."""
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
    """Write the CSR arrays of the incidence in batches: row by row, never whole in memory."""
    paths = path.with_name(f"{path.name}.indptr.npy"), path.with_name(f"{path.name}.indices.npy")
    row, at = 0, 0
    with paths[0].open("wb") as indptr, paths[1].open("wb") as indices:
        _write_header(indptr, np.dtype(np.int64), rows + 1)
        _write_header(indices, np.dtype(np.int32), entries)
        for batch in _batches(db, f"SELECT {', '.join(by)} FROM incidence ORDER BY ALL"):
            owners, others = (batch.column(i).to_numpy() for i in (0, 1))
            # Rows end where the next one begins; the batch's last row may go on in the next batch.
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
    """Return the number that a query answers; of COPY, how many rows were written."""
    row = db.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
