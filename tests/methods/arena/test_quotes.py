"""Explanations by rule: sentences of the gold passages, in the order of the reasoning."""

from __future__ import annotations

import re

import pytest

from platform_sdk.config.world import WorldSpec
from platform_sdk.data.world import generate
from platform_sdk.methods.arena.quotes import quoted
from platform_sdk.records import Hop, Passage, Question, Triple

PASSAGES = (
    Passage(id="0", title="Lena", text="Lena was born in Oslo. She paints."),
    Passage(id="1", title="Oslo", text="Oslo is a city. It lies in Norway."),
    Passage(id="2", title="Dawn", text="Dawn is a film. Its director is Lena."),
)
ASKED = Question(id="q", text="Where?", answers=("Norway",), dataset="x", context=PASSAGES)


def asked(**fields: object) -> Question:
    return ASKED.model_copy(update=fields)


def test_annotated_sentences_are_quoted_and_the_answers_passage_comes_last() -> None:
    question = asked(
        gold_passages=("Dawn", "Oslo"),
        supporting_facts=(("Oslo", 1), ("Dawn", 1), ("Dawn", 0)),
        context_sentences=((0, 23), (0, 16), (0, 16)),
    )
    assert quoted(question) == "Dawn is a film. [3] Its director is Lena. [3] It lies in Norway. [2]"


def test_hops_decide_order_and_sentence() -> None:
    hops = (
        Hop(question="Who?", answer="Lena", passage="2"),
        Hop(question="Born?", answer="Oslo", passage="0"),
        Hop(question="Where?", answer="Norway", passage="1"),
    )
    question = asked(gold_context=("0", "1", "2"), decomposition=hops)
    assert quoted(question) == "Its director is Lena. [3] Lena was born in Oslo. [1] It lies in Norway. [2]"


def test_triples_decide_order_and_sentence() -> None:
    triples = (Triple(head="Dawn", relation="director", tail="Lena"), Triple(head="Lena", relation="born", tail="oslo"))
    question = asked(gold_passages=("Lena", "Dawn"), gold_triples=triples)
    assert quoted(question) == "Its director is Lena. [3] Lena was born in Oslo. [1]"


def test_gold_passages_decide_the_order_if_a_title_is_not_a_triples_head() -> None:
    triples = (
        Triple(head="Dawn", relation="director", tail="Lena R"),
        Triple(head="Lena R", relation="born", tail="Oslo"),
    )
    question = asked(gold_passages=("Dawn", "Lena"), gold_triples=triples, answers=("Oslo",))
    assert quoted(question) == "Dawn is a film. [3] Lena was born in Oslo. [1]"


def test_a_name_with_full_stops_and_an_alias_of_the_answer_are_found_as_whole_words() -> None:
    passage = Passage(id="0", title="T", text="A president smokes. Harry S. Truman and J. Polk led the U.S. Senate.")
    hops = (Hop(question="Who?", answer="President James K. Polk", passage="0"),)
    question = asked(answers=("President James K. Polk", "J. Polk"), context=(passage,), gold_context=("0",))
    expected = "Harry S. Truman and J. Polk led the U.S. Senate. [1]"
    assert quoted(question.model_copy(update={"decomposition": hops})) == expected
    assert quoted(question.model_copy(update={"answers": ("S. Truman",)})) == expected
    assert quoted(question.model_copy(update={"answers": ("president s",)})) == "A president smokes. [1]"  # not in it


@pytest.mark.parametrize(("gold", "found"), [((), None), (("Lena",), "Lena was born in Oslo. [1]")])
def test_without_annotation_the_first_sentence_stands_for_a_passage(gold: tuple[str, ...], found: str | None) -> None:
    assert quoted(asked(gold_passages=gold)) == found


def test_on_a_world_every_quote_states_the_fact_that_the_question_needs() -> None:
    spec = WorldSpec.model_validate({"seed": 3, "entities": 60, "train_questions": 40, "hops": [1, 2], "context": 4})
    for question in generate(spec).train:
        text = quoted(question)
        assert text is not None
        quotes = re.findall(r"(.*?\.) \[(\d)\] ?", text)
        assert len(quotes) == len(question.gold_triples)
        for (sentence, number), triple in zip(quotes, question.gold_triples, strict=True):
            assert question.context[int(number) - 1].title == triple.head
            assert triple.tail in sentence
