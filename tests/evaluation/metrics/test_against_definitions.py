"""Every metric against the straightforward reading, on made-up files of all shapes and on the real gold files."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.evaluation.metrics import Dataset, score_files

ANSWERS = st.sampled_from(
    ["yes", "no", "No.", "noanswer", "", "the", "cat", "the cat", "cat cat dog", "a–b", "Zoë’s", "1,000", "cat, dog"]
) | st.text(max_size=6)
FACTS = st.lists(st.tuples(st.sampled_from(["T", "t", "U", "ß"]), st.integers(0, 2)), max_size=5)
TRIPLE = st.tuples(*[st.sampled_from(["A", "a.", "b", "the b", ""])] * 3)
TRIPLES = st.lists(TRIPLE, max_size=4)
ENTITIES = ["Q1", "Q2", "Q3"]
ENTITY = st.sampled_from(ENTITIES)
IDS = ["q0", "q1", "q2"]


def parts(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Predictions for some of the questions, and for one that there is not."""
    return st.dictionaries(st.sampled_from([*IDS, "extra"]), strategy, max_size=4)


def assert_equal(plain: ModuleType, dataset: Dataset, gold: str, predictions: str, names: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gold_path, predictions_path = Path(folder, "gold"), Path(folder, "predictions")
        gold_path.write_text(gold, encoding="utf-8")
        predictions_path.write_text(predictions, encoding="utf-8")
        files = [gold_path, predictions_path]
        if names is not None:
            files.append(Path(folder, "names"))
            files[-1].write_text(names, encoding="utf-8")
        scores = score_files(dataset, *files)
        expected = plain.PLAIN[dataset](*files)
    for name, column in scores.columns.items():
        assert column == pytest.approx([row[name] for row in expected], abs=1e-12), name
        assert scores.means()[name] == pytest.approx(sum(row[name] for row in expected) / len(expected), abs=1e-12)
    assert expected[0].keys() == scores.columns.keys()


@given(golds=st.lists(st.tuples(ANSWERS, FACTS), min_size=1, max_size=3), answer=parts(ANSWERS), sp=parts(FACTS))
@settings(max_examples=200, deadline=None)
def test_hotpotqa(plain: ModuleType, golds: list[Any], answer: dict[str, Any], sp: dict[str, Any]) -> None:
    questions = [{"_id": i, "answer": a, "supporting_facts": f} for i, (a, f) in zip(IDS, golds, strict=False)]
    assert_equal(plain, "hotpotqa", json.dumps(questions), json.dumps({"answer": answer, "sp": sp}))


@given(
    golds=st.lists(st.tuples(ANSWERS, FACTS, TRIPLES), min_size=1, max_size=3),
    answer=parts(ANSWERS),
    sp=parts(FACTS),
    evidence=parts(TRIPLES),
)
@settings(max_examples=200, deadline=None)
def test_twowiki(
    plain: ModuleType, golds: list[Any], answer: dict[str, Any], sp: dict[str, Any], evidence: dict[str, Any]
) -> None:
    questions = [
        {"_id": i, "answer": a, "supporting_facts": f, "evidences": t, "evidences_id": [], "answer_id": None}
        for i, (a, f, t) in zip(IDS, golds, strict=False)
    ]
    predictions = {"answer": answer, "sp": sp, "evidence": evidence}
    assert_equal(plain, "2wikimultihopqa", json.dumps(questions), json.dumps(predictions))


NAMES = st.sampled_from(["A", "a.", "b", "the b", "cat", "the cat", "cat dog"])


@given(
    golds=st.lists(
        st.tuples(ANSWERS, st.sampled_from([None, *ENTITIES]), st.lists(st.tuples(TRIPLE, ENTITY, ENTITY), max_size=3)),
        min_size=1, max_size=3,
    ),
    aliases=st.dictionaries(ENTITY, st.tuples(st.lists(NAMES, max_size=2), st.lists(NAMES, max_size=1)), max_size=3),
    answer=parts(ANSWERS),
    evidence=parts(TRIPLES),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_twowiki_with_aliases(
    plain: ModuleType, golds: list[Any], aliases: dict[str, Any], answer: dict[str, Any], evidence: dict[str, Any]
) -> None:
    questions = [
        {
            "_id": i,
            "answer": text,
            "answer_id": entity,
            "supporting_facts": [],
            "evidences": [triple for triple, _, _ in gold],
            "evidences_id": [(head, triple[1], tail) for triple, head, tail in gold],
        }
        for i, (text, entity, gold) in zip(IDS, golds, strict=False)
    ]
    predictions = {"answer": answer, "sp": {}, "evidence": evidence}
    lines = [{"Q_id": id, "aliases": names, "demonyms": demonyms} for id, (names, demonyms) in aliases.items()]
    names = "\n".join(map(json.dumps, lines))
    assert_equal(plain, "2wikimultihopqa", json.dumps(questions), json.dumps(predictions), names)


@given(
    golds=st.lists(st.tuples(ANSWERS, st.lists(ANSWERS, max_size=2), st.lists(st.booleans(), max_size=4)), min_size=1),
    predicted=parts(st.tuples(ANSWERS, st.lists(st.integers(0, 4), max_size=5))),
)
@settings(max_examples=200, deadline=None)
def test_musique(plain: ModuleType, golds: list[Any], predicted: dict[str, Any]) -> None:
    questions = [
        {
            "id": i,
            "answer": a,
            "answer_aliases": aliases,
            "paragraphs": [
                {"idx": n, "is_supporting": s, "title": "", "paragraph_text": ""} for n, s in enumerate(gold)
            ],
        }
        for i, (a, aliases, gold) in zip(IDS, golds, strict=False)
    ]
    lines = [{"id": i, "predicted_answer": a, "predicted_support_idxs": s} for i, (a, s) in predicted.items()]
    assert_equal(plain, "musique", "\n".join(map(json.dumps, questions)), "\n\n".join(map(json.dumps, lines)))


@given(golds=st.lists(st.lists(ANSWERS, min_size=1, max_size=3), min_size=1, max_size=3), predicted=parts(ANSWERS))
@settings(max_examples=200, deadline=None)
def test_nq(plain: ModuleType, golds: list[Any], predicted: dict[str, Any]) -> None:
    questions = [{"question": i, "answer": answers} for i, answers in zip(IDS, golds, strict=False)]
    lines = [{"question": i, "prediction": text} for i, text in predicted.items()]
    assert_equal(plain, "nq", "\n".join(map(json.dumps, questions)), "\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize("dataset", ["hotpotqa", "2wikimultihopqa", "musique", "nq"])
def test_real_gold_files(plain: ModuleType, real_data: Path, dataset: Dataset, tmp_path: Path) -> None:
    gold, predictions, count = plain.write_files(dataset, tmp_path, real_data, 0)
    scores = score_files(dataset, gold, predictions)
    assert scores.n == count
    expected = plain.PLAIN[dataset](gold, predictions)
    assert list(scores.per_question().values()) == [pytest.approx(row, abs=1e-12) for row in expected]
    assert 0.3 < next(iter(scores.means().values())) < 0.7


def test_generated_files_hold_every_case(plain: ModuleType) -> None:
    questions = plain.generated_gold("hotpotqa", 200, random.Random(0))
    predictions = json.loads(plain.predictions_for("hotpotqa", questions, random.Random(1)))
    assert 0 < len(predictions["answer"]) < 200
    assert {"yes", "no"} <= set(predictions["answer"].values())
