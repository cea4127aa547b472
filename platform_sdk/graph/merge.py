"""Merging of extracted facts into one graph, out of core: DuckDB sorts, joins and spills to the disk.

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
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

ROWS = 65_536
"""Rows that are hashed or copied at once, and rows of a Parquet row group."""
MEMORY = "1GB"
"""DuckDB's memory; what needs more is spilled to a folder beside the graph."""
MALFORMED = "malformed.jsonl"

_MACROS = r"""
CREATE MACRO plain(name) AS trim(regexp_replace(lower(nfc_normalize(name)), '\s+', ' ', 'g'));
CREATE MACRO normal(name) AS coalesce(nullif(trim(plain(name), ' ''"“”‘’.,;:!?'), ''), plain(name));
CREATE MACRO short(text) AS substr(sha256(text), 1, 20);
"""

_EXTRACTED = """
CREATE TABLE extracted AS SELECT chunk, malformed, facts
FROM read_json($paths, format = 'newline_delimited', columns = {
    chunk: 'VARCHAR', malformed: 'VARCHAR[]', facts: 'STRUCT("text" VARCHAR,
        entities STRUCT("name" VARCHAR, "type" VARCHAR, description VARCHAR, alias VARCHAR, rule VARCHAR)[],
        source STRUCT(passage VARCHAR, "start" BIGINT, "end" BIGINT))[]'})
WHERE chunk IS NOT NULL
"""

# Two facts are one hyperedge where text and source are equal, as they are where chunks overlap.
_HYPEREDGES = r"""
CREATE TABLE exact AS
    SELECT normal(title) AS key, min(title) AS name, min(passage) AS passage FROM titles GROUP BY normal(title);
CREATE TABLE shortened AS
    SELECT short AS key, min(key) AS entity, min(passage) AS passage
    FROM (SELECT key, passage, normal(regexp_replace(name, '\s*\([^()]*\)$', '')) AS short FROM exact)
    WHERE short <> key AND short NOT IN (SELECT key FROM exact) GROUP BY short HAVING count(*) = 1;
CREATE TABLE facts AS
    WITH stated AS (SELECT unnest(facts) AS fact FROM extracted), sourced AS (
        SELECT fact, fact.source.passage AS passage FROM stated WHERE fact.source.passage <> ''
        UNION ALL
        SELECT fact, coalesce(exact.passage, shortened.passage, '') FROM stated
        LEFT JOIN exact ON exact.key = normal(fact.entities[1].name)
        LEFT JOIN shortened ON shortened.key = normal(fact.entities[1].name)
        WHERE fact.source.passage = ''
    )
    SELECT short(concat_ws(chr(31), fact.text, passage, coalesce(fact.source.start, -1),
                           coalesce(fact.source."end", -1))) AS id, passage, fact
    FROM sourced;
CREATE TABLE hyperedges AS
    SELECT id, any_value(fact.text) AS text, any_value(passage) AS passage,
           any_value(fact.source.start) AS "start", any_value(fact.source."end") AS "end"
    FROM facts GROUP BY id ORDER BY id;
CREATE TABLE named AS
    SELECT DISTINCT hyperedge, normal(mention.name) AS key, mention.name, mention.type, mention.description,
           mention.alias, mention.rule
    FROM (SELECT id AS hyperedge, unnest(fact.entities) AS mention FROM facts);
DROP TABLE facts;
"""

# Links of the distinct names of spans: to entities, each with the rule that found it.
_LINKS = r"""
CREATE TABLE spans AS SELECT DISTINCT key, rule AS found FROM named WHERE rule IN ('span', 'phrase');
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
CREATE TABLE mentions AS
    SELECT hyperedge, short(entity) AS entity, entity AS key, name, type, description, alias, links.rule
    FROM named JOIN links ON links.key = named.key AND links.found = named.rule
    UNION ALL
    SELECT hyperedge, short(key), key, name, type, description, alias, rule FROM named
    WHERE rule NOT IN ('span', 'phrase');
DROP TABLE named;
"""

_ENTITIES = """
CREATE TABLE names AS
    SELECT entity, any_value(key) AS key, name, count(DISTINCT hyperedge) AS times
    FROM mentions WHERE rule <> 'within' GROUP BY entity, name;
CREATE TABLE entities AS
    WITH ids AS (SELECT entity AS id, any_value(key) AS key FROM mentions GROUP BY entity),
    chosen AS (SELECT entity AS id, arg_min(name, (-times, name)) AS name FROM names GROUP BY entity),
    aliases AS (
        SELECT id, list(alias ORDER BY alias) AS aliases FROM (
            SELECT id, min(alias) AS alias FROM (
                SELECT entity AS id, name AS alias FROM names
                UNION SELECT entity, alias FROM mentions WHERE alias <> '' AND rule <> 'within'
                UNION SELECT short(entity), key FROM shortened
            ) GROUP BY id, normal(alias)
        ) GROUP BY id
    ),
    types AS (
        SELECT entity AS id, arg_min(type, (-times, type)) AS type
        FROM (SELECT entity, type, count(DISTINCT hyperedge) AS times FROM mentions WHERE type <> '' GROUP BY ALL)
        GROUP BY entity
    ),
    descriptions AS (
        SELECT entity AS id, list(DISTINCT description ORDER BY description) AS descriptions
        FROM mentions WHERE description <> '' GROUP BY entity
    ),
    joined AS (
        SELECT ids.id, coalesce(exact.name, chosen.name) AS name, coalesce(type, '') AS type,
               coalesce(aliases, []) AS aliases, coalesce(descriptions, []) AS descriptions
        FROM ids LEFT JOIN chosen USING (id) LEFT JOIN types USING (id) LEFT JOIN descriptions USING (id)
        LEFT JOIN aliases USING (id) LEFT JOIN exact ON exact.key = ids.key
    )
    SELECT id, name, type, list_filter(aliases, lambda alias: normal(alias) <> normal(name)) AS aliases, descriptions,
           name || CASE WHEN type = '' THEN '' ELSE ' (' || type || ')' END
           || CASE WHEN len(descriptions) = 0 THEN '' ELSE ': ' || array_to_string(descriptions, ' ') END AS text
    FROM joined ORDER BY id;
CREATE TABLE incidence AS
    SELECT DISTINCT h.rowid AS edge, e.rowid AS entity
    FROM mentions m JOIN hyperedges h ON h.id = m.hyperedge JOIN entities e ON e.id = m.entity;
"""

