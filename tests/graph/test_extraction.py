"""Chunks, and facts of a language model."""

from __future__ import annotations

import math
import time
from itertools import pairwise

import pytest

from platform_sdk.errors import UserError
from platform_sdk.graph.chunks import TOKEN, chunks, sentences
from platform_sdk.graph.facts import Mention
from platform_sdk.graph.llm import extract, parse
from platform_sdk.graph.rules import mentions
from platform_sdk.records import Passage
from tests.graph.scripted_model import ANSWER, scripted

PASSAGE = Passage(id="p", title="Oslo", text="Oslo lies in Norway. It has J. Hansen as its mayor! Is it cold? Yes.")


def texts(passage: Passage, size: int, overlap: int) -> list[str]:
    return [chunk.text for chunk in chunks(passage, size, overlap)]


def test_sentences_end_neither_at_initials_nor_at_abbreviations() -> None:
    spans = [PASSAGE.text[start:end] for start, end in sentences(PASSAGE.text)]
    assert spans == ["Oslo lies in Norway.", "It has J. Hansen as its mayor!", "Is it cold?", "Yes."]
    assert len(sentences('He met Mr. Smith of the U.S. Army in Jan. 1990. "No." he said.')) == 2


def test_chunks_overlap_by_whole_sentences_within_both_limits() -> None:
    assert texts(PASSAGE, 1200, 100) == [PASSAGE.text]
    # The sentences have 5, 9, 4 and 2 tokens.
    assert texts(PASSAGE, 14, 4) == ["Oslo lies in Norway. It has J. Hansen as its mayor!", "Is it cold? Yes."]
    assert texts(PASSAGE, 14, 9) == [
        "Oslo lies in Norway. It has J. Hansen as its mayor!",
        "It has J. Hansen as its mayor! Is it cold?",
        "Is it cold? Yes.",
    ]
    assert texts(PASSAGE, 4, 0)[:3] == ["Oslo lies in Norway", ".", "It has J."]
    for size in range(1, 25):
        for overlap in range(size):
            found = list(chunks(PASSAGE, size, overlap))
            assert all(len(TOKEN.findall(chunk.text)) <= size for chunk in found)
            ends = [chunk.span[1] for chunk in found]
            assert ends == sorted(set(ends))
            covered = {i for chunk in found for start, end in chunk.sentences for i in range(start, end)}
            assert {i for i, letter in enumerate(PASSAGE.text) if letter != " "} <= covered
            shared = [TOKEN.findall(PASSAGE.text[b.span[0] : a.span[1]]) for a, b in pairwise(found)]
            assert all(len(tokens) <= overlap for tokens in shared)


def test_mentions_of_a_sentence_with_their_rules() -> None:
    sentence = "In March 1990 President of France Jean Dupont met 1,200 people and The Beatles at Oslo's."
    assert {(m.name, m.rule) for m in mentions(sentence, "Visit")} == {
        ("Visit", "passage"),
        ("March 1990", "date"),
        ("1,200", "number"),
        ("President of France Jean Dupont", "span"),
        ("Beatles", "span"),
        ("The Beatles", "phrase"),
        ("Oslo", "span"),
        ("The Beatles at Oslo's", "phrase"),
    }


@pytest.mark.parametrize(
    ("sentence", "spans"),
    [
        ("Was Oslo founded by Harald?", {"Oslo", "Harald"}),
        ("Is it cold in Norway?", {"Norway"}),
        ("The Beatles met The Who.", {"Beatles"}),
        ("Upon Oslo fell Stratford Upon Avon.", {"Oslo", "Stratford Upon Avon"}),
        ("Throughout, she sang What Is and Why Did Anna Leave.", {"Did Anna Leave"}),
        ('"Will he?" asked Will Smith.', {"Will Smith"}),
        ("Will Smith saw Up.", {"Will Smith", "Up"}),
        ("Up there lives Down.", {"Down"}),
        ("Originally Wasi, he was born in Bergen.", {"Wasi", "Bergen"}),
        ("Born in Bergen, he left.", {"Bergen"}),
    ],
)
def test_function_word_at_the_start_of_a_sentence_is_no_name(sentence: str, spans: set[str]) -> None:
    assert {mention.name for mention in mentions(sentence, "") if mention.rule == "span"} == spans


