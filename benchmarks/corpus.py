"""Time and memory of large corpora at several sizes: preparing, opening, encoding and indexing one.

Passages are drawn: 100 words by Zipf's law, as long as wiki-18's. Each measurement is a process of its own. Opening as
a list is the peer of opening; it must return equal passages. The index is built by ``open_vectors`` in Milvus Lite,
``IVF_SQ8``, from drawn vectors around a thousand centres, and must find a stored vector again. Encoding, of which a
CPU does some 20 passages a second, is measured at a hundredth of each size, with the default encoder and the words of
these docs. A line through the sizes gives the figures of 21 million passages, the size of wiki-18.

    python benchmarks/corpus.py [--passages 100000,1000000] [--folder DIR] [--only NAME,…]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.retrieval import IndexSpec, RetrievalSpec
from platform_sdk.data.dataset import PASSAGES, prepare, read_corpus
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Passage
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.encoding import CHUNK
from platform_sdk.retrieval.load import load_encoder
from platform_sdk.retrieval.milvus import open_vectors

WIKI_18 = 21_015_324
WORDS, VOCABULARY, READ = 100, 200_000, 1_000
SAMPLED = 100  # of that many passages one is encoded
DOCS = Path(__file__).parents[1] / "docs"
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


class Drawn(Encoder):
    """An encoder whose vectors are drawn, around one of a thousand centres, by the number that a text is."""

    digest, dimension = "0" * 64, 384

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        centres = np.random.default_rng(0).standard_normal((1_000, self.dimension), dtype=np.float32)
        noise = (np.random.default_rng(int(text)).standard_normal(self.dimension, dtype=np.float32) for text in texts)
        rows = np.stack([centres[int(text) % len(centres)] + own for text, own in zip(texts, noise, strict=True)])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def indexed(folder: Path) -> object:
    size = int(folder.name)
    spec = RetrievalSpec(index=IndexSpec(type="IVF_SQ8", params={"nlist": 1024}, search={"nprobe": 32}))
    texts, encoder = [str(row) for row in range(size)], Drawn("drawn", "", "")
    vectors = open_vectors(
        spec, folder, texts, collection="drawn", digest="0" * 64, encoder=encoder, show_progress=False
    )
    wanted = np.random.default_rng(1).integers(0, size, 64).tolist()
    found = vectors.nearest(encoder.encode([str(row) for row in wanted], kind="query"), 5)
    vectors.close()
    assert [hits[0][0] for hits in found] == wanted
    return None


def encoded(folder: Path) -> object:
    spec = RetrievalSpec(threads=1)
    encoder = load_encoder(**spec.encoder_settings())
    words = [word for page in sorted(DOCS.glob("*.md")) for word in re.findall("[A-Za-z]{2,}", page.read_text())]
    random = np.random.default_rng(0)
    sampled = int(folder.name) // SAMPLED
    for start in range(0, sampled, CHUNK):
        count = min(CHUNK, sampled - start)
        texts = [" ".join(words[at] for at in random.integers(0, len(words), WORDS)) for _ in range(count)]
        encoder.encode(texts, kind="passage")
    return None


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


def main(sizes: list[int], folder: Path, wanted: Sequence[str]) -> None:
    rows: dict[str, list[tuple[float, float]]] = {}
    for size in sizes:
        place = folder / str(size)
        place.mkdir()
        (place / "q.jsonl").write_text(json.dumps(QUESTION) + "\n")
        draw(place / "corpus.jsonl", size)
        found = {}
        for name in wanted:
            seconds, memory, found[name] = alone(WORKS[name], place)
            rows.setdefault(name, []).append((seconds, memory))
            print(f"{name}, {size:,}: {seconds:,.1f} CPU s, {memory:,.1f} MiB", file=sys.stderr)
        if {"opened", "listed"} <= found.keys():
            assert found["opened"] == found["listed"]
    print("| | " + " | ".join(f"{size:,} passages" for size in (*sizes, WIKI_18)) + " (line) |")
    print("|---|" + "---:|" * (len(sizes) + 1))
    for name, values in rows.items():
        title = f"{name} (1 of {SAMPLED})" if name == encoded.__name__ else name
        for at, unit in enumerate(("CPU s", "MiB")):
            own = [value[at] for value in values]
            print(f"| {title}, {unit} | " + " | ".join(f"{value:,.1f}" for value in (*own, line(sizes, own))) + " |")


WORKS: dict[str, Callable[[Path], object]] = {
    work.__name__: work for work in (prepared, opened, listed, indexed, encoded)
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", default="100000,1000000", help="sizes, separated by commas; at least two")
    parser.add_argument("--folder", type=Path, help="where to write some 1 GB per million passages")
    parser.add_argument("--only", default=",".join(WORKS), help="what to measure, separated by commas")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
        main([int(size) for size in given.passages.split(",")], Path(temporary), given.only.split(","))
