"""DuckDB against Polars' streaming engine on the joins and group-bys of the graph's merge.

Both read the same two Parquet files, made of the facts of ``benchmarks/graph.py``: facts, and names as facts mention
them. Both write hyperedges without duplicates; entities, one for each normalised name, called as most hyperedges call
it; and their incidence, all sorted. The tables must be equal. Each run is a process of its own with two threads; the
engines take turns. Polars is not a dependency: install it somewhere (``pip install --target DIR polars``) and name it.

    python benchmarks/graph_engines.py --polars DIR [--size 1000000] [--rounds 3] [--memory-gb 2] [--folder DIR]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import duckdb
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.graph import facts_of
from platform_sdk.graph.statements import MACROS

THREADS = 2
TABLES = ("hyperedges", "entities", "incidence")

EXTRACTED = """
CREATE TABLE extracted AS
SELECT short(concat_ws(chr(31), fact.text, fact.source.passage, fact.source."start")) AS id, fact.text AS text,
       fact.source.passage AS passage, fact.entities AS entities
FROM (SELECT unnest(facts) AS fact FROM read_json($paths, format = 'newline_delimited', columns = {
    chunk: 'VARCHAR', facts: 'STRUCT("text" VARCHAR, entities STRUCT("name" VARCHAR, rule VARCHAR)[],
    source STRUCT(passage VARCHAR, "start" BIGINT, "end" BIGINT))[]'}) WHERE chunk IS NOT NULL)
"""
INPUTS = {
    "facts": "SELECT id, text, passage FROM extracted",
    "mentions": """SELECT id, mention.name AS name, normal(mention.name) AS key
                   FROM (SELECT id, unnest(entities) AS mention FROM extracted)""",
}


def make_inputs(paths: list[Path], folder: Path) -> None:
    """Write the files that both engines read."""
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(config={"memory_limit": "2GB", "temp_directory": str(folder), "threads": THREADS}) as db:
        db.execute("SET enable_progress_bar = false")
        db.execute(MACROS)
        db.execute(EXTRACTED, {"paths": [str(path) for path in paths]})
        for name, query in INPUTS.items():
            db.execute(f"COPY ({query}) TO '{folder}/{name}.parquet' (FORMAT parquet, COMPRESSION zstd)")


def with_duckdb(inputs: Path, output: Path, memory_gb: float) -> None:
    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_gb}GB",
        "temp_directory": str(output),
        "threads": THREADS,
    }
    with duckdb.connect(config=limits) as db:
        db.execute("SET enable_progress_bar = false")
        db.execute("SET preserve_insertion_order = false")
        db.execute(f"""
            CREATE TABLE hyperedges AS SELECT DISTINCT id, text, passage FROM '{inputs}/facts.parquet' ORDER BY id;
            CREATE TABLE names AS
                SELECT DISTINCT name, key FROM '{inputs}/mentions.parquet' ORDER BY name;
            CREATE TABLE keys AS SELECT DISTINCT key FROM names ORDER BY key;
            CREATE TABLE mentions AS
                SELECT DISTINCT keys.rowid AS entity, hyperedges.rowid AS edge, names.rowid AS name
                FROM '{inputs}/mentions.parquet' m JOIN hyperedges USING (id) JOIN names USING (name)
                JOIN keys ON keys.key = names.key;
            CREATE TABLE chosen AS
                SELECT entity, arg_min(name, (-times, name)) AS name, sum(times)::BIGINT AS times
                FROM (SELECT entity, name, count(*) AS times FROM mentions GROUP BY entity, name) GROUP BY entity;
            COPY (FROM hyperedges ORDER BY id) TO '{output}/hyperedges.parquet' (COMPRESSION zstd);
            COPY (SELECT keys.key, names.name, times FROM chosen JOIN keys ON keys.rowid = entity
                  JOIN names ON names.rowid = chosen.name ORDER BY keys.key)
            TO '{output}/entities.parquet' (COMPRESSION zstd);
            COPY (SELECT DISTINCT edge, entity FROM mentions ORDER BY edge, entity)
            TO '{output}/incidence.parquet' (COMPRESSION zstd);
        """)


def with_polars(inputs: Path, output: Path, memory_gb: float) -> None:
    import polars as pl

    def written(frame: pl.LazyFrame, name: str) -> pl.LazyFrame:
        frame.sink_parquet(output / f"{name}.parquet", compression="zstd", engine="streaming")
        return pl.scan_parquet(output / f"{name}.parquet")

    stated, mentioned = (pl.scan_parquet(inputs / f"{name}.parquet") for name in ("facts", "mentions"))
    hyperedges = written(stated.unique(["id", "text", "passage"]).sort("id"), "hyperedges")
    edges = hyperedges.select("id").with_row_index("edge")
    names = written(mentioned.select("name", "key").unique().sort("name").with_row_index("number"), "names")
    keys = written(names.select("key").unique().sort("key").with_row_index("entity"), "keys")
    mentions = written(
        mentioned.select("id", "name")
        .join(edges, on="id")
        .join(names, on="name")
        .join(keys, on="key")
        .select("entity", "edge", "number")
        .unique(),
        "mentions",
    )
    counted = mentions.group_by("entity", "number").agg(pl.len().cast(pl.Int64).alias("times"))
    chosen = counted.group_by("entity").agg(
        pl.col("number").filter(pl.col("times") == pl.col("times").max()).min(), pl.col("times").sum()
    )
    named = chosen.join(keys, on="entity").join(names.select("number", "name"), on="number")
    written(named.select("key", "name", "times").sort("key"), "entities")
    incidence = mentions.select(pl.col("edge", "entity").cast(pl.Int64)).unique().sort("edge", "entity")
    written(incidence, "incidence")


ENGINES = {"DuckDB": with_duckdb, "Polars": with_polars}


@dataclass
class Figures:
    """Cost of one run."""

    seconds: float
    cpu: float
    peak_mb: float


def run(engine: str, inputs: Path, output: Path, memory_gb: float) -> Figures:
    """Run an engine in this process."""
    begun = time.monotonic()
    ENGINES[engine](inputs, output, memory_gb)
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Not ru_maxrss, which begins at what the parent had.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return Figures(time.monotonic() - begun, used.ru_utime + used.ru_stime, int(peak.split()[1]) / 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--polars", type=Path, required=True, help="where Polars is installed")
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-gb", type=float, default=2.0, help="DuckDB's limit; Polars has none")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "hopforge-graph")
    given = parser.parse_args()
    sys.path.append(str(given.polars))  # which spawned processes inherit
    os.environ["POLARS_MAX_THREADS"] = str(THREADS)
    inputs = given.folder / f"engines-{given.size}"
    if not (inputs / "mentions.parquet").exists():
        make_inputs(facts_of(given.folder, given.size, THREADS), inputs)
    figures: dict[str, list[Figures]] = {engine: [] for engine in ENGINES}
    for _ in range(given.rounds):
        for engine in ENGINES:
            output = inputs / engine
            shutil.rmtree(output, ignore_errors=True)
            output.mkdir()
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                figures[engine].append(pool.apply(run, (engine, inputs, output, given.memory_gb)))
    for name in TABLES:
        ours, theirs = (pq.read_table(inputs / engine / f"{name}.parquet") for engine in ENGINES)
        assert ours.num_rows > 0, name
        assert ours.cast(theirs.schema).equals(theirs), f"{name} differs"
    print("| engine | seconds | CPU seconds | peak MB |\n| --- | ---: | ---: | ---: |")
    for engine, rows in figures.items():
        medians = [median(getattr(row, field) for row in rows) for field in ("seconds", "cpu", "peak_mb")]
        print(f"| {engine} | {medians[0]:.1f} | {medians[1]:.1f} | {medians[2]:,.0f} |")
    ratios = [
        median(getattr(theirs, field) / getattr(ours, field) for ours, theirs in zip(*figures.values(), strict=True))
        for field in ("seconds", "cpu", "peak_mb")
    ]
    print(f"Polars / DuckDB: {ratios[0]:.2f} seconds, {ratios[1]:.2f} CPU seconds, {ratios[2]:.2f} peak memory")


if __name__ == "__main__":
    main()
