"""What an environment searches in, and the step that indexes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.records import Passage, Question, Triple, read_jsonl
from platform_sdk.retrieval.encoders import Encoder, load_encoder
from platform_sdk.retrieval.milvus import Vectors, open_vectors
from platform_sdk.retrieval.service.remote import RemoteRetriever

Form = Literal["passages", "triples", "contexts"]

# What Search looks in: a corpus, the triples of an entity, or the question's own passages.
FORMS: dict[str, Form] = {
    "2wiki-text": "passages",
    "hotpot": "passages",
    "musique": "passages",
    "nq": "passages",
    "world-text": "passages",
    "2wiki-kg": "triples",
    "qald-kg": "triples",
    "world-kg": "triples",
    "hotpot-kimi": "contexts",
}


@dataclass(frozen=True)
class Material:
    """What is searched, row by row, and its digest. ``questions`` where each has its own rows."""

    form: Form
    digest: str
    rows: Sequence[Passage] | Sequence[Triple]
    questions: tuple[Question, ...] = ()

    @property
    def kind(self) -> Literal["passages", "triples"]:
        """The kind of record, which is part of the collection's name."""
        return "triples" if self.form == "triples" else "passages"

    def texts(self) -> list[str]:
        """The text that is encoded for each row: title and text of a passage, a triple in words."""
        return [f"{row.title}\n{row.text}" if isinstance(row, Passage) else row.text for row in self.rows]


@dataclass(frozen=True)
class IndexResult:
    """A finished index: its collection, how many rows it has and how many this call added."""

    collection: str
    kind: str
    rows: int
    added: int
    corpus_digest: str
    encoder_digest: str


def load_material(run_dir: Path, environment: str) -> Material:
    """Read from the run directory what ``environment`` searches in.

    Raises:
        UserError: the environment searches nothing, the data has none of what it needs, or the files
            are not the ones that were prepared.
    """
    if environment not in FORMS:
        raise UserError(f"environment {environment!r} has nothing to search; known are {', '.join(FORMS)}")
    form, corpus = FORMS[environment], run_dir / "corpus"
    if form == "contexts":
        passages = Corpus.load(corpus / "passages.jsonl")
        files = [path for path in (corpus / "questions.train.jsonl", corpus / "questions.eval.jsonl") if path.exists()]
        questions = tuple(question for path in files for question in read_jsonl(path, Question) if question.context)
        material = Material(form, passages.digest, passages.passages, questions)
        _check_digest(corpus, "passages", passages.digest)
    elif form == "triples":
        store = TripleStore.load(corpus / "triples.jsonl")
        material = Material(form, store.digest, store.triples)
        _check_digest(corpus, "triples", store.digest)
    else:
        passages = Corpus.load(corpus / "passages.jsonl")
        material = Material(form, passages.digest, passages.passages)
        _check_digest(corpus, "passages", passages.digest)
    if not material.rows:
        raise UserError(f"{corpus}: environment {environment} searches {form}, and there are none")
    return material


def open_index(
    run_dir: Path, spec: RetrievalSpec, material: Material, encoder: Encoder, *, show_progress: bool = True
) -> Vectors:
    """The collection of ``material``, built or finished first where needed."""
    return open_vectors(
        spec,
        run_dir / "index",
        material.texts(),
        kind=material.kind,
        digest=material.digest,
        encoder=encoder,
        show_progress=show_progress,
    )


def connect(run_dir: Path, spec: RetrievalSpec, environment: str) -> RemoteRetriever:
    """The retriever service that the recipe names, which must search what the run prepared, in the run's way.

    Raises:
        UserError: it searches something else, lets this team not in, has no such collection, or stayed away.
    """
    assert spec.url is not None
    material = load_material(run_dir, environment)
    remote = RemoteRetriever(spec.url, spec.collection, token_env=spec.url_token_env, patience=spec.patience_seconds)
    facts = remote.facts
    if FORMS.get(facts.environment) != material.form or facts.corpus_digest != material.digest:
        remote.close()
        raise UserError(
            f"{spec.url}: collection {facts.name} is {facts.environment} of corpus "
            f"{facts.corpus_digest[:16]}…, but this run's are {material.form} of {material.digest[:16]}…; "
            "name another collection, or have the service serve this corpus"
        )
    return remote


def build_index(run_dir: Path, spec: RetrievalSpec, environment: str, *, show_progress: bool = True) -> IndexResult:
    """Index what ``environment`` searches; goes on where a killed build stopped, and is quick when done.

    Where the recipe names a retriever service, that is asked what it has, and nothing is built.

    Raises:
        UserError: see ``load_material``, ``load_encoder`` and ``open_vectors``.
        RetrieverFault: Milvus or the embeddings endpoint failed.
    """
    if spec.url is not None:
        with connect(run_dir, spec, environment) as remote:
            facts = remote.facts
            kind = "triples" if FORMS[environment] == "triples" else "passages"
            return IndexResult(facts.name, kind, facts.rows, 0, facts.corpus_digest, facts.encoder_digest)
    material = load_material(run_dir, environment)
    encoder = load_encoder(**spec.encoder_settings())
    vectors = open_index(run_dir, spec, material, encoder, show_progress=show_progress)
    try:
        return IndexResult(vectors.name, material.kind, vectors.rows, vectors.encoded, material.digest, encoder.digest)
    finally:
        vectors.close()


def _check_digest(corpus: Path, kind: str, found: str) -> None:
    """Compare with the digest that the preparation of the data wrote down."""
    path = corpus / "digests.json"
    if not path.exists():
        return
    expected = json.loads(path.read_text(encoding="utf-8")).get(kind)
    if expected is not None and expected != found:
        raise UserError(
            f"{corpus / kind}.jsonl has digest {found[:16]}…, but {expected[:16]}… was prepared: the file was changed; "
            "prepare the data again in a new run directory"
        )