_TABLES = {
    "entities": "SELECT * FROM entities ORDER BY id",
    "hyperedges": "SELECT * FROM hyperedges ORDER BY id",
    "mentions": "SELECT DISTINCT entity, hyperedge, name, rule FROM mentions ORDER BY ALL",
}


@dataclass(frozen=True)
class Merged:
    """Counts of a merged graph, and the digest of its content."""

    digest: str
    entities: int
    hyperedges: int
    mentions: int
    chunks: int
    malformed: int


def merge(folder: Path, extractions: Sequence[Path], titles: Iterable[tuple[str, str]]) -> Merged:
    """Merge files of extractions; write the tables as Parquet and the incidence as arrays into ``folder``.

    Args:
        folder: Where the files go.
        extractions: JSONL files of ``Extraction``.
        titles: Titles of the corpus, each with its passage's id.
    """
    with (
        TemporaryDirectory(prefix=".merge-", dir=folder) as temporary,
        duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": temporary}) as db,
    ):
        db.execute(_MACROS)
        _load_titles(db, titles)
        db.execute(_EXTRACTED, {"paths": [str(path) for path in extractions]})
        db.execute("CREATE TABLE malformed AS SELECT DISTINCT chunk, unnest(malformed) AS record FROM extracted")
        chunks, malformed = _row(
            db, "SELECT (SELECT count(DISTINCT chunk) FROM extracted), (SELECT count(*) FROM malformed)"
        )
        db.execute(_HYPEREDGES)
        db.execute(_LINKS)
        db.execute(_ENTITIES)
        db.execute(f"COPY (FROM malformed ORDER BY ALL) TO '{_quoted(folder / MALFORMED)}' (FORMAT json)")
        for name, query in _TABLES.items():
            db.execute(
                f"COPY ({query}) TO '{_quoted(folder / name)}.parquet' "
                f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROWS})"
            )
        _write_incidence(db, folder, "edge", "entity", "hyperedges", "edge_entities")
        _write_incidence(db, folder, "entity", "edge", "entities", "entity_edges")
        counts = [_row(db, f"SELECT count(*) FROM ({query})")[0] for query in _TABLES.values()]
        return Merged(_digest(db), counts[0], counts[1], counts[2], chunks, malformed)


def _load_titles(db: duckdb.DuckDBPyConnection, titles: Iterable[tuple[str, str]]) -> None:
    db.execute("CREATE TABLE titles (title VARCHAR, passage VARCHAR)")
    iterator = iter(titles)
    while batch := list(islice(iterator, ROWS)):
        db.register("batch", pa.table([*map(pa.array, zip(*batch, strict=True))], names=["title", "passage"]))
        db.execute("INSERT INTO titles SELECT title, passage FROM batch WHERE trim(title) <> ''")
        db.unregister("batch")


def _write_incidence(db: duckdb.DuckDBPyConnection, folder: Path, row: str, column: str, rows: str, name: str) -> None:
    """Write the CSR arrays of the incidence, by ``row``, in batches."""
    count, entries = _row(db, f"SELECT (SELECT count(*) FROM {rows}), (SELECT count(*) FROM incidence)")
    sizes = np.zeros(count + 1, dtype=np.int64)
    target = (
        np.lib.format.open_memmap(folder / f"{name}.indices.npy", mode="w+", dtype=np.int32, shape=(entries,))
        if entries
        else np.empty(0, dtype=np.int32)
    )
    at = 0
    for batch in _batches(db, f"SELECT {row}, {column} FROM incidence ORDER BY {row}, {column}"):
        owners, others = (batch.column(i).to_numpy() for i in (0, 1))
        sizes[1:] += np.bincount(owners, minlength=count)
        target[at : at + len(others)] = others
        at += len(others)
    np.save(folder / f"{name}.indptr.npy", np.cumsum(sizes))
    if isinstance(target, np.memmap):
        target.flush()
    else:
        np.save(folder / f"{name}.indices.npy", target)


def _digest(db: duckdb.DuckDBPyConnection) -> str:
    """Hash entities, hyperedges and incidence. A hyperedge's id follows from its text and source."""
    sha = hashlib.sha256()
    for query in (
        _TABLES["entities"],
        "SELECT id FROM hyperedges ORDER BY id",
        "SELECT edge, entity FROM incidence ORDER BY edge, entity",
    ):
        for batch in _batches(db, query):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                sha.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        sha.update(b"\n")
    return sha.hexdigest()


def _batches(db: duckdb.DuckDBPyConnection, query: str) -> Iterator[pa.RecordBatch]:
    with db.cursor() as cursor:
        yield from cursor.sql(query).to_arrow_reader(ROWS)


def _row(db: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    row = db.execute(query).fetchone()
    assert row is not None
    return row


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
