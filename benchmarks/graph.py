"""Time and memory of merging knowledge hypergraphs of 10^5, 10^6 and 10^7 hyperedges.

The facts are generated from a seed, and look like those of rules over an encyclopedia: four sentences for each
passage; names drawn by a Zipf law, so that a few hubs are in some percent of all hyperedges; titles with brackets that
the text leaves out; names in other spellings; long names with titles inside; facts repeated where chunks overlap.
They go through what ``hopforge graph build`` does after extraction: merge, Parquet, CSR, digests. Each size is merged
by a process of its own, whose resident memory (that of its children included) is read ten times a second; pages of
mapped files count too. The facts are kept, so that a second run only merges.

    python benchmarks/graph.py [--sizes 100000,1000000,10000000] [--memory-gb 2] [--folder DIR] [--json]
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platform_sdk.graph.facts import Extraction
from platform_sdk.graph.graph import write_graph
from platform_sdk.record_files import header

SEED = 7
BLOCK = 100_000
"""Facts of a file."""
SENTENCES = 4
"""Facts of a passage."""
SYLLABLES = [a + b for a in ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v") for b in "aeiou"]
VERBS = ("met", "wrote to", "was born in", "founded", "belongs to", "was designed by", "married", "lies north of")
TYPES = ("person", "place", "work", "organisation")


def word(number: int) -> str:
    """Return the word of a number below 65 ** 2: two syllables."""
    first, second = divmod(number, len(SYLLABLES))
    return (SYLLABLES[first] + SYLLABLES[second]).capitalize()


WORDS = [word(number) for number in range(len(SYLLABLES) ** 2)]


def name(rank: int) -> str:
    """Return the name of an entity; frequent ones have fewer words."""
    words = []
    while True:
        rank, last = divmod(rank, len(WORDS))
        words.append(WORDS[last])
        if rank == 0:
            return " ".join(words)
        rank -= 1


def title(passage: int) -> str:
    """Return the title of a passage: each tenth has a bracket, which the text leaves out."""
    return f"{name(passage)} (film)" if passage % 10 == 3 else name(passage)


def titles(size: int) -> Iterator[tuple[str, str]]:
    return ((title(passage), f"p{passage}") for passage in range(size // SENTENCES))


def write_facts(path: Path, block: int, size: int) -> None:
    """Write one block of the facts of a graph of ``size`` hyperedges; the same, whatever the other blocks are."""
    rng = np.random.default_rng([SEED, block])
    # Log-uniform ranks: a Zipf law of exponent 1.
    ranks = ((1.2 * size) ** rng.random((BLOCK, 3))).astype(np.int64) - 1
    forms = rng.integers(0, 40, (BLOCK, 3))
    counts, verbs, years = (
        rng.integers(1, 4, BLOCK),
        rng.integers(0, len(VERBS), BLOCK),
        rng.integers(1500, 2030, BLOCK),
    )
    with path.open("w") as stream:
        stream.write(header(Extraction) + "\n")
        facts: list[str] = []
        for row in range(BLOCK):
            number = block * BLOCK + row
            passage, sentence = divmod(number, SENTENCES)
            own = title(passage)
            spans = [
                spelled(int(rank), int(form))
                for rank, form in zip(ranks[row, : counts[row]], forms[row, : counts[row]], strict=True)
            ]
            text = f"{own} {VERBS[verbs[row]]} {' and '.join(spans)} in {years[row]}, as its chronicle {sentence} says."
            mentions = [
                mention(own, "passage"),
                mention(str(years[row]), "date", "date"),
                *(mention(span, "span", TYPES[rank % 4] if form == 1 else "") for span, form, rank in
                  zip(spans, forms[row].tolist(), ranks[row].tolist(), strict=False)),
            ]  # fmt: skip
            source = f'{{"passage":"p{passage}","start":{sentence * 100},"end":{sentence * 100 + len(text)}}}'
            facts.append(f'{{"text":"{text}","entities":[{",".join(mentions)}],"source":{source}}}')
            if sentence == SENTENCES - 1:
                stream.write(f'{{"chunk":"{passage:020x}","facts":[{",".join(facts)}],"malformed":[]}}\n')
                if passage % 10 == 0:
                    stream.write(f'{{"chunk":"1{passage:019x}","facts":[{facts[-1]}],"malformed":[]}}\n')
                facts.clear()


def spelled(rank: int, form: int) -> str:
    """Return a name as it occurs in a sentence: usually unchanged, else in upper case or combined with another name."""
    if form == 0:
        return name(rank).upper()
    if form == 2:
        return f"{name(rank)} of {name(rank // 2 + len(WORDS))}"
    return name(rank)


def mention(text: str, rule: str, type_: str = "") -> str:
    description = f"a {type_} of some note" if type_ and rule == "span" else ""
    return f'{{"name":"{text}","type":"{type_}","description":"{description}","alias":"","rule":"{rule}"}}'


def facts_of(folder: Path, size: int, processes: int) -> list[Path]:
    """Return the files with the facts of a graph, and write those that are missing."""
    place = folder / f"facts-{size}"
    place.mkdir(parents=True, exist_ok=True)
    paths = [place / f"{block:05}.jsonl" for block in range(size // BLOCK)]
    todo = [(path.with_suffix(".tmp"), block, size) for block, path in enumerate(paths) if not path.exists()]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.starmap(write_facts, todo, chunksize=1)
    for temporary, _, _ in todo:
        temporary.rename(temporary.with_suffix(".jsonl"))
    return paths


@dataclass
class Figures:
    """Cost of merging one graph; ``stages`` in seconds, in their order."""

    size: int
    entities: int = 0
    mentions: int = 0
    incidences: int = 0
    digest: str = ""
    seconds: float = 0.0
    cpu: float = 0.0
    peak_mb: float = 0.0
    anonymous_mb: float = 0.0
    spilled_mb: float = 0.0
    facts_mb: float = 0.0
    graph_mb: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)


class Stages(logging.Handler):
    """Note when each stage of the merge begins, as its log says."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[str, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.begun.append((record.getMessage(), time.monotonic()))

    def seconds(self) -> dict[str, float]:
        ends = [at for _, at in self.begun[1:]] + [time.monotonic()]
        return {stage: end - at for (stage, at), end in zip(self.begun, ends, strict=True)}