def test_long_word_and_long_row_of_dots_take_linear_time() -> None:
    began = time.process_time()
    sequence = "ACGT" * 10_000
    assert [mention.name for mention in mentions(f"{sequence} is long.", "")] == [sequence]
    assert sentences(f"Contents {'.' * 40_000}5. Next one.") == [(0, 40_011), (40_012, 40_021)]
    assert time.process_time() - began < 20  # with quadratic time ten minutes


@pytest.mark.parametrize("unit", ["A.", "aA", "A1", "A-", "A.B-", "Is A "])
def test_mentions_of_a_long_repetitive_sentence_take_linear_time(unit: str) -> None:
    def seconds(length: int) -> float:
        sentence = unit * (length // len(unit))
        best = math.inf
        for _ in range(3):
            began = time.process_time()
            list(mentions(sentence, ""))
            best = min(best, time.process_time() - began)
        return best

    assert seconds(40_000) < 30 * seconds(5_000)  # linear: 8 times; quadratic: 64 times


def test_phrase_begins_at_a_later_capital_letter_of_a_word_only_after_the_words_last_dot() -> None:
    def phrases(sentence: str) -> set[str]:
        return {mention.name for mention in mentions(sentence, "") if mention.rule == "phrase"}

    assert phrases("F.C.Barcelona's Lionel, he said") == {"Barcelona's Lionel"}
    assert phrases("A.B.C met d e f g. H.I and J") == {"H.I and J"}


def test_answer_is_parsed_and_malformed_lines_are_kept() -> None:
    [chunk] = chunks(PASSAGE, 1200, 100)
    facts, malformed = parse(chunk, "entity<|>Oslo<|>city<|>before any fact\n" + ANSWER)
    assert [(fact.text, fact.source.start, fact.source.end) for fact in facts] == [
        ("Oslo lies in Norway.", 0, 20),
        ("It is cold.", 0, len(PASSAGE.text)),
    ]
    assert facts[0].entities == (
        Mention(name="Oslo", type="city", description="A city.", rule="llm"),
        Mention(name="Norway", type="country", rule="llm"),
    )
    assert malformed == ("entity<|>Oslo<|>city<|>before any fact", "nonsense", "entity<|>Oslo<|>city")


@pytest.mark.parametrize(("passes", "facts", "asked"), [(0, 2, 1), (1, 3, 2), (2, 3, 3), (9, 3, 3)])
def test_model_is_asked_again_until_it_misses_nothing(passes: int, facts: int, asked: int) -> None:
    prompts: list[str] = []
    [chunk] = chunks(PASSAGE, 1200, 100)
    [extraction] = extract(scripted(prompts), [chunk], passes, 1000)
    assert len(extraction.facts) == facts
    assert len(prompts) == asked
    assert extraction.malformed == ("nonsense", "entity<|>Oslo<|>city")
    assert PASSAGE.text in prompts[0]
    assert "fact<|>It is cold." in prompts[-1] or asked == 1


@pytest.mark.parametrize(
    ("cut", "entities", "malformed"),
    [
        ("Norway<|>country<|>", ["Oslo"], ("entity<|>Norway<|>country<|>",)),
        ("Norway<|>country<|>\n", ["Oslo", "Norway"], ()),
    ],
)
def test_torn_last_line_of_an_answer_that_was_cut_is_malformed(
    cut: str, entities: list[str], malformed: tuple[str, ...]
) -> None:
    [chunk] = chunks(PASSAGE, 1200, 100)
    length = len(ANSWER[: ANSWER.index(cut) + len(cut)].encode())
    [extraction] = extract(scripted([]), [chunk], 0, length)
    [fact] = extraction.facts
    assert [mention.name for mention in fact.entities] == entities
    assert extraction.malformed == malformed


def test_chunk_longer_than_the_context_is_refused() -> None:
    [chunk] = chunks(PASSAGE, 1200, 100)
    with pytest.raises(UserError, match=r"passage p: .* lower graph\.chunk_tokens"):
        list(extract(scripted([], 200), [chunk], 0, 100))
