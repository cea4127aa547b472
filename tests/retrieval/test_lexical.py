"""BM25 against bm25s, and the names of passages."""

from __future__ import annotations

import unicodedata

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.records import Passage
from platform_sdk.retrieval.lexical import K1, B, Lexical, words
from platform_sdk.retrieval.names import Cases, Names, capitalised, title_forms

WORDS = st.lists(st.sampled_from(["oslo", "lima", "river", "film", "the", "1905"]), min_size=1, max_size=9)


@settings(max_examples=40, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=12), st.sets(st.sampled_from(["oslo", "film", "the", "1905"]), min_size=1))
def test_scores_equal_bm25s(texts: list[list[str]], query: set[str]) -> None:
    peer = bm25s.BM25(k1=K1, b=B, method="lucene")
    peer.index(texts, show_progress=False)
    known = sorted(word for word in query if any(word in text for text in texts))
    expected = peer.get_scores(known) * (K1 + 1) if known else np.zeros(len(texts))
    found = Lexical.build([" ".join(text) for text in texts]).scores([" ".join(sorted(query))])
    assert found.toarray()[0] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_common_words_are_left_out_of_a_large_corpus() -> None:
    texts = ["the river"] * 101 + ["a film"] * 900
    assert Lexical.build(texts).scores(["the"]).nnz == 0
    assert Lexical.build(texts[1:]).scores(["the"]).nnz == 100


def test_queries_without_known_words_have_no_scores() -> None:
    lexical = Lexical.build(["Oslo is in Norway."])
    assert lexical.scores(["", "?!", "Lima", "oslo OSLO"]).toarray()[:, 0].tolist() == pytest.approx(
        [0, 0, 0, lexical.rarity[lexical.numbers["oslo"]] * 2.2 / 2.2]
    )


def test_words_are_equal_for_equivalent_characters() -> None:
    assert words("Ｏｓｌｏ, STRASSE; Ça") == words("oslo straße ça") == ["oslo", "strasse", "ça"]


def test_names_are_runs_of_capitalised_words() -> None:
    text = "The film Numb was made by Émile de la Tour's brother in New York. Films of 1905 and Öst-Berlin’s."
    common = Cases.of([text, "the films that films make"]).common
    assert capitalised(text, common) == ["Numb", "Émile de la Tour", "New York", "Öst-Berlin"]
    assert title_forms("Numb (Rihanna song)") == ("Numb (Rihanna song)", "Numb")
    assert title_forms("(1905)") == ("(1905)",)
    assert title_forms("?") == ()


def test_names_join_passages_by_titles_and_shared_names() -> None:
    texts = {
        "Numb (song)": "It was sung by Ada Kahn.",
        "Ada Kahn": "She met Bela Lund.",
        "Lima": "Bela Lund lives here.",
    }
    passages = [Passage(id=title, title=title, text=text) for title, text in texts.items()]
    names = Names.build(passages, 60)
    assert names.labels == ["Ada Kahn", "Bela Lund"]
    # A title mentioned elsewhere, the passage's own, and a shared name; each in two passages.
    root = 2**0.5
    assert names.leaving.toarray() == pytest.approx(np.array([[1, 0], [0.5, 0.2], [0, 0.2]]) / root)
    assert names.arriving.toarray().tolist() == [[0.1, 0], [1.0, 0.1], [0, 0.1]]


def test_names_within_titles_and_given_names_join_passages() -> None:
    texts = {"History of Lima": "in short.", "Trams": "all run in Lima.", "Cars": "all run too."}
    passages = [Passage(id=title, title=title, text=text) for title, text in texts.items()]
    names = Names.build(passages, 60, {"Cars": ["lima", "Trams"]})
    assert names.labels == ["Lima", "Trams"]
    assert names.arriving.toarray().tolist() == [[0.5, 0], [0.1, 1.0], [0.1, 0.1]]


def test_given_names_without_words_join_no_passages() -> None:
    passages = [Passage(id=id, title=id, text="all run.") for id in ("Trams", "Cars")]
    names = Names.build(passages, 60, {"Trams": ["!!!", "-"], "Cars": ["?"]})
    assert names.labels == []


NAMED = [
    "Who sang Numb?", "Numb is a song from where?", "WHO SANG NUMB?", "Where does Ada Kahn live?", "What is in 日本 ?",
    "what did O'Neil paint?", "Is Rough Bay deep?", "where is rough bay", "Where is rough bay?", "where did ada live",
    "what did o'neil paint when I was ill",
]  # fmt: skip
"""A title, first, in capitals or of several capitalised words; a word that passages capitalise; a title in a script
without capitals."""
NAMELESS = [
    "who sang numb", "Who sang?", "a", "", "1905", "What can I do if I forgot it?", "I'm late, what now?",
    "Hello Support Team, how can I see the film?", "The film of the year?", "it was a story", "Where did ada see Oslo?",
]  # fmt: skip
"""Only common words, words that only begin sentences, a number, *I*, words that no passage has, a common word first,
or a name in lower case where other words have capitals."""


@pytest.mark.parametrize(("text", "named"), [*((text, True) for text in NAMED), *((text, False) for text in NAMELESS)])
def test_text_names_something_of_the_corpus_or_not(text: str, named: bool) -> None:
    texts = {
        "Numb (song)": "It was sung by Ada Kahn.", "日本": "a land of film", "1905": "a year", "The": "a film",
        "Rough Bay": "the bay where O'Neil painted; a team supports it", "Story": "it can be rough, hello",
    }  # fmt: skip
    names = Names.build([Passage(id=title, title=title, text=text) for title, text in texts.items()], 60)
    assert names.named_in(text) is named


def test_words_keep_their_combining_marks() -> None:
    assert words("मीना और मोना") == ["मीना", "और", "मोना"]
    assert words("பெண், ไทย שָׁלוֹם") == ["பெண்", "ไทย", unicodedata.normalize("NFKC", "שָׁלוֹם")]


def test_missing_words_count_by_the_share_of_best_texts_without_them() -> None:
    lexical = Lexical.build(["oslo film", "oslo river", "lima river"])
    scores = lexical.scores(["oslo", "river"]).toarray()
    found = lexical.missing("oslo river unknown", np.array([0, 1, 2]), np.array([0, 1]))
    assert found == pytest.approx(0 * scores[0] + 0.5 * scores[1])