def merge_here(
    paths: list[Path], size: int, memory_gb: float, output: Path, answer: multiprocessing.Queue[Figures]
) -> None:
    """Merge facts as ``hopforge graph build`` does, in this process."""
    stages = Stages()
    merging = logging.getLogger("platform_sdk.graph.merge")
    merging.addHandler(stages)
    merging.setLevel(logging.INFO)
    begun = time.monotonic()
    graph = write_graph(
        output, paths, titles=titles(size), extractor="rules", version=1, inputs=f"{SEED} {size}", memory_gb=memory_gb
    )
    used = resource.getrusage(resource.RUSAGE_SELF)
    answer.put(
        Figures(
            size=graph.manifest.hyperedges,
            entities=graph.manifest.entities,
            mentions=graph.manifest.mentions,
            incidences=len(graph.edge_entities.indices),
            digest=graph.digest,
            seconds=time.monotonic() - begun,
            cpu=used.ru_utime + used.ru_stime,
            stages=stages.seconds(),
        )
    )


def measure(paths: list[Path], size: int, memory_gb: float, output: Path) -> Figures:
    """Merge facts in a separate process, and measure its memory and its temporary files."""
    shutil.rmtree(output, ignore_errors=True)
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    child = context.Process(target=merge_here, args=(paths, size, memory_gb, output, answer))
    child.start()
    watched = psutil.Process(child.pid)
    whole = anonymous = spilled = 0
    while child.is_alive() and answer.empty():
        try:
            tree = [process.memory_info() for process in (watched, *watched.children(recursive=True))]
        except psutil.NoSuchProcess:
            break
        whole = max(whole, sum(info.rss for info in tree))
        anonymous = max(anonymous, sum(info.rss - info.shared for info in tree))
        with suppress(FileNotFoundError):  # the folder is removed at the merge's end
            spilled = max(spilled, _bytes(output.glob(".merge/**/*")))
        time.sleep(0.1)
    child.join()
    if child.exitcode:
        raise SystemExit(f"merging {size} hyperedges failed: exit code {child.exitcode}")
    figures: Figures = answer.get()
    figures.peak_mb, figures.anonymous_mb, figures.spilled_mb = whole / 1e6, anonymous / 1e6, spilled / 1e6
    figures.facts_mb, figures.graph_mb = _bytes(paths) / 1e6, _bytes(output.glob("*")) / 1e6
    return figures


def _bytes(paths: Iterator[Path] | list[Path]) -> int:
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # a temporary file, just deleted
            continue
    return total


def table(rows: list[Figures]) -> str:
    def line(label: str, values: list[str]) -> str:
        return f"| {label} | " + " | ".join(values) + " |"

    lines = [line("hyperedges", [f"{row.size:,}" for row in rows]), line("---", ["---:"] * len(rows))]
    lines += [line(label, [f"{getattr(row, label):,}" for row in rows]) for label in ("entities", "mentions")]
    lines += [line(f"{stage}, s", [f"{row.stages.get(stage, 0.0):.1f}" for row in rows]) for stage in rows[-1].stages]
    lines.append(line("whole, s", [f"{row.seconds:.1f}" for row in rows]))
    lines.append(line("CPU, s", [f"{row.cpu:.1f}" for row in rows]))
    lines.append(line("CPU microseconds per hyperedge", [f"{1e6 * row.cpu / row.size:.1f}" for row in rows]))
    for label in ("peak_mb", "anonymous_mb", "spilled_mb", "facts_mb", "graph_mb"):
        lines.append(line(label, [f"{getattr(row, label):,.0f}" for row in rows]))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100000,1000000,10000000")
    parser.add_argument("--memory-gb", type=float, default=2.0, help="DuckDB's limit")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "hopforge-graph")
    parser.add_argument("--processes", type=int, default=2, help="that write the facts")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    for size in map(int, given.sizes.split(",")):
        paths = facts_of(given.folder, size, given.processes)
        rows.append(measure(paths, size, given.memory_gb, given.folder / f"graph-{size}"))
    print(json.dumps([asdict(row) for row in rows]) if given.json else table(rows))


if __name__ == "__main__":
    main()
