"""Index of a retrieval method: its material, with each collection of texts encoded in Milvus."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from platform_sdk.config.environment import ENVIRONMENTS, environment_of
from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import DEFAULTS, RetrievalSpec
from platform_sdk.files import read_model, write_text
from platform_sdk.retrieval.encoders import NoEncoder
from platform_sdk.retrieval.load import load_encoder
from platform_sdk.retrieval.method import Index, Material, RetrievalMethod, load_method
from platform_sdk.retrieval.milvus import CALL_SECONDS, Vectors, Watch, open_vectors
from platform_sdk.retrieval.remote import RemoteRetriever
from platform_sdk.retrieval.wire import CollectionFacts
from platform_sdk.run_dir import RunDir


@dataclass(frozen=True)
class IndexResult:
    """A finished index: the number of rows of its collections, and of the rows that this call added.

    ``collection`` identifies the index: the names of its collections joined by ``+``. For a service, whose collection
    names are arbitrary, it includes the digests.
    """

    collection: str
    method: str
    rows: int
    added: int
    corpus_digest: str
    encoder_digest: str


def method_of(environment: str, spec: RetrievalSpec) -> RetrievalMethod[Any, Any]:
    """Return the recipe's retrieval method, else the environment's default.

    Raises:
        UserError: neither exists; see also ``load_method``.
    """
    if spec.method is not None:
        return load_method(spec.method)
    found = environment_of(environment)
    if found is None:
        raise UserError(
            f"environment {environment!r} has nothing to search; the environments are {', '.join(ENVIRONMENTS)}; "
            "choose one, your own module, or a retrieval.method"
        )
    return load_method(found.method)


def load_material(method: RetrievalMethod[Any, Any], run_dir: Path, spec: RetrievalSpec) -> tuple[Material, Any]:
    """Return the method's material and settings.

    Raises:
        UserError: the settings are invalid; see also ``RetrievalMethod.load``.
    """
    try:
        settings = method.settings.model_validate(spec.settings)
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise UserError(f"retrieval.settings of method {method.name}: {told}") from error
    return method.load(run_dir, settings), settings


def open_index(
    method: RetrievalMethod[Any, Any], run_dir: Path, spec: RetrievalSpec, *, show_progress: bool = True,
    watch: Watch = lambda done, rows: None, call_seconds: float = CALL_SECONDS,
) -> Index[Any, Any]:  # fmt: skip
    """Open the index of ``method``; build or complete its collections first if needed.

    Args:
        watch: called with the progress of a collection's build; see ``Watch``.
        call_seconds: timeout of a search call to a Milvus server.

    Raises:
        UserError: a collection has no texts; see also ``load_material``, ``load_encoder`` and ``open_vectors``.
        RetrieverFault: Milvus or the embeddings endpoint failed.
    """
    material, settings = load_material(method, run_dir, spec)
    texts = material.texts()
    if empty := [name for name, rows in texts.items() if not rows]:
        raise UserError(
            f"{run_dir}: retrieval method {method.name} searches {empty[0]}, and there are none; "
            "give dataset.corpus or dataset.triples (hopforge convert makes them), or questions with passages"
        )
    encoder = load_encoder(**spec.encoder_settings()) if texts else NoEncoder()
    vectors: dict[str, Vectors] = {}
    with ExitStack() as opened:
        for name, rows in texts.items():
            vectors[name] = open_vectors(
                spec, RunDir(run_dir).index, rows, collection=name, digest=material.digest, encoder=encoder,
                show_progress=show_progress, watch=watch, call_seconds=call_seconds,
            )  # fmt: skip
            opened.callback(vectors[name].close)
        opened.pop_all()
    return Index(material, settings, encoder, vectors)


def build_index(run_dir: Path, spec: RetrievalSpec, environment: str, *, show_progress: bool = True) -> IndexResult:
    """Build the index of ``environment``. A killed build is resumed, a finished build is not repeated.

    If the recipe names a retriever service, nothing is built: the service's description is recorded for the run.
    """
    if spec.url is not None:
        with connect(run_dir, spec, environment) as remote:
            facts = remote.facts
        write_text(_served_file(run_dir), facts.model_dump_json(indent=1) + "\n")
        name = f"{facts.name}_{facts.corpus_digest[:16]}_{facts.encoder.identity[:16]}"
        return IndexResult(name, facts.method, facts.rows, 0, facts.corpus_digest, facts.encoder.digest)
    method = method_of(environment, spec)
    with closing(open_index(method, run_dir, spec, show_progress=show_progress)) as index:
        name = "+".join(vectors.name for vectors in index.vectors.values())
        added = sum(vectors.encoded for vectors in index.vectors.values())
        return IndexResult(name, method.name, index.rows, added, index.material.digest, index.encoder.digest)


def connect(run_dir: Path, spec: RetrievalSpec, environment: str) -> RemoteRetriever:
    """Connect to the recipe's retriever service, which must have the run's data, method and settings.

    It must use the recipe's encoder. If the recipe describes none, the service's encoder applies, and must stay the
    same from the run's index step to its end.

    Raises:
        UserError: different corpus or encoder, not authorised, unknown collection, or no response before the deadline.
    """
    assert spec.url is not None
    method = method_of(environment, spec)
    material, settings = load_material(method, run_dir, spec)
    remote = RemoteRetriever(spec.url, spec.collection, token_env=spec.url_token_env, patience=spec.patience_seconds)
    try:
        _check_searched(f"{spec.url}: collection {remote.facts.name}", method, material, settings, remote.facts)
        _check_encoder(run_dir, spec, remote.facts)
    except UserError:
        remote.close()
        raise
    return remote


def _check_searched(
    where: str, method: RetrievalMethod[Any, Any], material: Material, settings: Any, facts: CollectionFacts
) -> None:
    """Compare the service's corpus, method and settings with the run's."""
    if (facts.method, facts.corpus_digest) != (method.name, material.digest):
        raise UserError(
            f"{where} is {facts.method} of corpus {facts.corpus_digest[:16]}…, but this run's are {method.name} of "
            f"{material.digest[:16]}…; name another collection, or serve this corpus"
        )
    wanted = settings.model_dump(mode="json")
    if facts.settings != wanted:
        raise UserError(
            f"{where} is searched with the settings {facts.settings}, but retrieval.settings are {wanted}; give those, "
            "name another collection, or change the service's settings"
        )


def _check_encoder(run_dir: Path, spec: RetrievalSpec, facts: CollectionFacts) -> None:
    """Compare the service's encoder with the recipe's, and with the encoder recorded by the index step."""
    where = f"{spec.url}: collection {facts.name}"
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
            "as the service does, name another collection, or change the service's encoder",
            code="retrieval.other-encoder",
        )
    path = _served_file(run_dir)
    if path.exists():
        began = read_model(path, CollectionFacts)
        if began.encoder.identity != facts.encoder.identity:
            raise UserError(
                f"{where} is searched by {facts.encoder}, but this run began with {began.encoder} ({path}); "
                "restore the service's former encoder, or begin a new run"
            )


def _served_file(run_dir: Path) -> Path:
    return RunDir(run_dir).service
