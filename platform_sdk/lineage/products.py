"""Inputs and outputs of a manifest entry as products: digests with a kind, a name and files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from platform_sdk.config.struct import Struct
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.tracking.manifest import Entry

EMPTY = hashlib.sha256().hexdigest()
"""Digest of no content, e.g. of a file without records; it joins nothing."""
KINDS = {
    "train": "training questions", "eval": "evaluation questions", "passages": "passages", "triples": "triples",
    "graph": "graph", "index": "index", "encoder": "encoder", "rollouts": "rollouts", "selected": "selection",
    "weights": "model", "scores": "scores",
}  # fmt: skip
"""Kinds by the name of a digest in an entry."""
READ = {"parent_weights": "model", "policy": "model", "encoder": "encoder", "searched": "corpus"}
"""Kinds of digests in an entry that are inputs unless the step makes them."""
CORPUS = {
    "train": RunDir.train_questions, "eval": RunDir.eval_questions, "passages": RunDir.passages,
    "triples": RunDir.triples,
}  # fmt: skip
"""Files of a corpus by the names of their digests."""
SOURCES = {
    "training file": ("training questions", "passages"),
    "evaluation file": ("evaluation questions", "passages"),
    "passages file": ("passages",),
    "triples file": ("triples",),
    "labels file": ("training questions", "evaluation questions", "passages"),
}
"""Kinds of a dataset's own files, with the kinds that follow from them."""


class Product(Struct):
    """Data or weights that a step read or wrote; ``files`` are the SHA-256 of its files."""

    digest: str
    kind: str
    name: str
    files: tuple[str, ...] = ()

    @property
    def is_external(self) -> bool:
        """True for a dataset's own file, which no step writes."""
        return self.kind in SOURCES

    @property
    def is_absolute(self) -> bool:
        """True if the name is a path outside the run directory."""
        return self.is_external or self.name.startswith("/")

    def follows(self, source: Product, sources: Iterable[Product]) -> bool:
        """Return True if this product of a step depends on one of the step's sources."""
        if self.kind == "passages" and any(one.kind == "passages file" for one in sources):
            return source.kind == "passages file"
        return self.kind in SOURCES.get(source.kind, (self.kind,))


def products_of(step: str, entry: Entry) -> list[Product]:
    """Return the products that a step wrote; for the end of a run, its report."""
    return [product for product in _products(step, entry) if product.digest != EMPTY]


def _products(step: str, entry: Entry) -> Iterator[Product]:
    files = entry.files
    kind, _, phase = step.partition("-")
    if kind == "corpus":
        for name, path in CORPUS.items():
            if name in entry.digests:
                yield Product(digest=entry.digests[name], kind=KINDS[name], name=path, files=_digests(files, path))
    elif kind == "report":
        for path, digest in files.items():
            if path == RunDir.report:
                yield Product(digest=digest, kind="report", name=path, files=(digest,))
    elif kind == "eval":
        path = f"{step}/{PhaseDir.scores}"
        if path in files:
            own = tuple(files.values())
            yield Product(digest=files[path], kind="scores", name=path, files=own)
    elif kind == "graph" and kind in entry.digests:
        yield Product(digest=entry.digests[kind], kind=kind, name=kind, files=tuple(files.values()))
    elif kind == "index" and kind in entry.digests:
        own = (entry.digests[kind], *files.values())
        yield Product(digest=index_digest(entry), kind=kind, name=kind, files=own)
    elif kind == "sample" and "rollouts" in entry.digests:
        name = f"{phase}/{PhaseDir.rollouts}"
        yield Product(digest=entry.digests["rollouts"], kind="rollouts", name=name, files=tuple(files.values()))
    elif kind == "score" and "selected" in entry.digests:
        name = f"{phase}/{PhaseDir.selected}"
        yield Product(digest=entry.digests["selected"], kind="selection", name=name, files=tuple(files.values()))
    elif "weights" in entry.digests:
        yield Product(digest=entry.digests["weights"], kind="model", name=f"{phase}/model", files=tuple(files.values()))
    else:
        for name, digest in entry.digests.items():
            if name.endswith("_weights") and name != "parent_weights":
                yield Product(digest=digest, kind="model", name=_folder(files, step), files=tuple(files.values()))


def index_digest(entry: Entry) -> str:
    """Return the digest of an index and of what it searches; methods without vectors have one digest for any corpus."""
    searched, built = entry.digests.get("searched", ""), entry.digests.get("index", "")
    return hashlib.sha256(f"{searched} {built}".encode()).hexdigest() if built else ""


def sources_of(step: str, entry: Entry, index: Entry | None) -> list[Product]:
    """Return the products that a step read; ``index`` is the entry of the run's step that built the index."""
    made = {product.digest for product in products_of(step, entry)} if not step.startswith("score") else set()
    found = {one.digest: _kind_of(one.name, one.kind) for one in entry.inputs}
    names = {one.digest: one.name for one in entry.inputs}
    for name, kind in READ.items():
        if name in entry.digests:
            found.setdefault(entry.digests[name], kind)
    if not entry.inputs:  # format 1
        for name in ("rollouts", "selected", "scores_start", "scores_final"):
            if name in entry.digests:
                found.setdefault(entry.digests[name], KINDS.get(name, "scores"))
    if index is not None and step != "index":
        searched, built = index.digests.get("searched", ""), index_digest(index)
        if built and found.get(searched) == "corpus":  # read through the index
            del found[searched]
            found.setdefault(built, "index")
    return [
        Product(digest=digest, kind=kind, name=names.get(digest, kind))
        for digest, kind in found.items()
        if digest != EMPTY and digest not in made
    ]


def _kind_of(name: str, kind: str) -> str:
    if kind == "model" or kind in SOURCES:
        return kind
    if name == "index":
        return "corpus"  # the digest is the searched corpus's
    stem = PurePath(name).stem
    return KINDS.get(stem, kind)


def _folder(files: dict[str, str], step: str) -> str:
    """Return the folder of a model's files outside the run directory; the step's name if there is none."""
    return next((str(PurePath(path).parent) for path in files if path.startswith("/")), step)


def _digests(files: dict[str, str], path: str) -> tuple[str, ...]:
    return (files[path],) if path in files else ()
