"""Source texts of a run's graph: its prepared corpus, and added passages or triples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.data.dataset import PASSAGES, TRIPLES, check_prepared
from platform_sdk.files import check_handed_on
from platform_sdk.record_files import digest_file, read_jsonl
from platform_sdk.records import Passage, Triple
from platform_sdk.run_dir import RunDir


def graph_folder(run_dir: Path) -> Path:
    return RunDir(run_dir).graph


class Sources:
    """The passages and triples of a run and of its graph's ``added/``, read as streams."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._added = graph_folder(run_dir) / "added"

    def digests(self) -> list[str]:
        """Return digests of passages and triples, and the names of the added files, which contain digests.

        Raises:
            UserError: a file was altered.
        """
        return [*check_prepared(self._run_dir), *(path.name for path in self.added_files())]

    def passages(self) -> Iterator[Passage]:
        yield from read_jsonl(self._run_dir / PASSAGES, Passage)
        yield from self.added_passages()

    def any(self, extractor: str) -> bool:
        """Return True if there is input for the extractor."""
        records = chain.from_iterable(self.triples()) if extractor == "triples" else self.passages()
        return next(iter(records), None) is not None

    def added_passages(self) -> Iterator[Passage]:
        """Yield the passages of ``added/``.

        Raises:
            UserError: a file was altered.
        """
        for kind in ("llm", "rules"):
            for path in self._files(kind):
                yield from read_jsonl(path, Passage)

    def triples(self) -> Iterator[Iterator[Triple]]:
        """Yield the triples of each file."""
        yield from (read_jsonl(path, Triple) for path in (self._run_dir / TRIPLES, *self._files("triples")))

    def added_files(self) -> list[Path]:
        """Return the files of ``added/``.

        Raises:
            UserError: a file was altered.
        """
        return list(self._files("*"))

    def add(self, extractor: str, added: Corpus | TripleStore) -> None:
        """Write passages or triples into ``added/``."""
        added.save(self._added / f"{extractor}-{added.digest}.jsonl")

    def _files(self, kind: str) -> Iterator[Path]:
        for path in sorted(self._added.glob(f"{kind}-*.jsonl")):
            extractor, _, digest = path.stem.partition("-")
            check_handed_on(path, "content", digest_file(path, Triple if extractor == "triples" else Passage), digest)
            yield path
