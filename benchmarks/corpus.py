"""Time and memory of large corpora: preparing one, opening it, and opening it as a list as peer, at several sizes.

Passages are drawn: 100 words by Zipf's law, as long as wiki-18's. Each measurement is a process of its own. The peer
must return equal passages. A line through the sizes gives the figures of 21 million passages, the size of wiki-18.

    python benchmarks/corpus.py [--passages 100000,1000000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.data.dataset import PASSAGES, prepare, read_corpus
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Passage

WIKI_18 = 21_015_324
WORDS, VOCABULARY, READ = 100, 200_000, 1_000
QUESTION = {"question": "who?", "answer": ["nobody"]}


def draw(path: Path, size: int) -> None:
    random = np.random.default_rng(size)
    with path.open("w") as stream:
        for row in range(size):
            text = " ".join(f"w{rank}" for rank in random.zipf(1.2, size=WORDS) % VOCABULARY)
            stream.write(json.dumps({"id": str(row), "contents": f'"Title {row // 6}"\n{text}'}) + "\n")


def prepared(folder: Path) -> object:
    return prepare(DatasetSpec(format="nq", train=("q.jsonl",), corpus=("corpus.jsonl",)), folder, folder / "run")


def opened(folder: Path) -> object:
    return picked(read_corpus(folder / "run").passages)


def listed(folder: Path) -> object:
    return picked(list(read_jsonl(folder / "run" / PASSAGES, Passage)))


def picked(passages: Sequence[Passage]) -> list[Passage]:
    rows = np.random.default_rng(0).integers(0, len(passages), READ)
    return [passages[row] for row in rows.tolist()]


def measured(work: Callable[[Path], object], folder: Path) -> tuple[float, float, object]:
    """Return CPU seconds, the process's highest memory beyond its start in MiB, and the result."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = work(folder)
    spent = time.process_time() - began
    return spent, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, found


def alone(work: Callable[[Path], object], folder: Path) -> tuple[float, float, object]:
    """Return what ``measured`` returns in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, (work, folder))


def line(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the value at wiki-18's size of the line through the last two sizes."""
    (x, z), (y, w) = sizes[-2:], values[-2:]
    return y + (w - y) / (z - x) * (WIKI_18 - x)


def main(sizes: list[int], folder: Path) -> None:
    rows: dict[str, list[tuple[float, float]]] = {}
    for size in sizes:
        place = folder / str(size)
        place.mkdir()
        (place / "q.jsonl").write_text(json.dumps(QUESTION) + "\n")
        draw(place / "corpus.jsonl", size)
        found = {}
        for work in (prepared, opened, listed):
            seconds, memory, found[work.__name__] = alone(work, place)
            rows.setdefault(work.__name__, []).append((seconds, memory))
        assert found["opened"] == found["listed"]
    print("| | " + " | ".join(f"{size:,} passages" for size in (*sizes, WIKI_18)) + " (line) |")
    print("|---|" + "---:|" * (len(sizes) + 1))
    for name, values in rows.items():
        for at, unit in enumerate(("CPU s", "MiB")):
            own = [value[at] for value in values]
            print(f"| {name}, {unit} | " + " | ".join(f"{value:,.1f}" for value in (*own, line(sizes, own))) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", default="100000,1000000", help="sizes, separated by commas; at least two")
    parser.add_argument("--folder", type=Path, help="where to write some 1 GB per million passages")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
        main([int(size) for size in given.passages.split(",")], Path(temporary))
