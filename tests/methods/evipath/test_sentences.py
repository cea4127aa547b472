"""Sentences as evidence: those that HotpotQA and 2WikiMultihopQA annotate."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_sdk.data.formats import hotpotqa, twowiki
from platform_sdk.data.formats.base import DatasetFormat, joined_sentences
from platform_sdk.data.formats.hotpotqa import HotpotRecord, hotpot_question
from platform_sdk.errors import UserError
from platform_sdk.methods.evipath.proxy import Proxy, check_unit
from platform_sdk.records import Question
from tests.methods.evipath.scripted_teacher import QUESTION

DATA = Path(os.environ.get("HOPFORGE_DATA", Path(__file__).parents[4] / "shared/data"))
RECORD = HotpotRecord(
    question="Who is older?", answer="Ada", id="q",
    supporting_facts=[("Ada", 1), ("Bo", 0), ("Bo", 7), ("Nobody", 0)],
    context=[
        ("Ada", [" Ada is a painter.", " She was born in 1901."]),
        ("Bo", ["Bo was born in 1910.", " ", "He sings."]),
    ],
)  # fmt: skip


def facts(question: Question) -> tuple[list[str], list[str]]:
    found = Proxy("text", {}, (), 0, 0, "sentence").facts(question)
    return [item.text for item in found.pool], [found.pool[place].text for place in found.gold]


def test_annotated_sentences_are_the_gold_evidence() -> None:
    """A sentence that the passage does not have, and one without words, are no evidence."""
    pool, gold = facts(hotpot_question(RECORD, {}))
    assert pool == ["Ada is a painter.", "She was born in 1901.", "Bo was born in 1910.", "He sings."]
    assert gold == ["She was born in 1901.", "Bo was born in 1910."]


def test_evidence_names_its_place_in_the_passage() -> None:
    question = hotpot_question(RECORD, {})
    texts = {passage.id: passage.text for passage in question.context}
    for item in Proxy("text", {}, (), 0, 0, "sentence").facts(question).pool:
        assert item.source is not None
        assert texts[item.source.passage][item.source.start : item.source.end].strip() == item.text


@given(st.lists(st.text(alphabet="ab .\n\u00a0", max_size=6), min_size=1, max_size=5), st.sampled_from(["", " "]))
def test_offsets_give_back_every_sentence(sentences: list[str], separator: str) -> None:
    text, starts = joined_sentences(sentences, separator)
    assert text == separator.join(sentences).strip()
    pieces = [text[start:end].strip() for start, end in zip(starts, (*starts[1:], len(text)), strict=True)]
    assert pieces == [sentence.strip() for sentence in sentences]


@pytest.mark.parametrize(
    ("medium", "question", "word"), [("kg", hotpot_question(RECORD, {}), "graph"), ("text", QUESTION, "annotated")]
)
def test_sentences_are_refused_where_none_are_annotated(medium: Any, question: Question, word: str) -> None:
    with pytest.raises(UserError, match=f"synthesis.unit sentence: .*{word}"):
        check_unit("sentence", medium, [question])
    check_unit("passage", medium, [question])


@pytest.mark.parametrize(
    ("name", "format"), [("hotpotqa/hotpot_dev.json", hotpotqa.FORMAT), ("2wikimultihopqa/dev.json", twowiki.FORMAT)]
)
def test_real_records_have_their_annotated_sentences(name: str, format: DatasetFormat[Any]) -> None:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the real data sets are not here: {path}")
    records: Sequence[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    for record in records:
        question = format.question(msgspec.convert(record, format.record), {})
        wanted = [
            text.strip()
            for title, sentences in record["context"]
            for number, text in enumerate(sentences)
            if [title, number] in [list(fact) for fact in record["supporting_facts"]]
        ]
        assert wanted
        assert facts(question)[1] == [text for text in wanted if text]
