"""Several queries in one request, and the order by a cross-encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.data.corpus import Corpus
from platform_sdk.records import Evidence
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.methods.multi_query import fused, queries_in
from platform_sdk.sampling.rollout import SearchRequest
from tests.retrieval.test_linked import PASSAGES


def searched(run_dir: Path, queries: list[str], k: int, method: str, **settings: Any) -> list[list[Evidence]]:
    Corpus(PASSAGES).save(run_dir / "corpus/passages.jsonl")
    spec = RetrievalSpec(method=method, settings={"base": "lexical"} | settings)
    with open_retriever("anything", run_dir, spec, show_progress=False) as retriever:
        return retriever.search([SearchRequest(query) for query in queries], k)


def test_queries_are_lines_and_questions() -> None:
    assert queries_in("Who sang? Where?\n  Numb \r\nNumb") == ["Who sang?", "Where?", "Numb"]
    assert queries_in("the U.S. in 1905") == ["the U.S. in 1905"]
    assert queries_in(" \n") == [" \n"]


def test_evidence_in_two_lists_comes_before_the_first_of_one() -> None:
    hits = {id: Evidence(kind="passage", id=id, title=id, text=id, score=1.0) for id in "abcd"}
    found = fused({"one": [hits["b"], hits["a"]], "two": [hits["c"], hits["a"], hits["d"]]}, 3, 20)
    assert [hit.id for hit in found] == ["a", "b", "c"]
    assert found[0].parts == {"one": pytest.approx(1 / 62), "two": pytest.approx(1 / 62)}
    assert found[0].score == pytest.approx(2 / 62)


def test_multi_query_finds_the_passages_of_each_query(tmp_path: Path) -> None:
    [both, one, blank] = searched(tmp_path, ["town\nswims", "town", ""], 2, "multi_query")
    assert {hit.title for hit in both} == {"Östersund", "Boats"}
    assert [hit.title for hit in one] == ["Östersund"]
    assert blank == []


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a small cross-encoder with random weights."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("cross-encoder")
    vocabulary = sorted({word for passage in PASSAGES for word in f"{passage.title} {passage.text}".split()})
    numbers = {word: at for at, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *vocabulary])}
    tokenizer = Tokenizer(WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(numbers), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        num_labels=1, initializer_range=1.0,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_reranked_passages_are_the_bases_in_the_cross_encoders_order(tmp_path: Path, cross_encoder: Path) -> None:
    from sentence_transformers import CrossEncoder

    query = "a song of the sea"
    settings = {"model": str(cross_encoder), "device": "cpu"}
    [all_found] = searched(tmp_path, [query], 5, "reranked", **settings)
    model = CrossEncoder(str(cross_encoder), device="cpu")
    texts = {hit.id: f"{hit.title}\n{hit.text}" for hit in all_found}
    expected = dict(zip(texts, model.predict([(query, text) for text in texts.values()]).tolist(), strict=True))
    assert len(texts) == 4
    assert [hit.id for hit in all_found] == sorted(expected, key=lambda id: -expected[id])
    assert {hit.id: hit.score for hit in all_found} == pytest.approx(expected, abs=1e-3)
    assert searched(tmp_path, [query, "town", "日本"], 2, "reranked", **settings)[::2] == [all_found[:2], []]


def test_model_that_is_no_cross_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"retrieval.settings.model .*missing: cannot be loaded"):
        searched(tmp_path, ["town"], 2, "reranked", model=str(tmp_path / "missing"), device="cpu")
    with pytest.raises(ValueError, match="base"):
        RetrievalSpec(method="reranked", settings={"base": "prograph"})
