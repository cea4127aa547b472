"""What an environment searches in, and the step that indexes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import DEFAULTS, RetrievalSpec
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.files import read_model, read_object, write_text
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Passage, Question, Triple
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.load import load_encoder
from platform_sdk.retrieval.milvus import CALL_SECONDS, Vectors, Watch, open_vectors
from platform_sdk.retrieval.service.remote import RemoteRetriever
from platform_sdk.retrieval.service.wire import CollectionFacts

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
    """A finished index: its collection, how many rows it has and how many this call added.

    ``collection`` is another where something else would be found; a service's collections are called as it likes, so
    the digests are in their name here.
    """

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
    run_dir: Path, spec: RetrievalSpec, material: Material, encoder: Encoder, *, show_progress: bool = True,
    watch: Watch = lambda done, rows: None, call_seconds: float = CALL_SECONDS,
) -> Vectors:  # fmt: skip
    """The collection of ``material``, built or finished first where needed."""
    return open_vectors(
        spec,
        run_dir / "index",
        material.texts(),
        kind=material.kind,
        digest=material.digest,
        encoder=encoder,
        show_progress=show_progress,
        watch=watch,
        call_seconds=call_seconds,
    )


def connect(run_dir: Path, spec: RetrievalSpec, environment: str) -> RemoteRetriever:
    """The retriever service that the recipe names, which must search what the run prepared, in the run's way.

    That is by the encoder that the recipe describes; where it describes none, by the service's own, and then by the
    same one from the run's index step to its end.

    Raises:
        UserError: it searches something else or by another encoder, lets this team not in, has no such collection, or
            stayed away.
    """
    assert spec.url is not None
    material = load_material(run_dir, environment)
    remote = RemoteRetriever(spec.url, spec.collection, token_env=spec.url_token_env, patience=spec.patience_seconds)
    try:
        _check_served(run_dir, spec, material, remote.facts)
    except UserError:
        remote.close()
        raise
    return remote


def build_index(run_dir: Path, spec: RetrievalSpec, environment: str, *, show_progress: bool = True) -> IndexResult:
    """Index what ``environment`` searches; goes on where a killed build stopped, and is quick when done.

    Where the recipe names a retriever service, that is asked what it has, nothing is built, and the run keeps to it.

    Raises:
        UserError: see ``load_material``, ``load_encoder``, ``open_vectors`` and ``connect``.
        RetrieverFault: Milvus or the embeddings endpoint failed.
    """
    if spec.url is not None:
        with connect(run_dir, spec, environment) as remote:
            facts = remote.facts
        _write_served(run_dir, facts)
        kind = "triples" if FORMS[environment] == "triples" else "passages"
        name = f"{facts.name}_{facts.corpus_digest[:16]}_{facts.encoder.identity[:16]}"
        return IndexResult(name, kind, facts.rows, 0, facts.corpus_digest, facts.encoder.digest)
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
    expected = read_object(path).get(kind)
    if expected is not None and expected != found:
        raise UserError(
            f"{corpus / kind}.jsonl has digest {found[:16]}…, but {expected[:16]}… was prepared: the file was changed; "
            "prepare the data again in a new run directory"
        )


def _check_served(run_dir: Path, spec: RetrievalSpec, material: Material, facts: CollectionFacts) -> None:
    """Compare what the service says of its collection with the run's data, its recipe, and what it began with."""
    where = f"{spec.url}: collection {facts.name}"
    if FORMS.get(facts.environment) != material.form or facts.corpus_digest != material.digest:
        raise UserError(
            f"{where} is {facts.environment} of corpus {facts.corpus_digest[:16]}…, but this run's are {material.form} "
            f"of {material.digest[:16]}…; name another collection, or have the service serve this corpus"
        )
    asked = {field: getattr(spec, field) for field in DEFAULTS}
    served = {
        "encoder": facts.encoder.name,
        "query_prefix": facts.encoder.query_prefix,
        "passage_prefix": facts.encoder.passage_prefix,
    }
    differing = [field for field in DEFAULTS if asked[field] not in (None, served[field])]
    if differing:
        told = "; ".join(f"its {field} is {served[field]!r}, the recipe's {asked[field]!r}" for field in differing)
        raise UserError(
            f"{where} is searched by another encoder: {told}. Leave {', '.join(DEFAULTS)} out of retrieval to search "
            "as the service does, name another collection, or have the service search so"
        )
    path = _served_file(run_dir)
    if path.exists():
        began = read_model(path, CollectionFacts)
        if began.encoder.identity != facts.encoder.identity:
            raise UserError(
                f"{where} is searched by {facts.encoder}, but this run began with {began.encoder} ({path}); "
                "have the service search by that one again, or begin a new run"
            )


def _served_file(run_dir: Path) -> Path:
    return run_dir / "index" / "service.json"


def _write_served(run_dir: Path, facts: CollectionFacts) -> None:
    path = _served_file(run_dir)
    write_text(path, facts.model_dump_json(indent=1) + "\n")
