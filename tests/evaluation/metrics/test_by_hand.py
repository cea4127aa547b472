"""The metrics' numbers worked out by hand, the scripts' oddities among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.evaluation.metrics import Dataset, Scores, score_files
from platform_sdk.record_files import RecordError


@pytest.fixture
def score(tmp_path: Path) -> Any:
    """Score values as if they stood in files; a list in ``gold`` of a JSONL format becomes lines."""

    def run(dataset: Dataset, gold: Any, predictions: Any, names: Any = None, labels: Any = None) -> Scores:
        lines = dataset in ("musique", "nq")
        write(tmp_path / "gold", gold, lines)
        write(tmp_path / "predictions", predictions, lines and not isinstance(predictions, str))
        if names is not None:
            write(tmp_path / "names", names, dataset == "2wikimultihopqa")
        return score_files(dataset, tmp_path / "gold", tmp_path / "predictions", tmp_path / "names" if names else None)

    return run


def write(path: Path, value: Any, lines: bool) -> None:
    path.write_text(
        value if isinstance(value, str) else "\n".join(map(json.dumps, value)) if lines else json.dumps(value)
    )


def hotpot(id_: str, answer: str = "cat", facts: Any = (("T", 0), ("U", 1)), **more: Any) -> dict[str, Any]:
    return {"_id": id_, "answer": answer, "supporting_facts": facts, "question": "?", "context": [], **more}


def test_hotpotqa(score: Any) -> None:
    gold = [hotpot("a", "big cat"), hotpot("b"), hotpot("c"), hotpot("d")]
    predictions = {
        "answer": {"a": "the cat", "b": "Cat", "d": "cat", "other": "x"},
        # a: one of two right, twice; b: no facts at all; c: right, but no answer; d: missing
        "sp": {"a": [["T", 0], ["T", 0], ["t", 0]], "b": [], "c": [["U", 1], ["T", 0]]},
    }
    scores = score("hotpotqa", gold, predictions)
    rows = scores.per_question()
    assert rows["a"] == pytest.approx(
        {"em": 0, "f1": 2 / 3, "prec": 1, "recall": 0.5}
        | {"sp_em": 0, "sp_f1": 0.5, "sp_prec": 0.5, "sp_recall": 0.5}
        | {"joint_em": 0, "joint_f1": 2 * 0.5 * 0.25 / 0.75, "joint_prec": 0.5, "joint_recall": 0.25}
    )
    assert rows["b"]["em"] == 1
    assert rows["b"]["sp_f1"] == rows["b"]["joint_f1"] == 0
    assert rows["c"]["sp_em"] == 1
    assert rows["c"]["em"] == rows["c"]["joint_em"] == 0
    assert rows["d"]["em"] == 1
    assert rows["d"]["sp_em"] == rows["d"]["joint_recall"] == 0
    means = scores.means()
    assert list(means) == [p + n for p in ("", "sp_", "joint_") for n in ("em", "f1", "prec", "recall")]
    assert means["em"] == 0.5
    assert means["sp_em"] == 0.25
    assert means["joint_prec"] == 0.125
    assert scores.missing == {"": 1, "sp_": 1}
    answered = {"answer": dict.fromkeys("abcd", "cat"), "sp": {"a": []}}
    assert score("hotpotqa", gold, answered).missing == {"": 0, "sp_": 3}


def test_no_facts_for_no_facts_is_an_exact_match_of_f1_zero(score: Any) -> None:
    means = score("hotpotqa", [hotpot("a", facts=[])], {"answer": {"a": "cat"}, "sp": {"a": []}}).means()
    assert (means["sp_em"], means["sp_f1"], means["joint_em"], means["joint_f1"]) == (1, 0, 1, 0)


def test_facts_of_another_form_are_merely_wrong(score: Any) -> None:
    means = score("hotpotqa", [hotpot("a")], {"answer": {}, "sp": {"a": [["T"], ["U", 1.0], ["T", "0"]]}}).means()
    assert means["sp_prec"] == pytest.approx(1 / 3)
    assert means["sp_recall"] == 0.5


def test_twowiki(score: Any) -> None:
    triples = [["Film", "director", "Ann"], ["Ann", "place of birth", "The Hague"]]
    gold = [hotpot("a", evidences=triples, evidences_id=[], answer_id=None)]
    predictions = {
        "answer": {"a": "cat"},
        "sp": {"a": [["t", 0], ["u", 1]]},  # titles without case
        # case, punctuation and space do not count, articles do
        "evidence": {"a": [["film", "Director", " ann."], ["Ann", "place of  birth", "Hague"]]},
    }
    means = score("2wikimultihopqa", gold, predictions).means()
    assert means["sp_em"] == 1
    assert [means["evi_" + n] for n in ("em", "f1", "prec", "recall")] == [0, 0.5, 0.5, 0.5]
    assert [means["joint_" + n] for n in ("em", "f1", "prec", "recall")] == [0, 0.5, 0.5, 0.5]


def test_twowiki_counts_two_spellings_of_a_title_twice(score: Any) -> None:
    gold = [hotpot("a", facts=[["T", 0], ["U", 1]], evidences=[])]
    predictions = {"answer": {}, "sp": {"a": [["T", 0], ["t", 0], ["x", 0]]}, "evidence": {"a": []}}
    means = score("2wikimultihopqa", gold, predictions).means()
    assert means["sp_prec"] == pytest.approx(2 / 3)
    assert means["sp_recall"] == pytest.approx(2 / 3)  # 2 found (one fact twice) of 2 found and 1 missed
    assert (means["evi_em"], means["evi_f1"]) == (1, 0)


def test_twowiki_repeated_gold_evidence_cannot_be_matched_exactly(score: Any) -> None:
    gold = [hotpot("a", evidences=[["x", "y", "z"]] * 2)]
    means = score("2wikimultihopqa", gold, {"answer": {}, "sp": {}, "evidence": {"a": [["x", "y", "z"]]}}).means()
    assert (means["evi_em"], means["evi_prec"], means["evi_recall"]) == (0, 1, 0.5)


def test_twowiki_aliases(score: Any) -> None:
    gold = [
        hotpot(
            "a",
            "United States",
            evidences=[["Ann", "country", "US"]],
            evidences_id=[["Q1", "country", "Q2"]],
            answer_id="Q2",
        )
    ]
    names = [
        {"Q_id": "Q1", "aliases": ["Anna"], "demonyms": []},
        {"Q_id": "Q2", "aliases": ["USA"], "demonyms": ["American"]},
    ]
    predictions = {
        "answer": {"a": "American"},
        "sp": {},
        "evidence": {"a": [["Anna", "country", "USA"], ["Ann", "country", "US"]]},
    }
    means = score("2wikimultihopqa", gold, predictions, names).means()
    assert means["em"] == means["f1"] == 1
    assert (means["evi_em"], means["evi_prec"], means["evi_recall"]) == (
        0,
        1,
        2,
    )  # the script's recall, of one gold triple
    assert score("2wikimultihopqa", gold, predictions).means()["em"] == 0


def test_twowiki_evidence_ids_must_fit_the_evidence(score: Any) -> None:
    gold = [hotpot("a", evidences=[["Ann", "country", "US"]], evidences_id=[["Q1", "spouse", "Q2"]])]
    with pytest.raises(RecordError, match="record 1: evidences_id"):
        score(
            "2wikimultihopqa",
            gold,
            {"answer": {}, "sp": {}, "evidence": {}},
            [{"Q_id": "Q", "aliases": [], "demonyms": []}],
        )


def musique(id_: str, **more: Any) -> dict[str, Any]:
    paragraphs = [{"idx": i, "is_supporting": i in (1, 3), "title": "", "paragraph_text": ""} for i in range(5)]
    return {
        "id": id_,
        "answer": "big cat",
        "answer_aliases": ["feline"],
        "paragraphs": paragraphs,
        "answerable": True,
    } | more


def test_musique(score: Any) -> None:
    gold = [musique("a"), musique("b"), musique("c")]
    predictions = [
        {"id": "b", "predicted_answer": "The Feline", "predicted_support_idxs": [3, 1]},
        {"id": "a", "predicted_answer": "cat", "predicted_support_idxs": [1, 1, "2", 4]},
    ]
    scores = score("musique", gold, predictions)
    assert scores.per_question()["a"] == pytest.approx({"answer_em": 0, "answer_f1": 2 / 3, "support_f1": 0.4})
    assert scores.per_question()["b"] == {"answer_em": 1, "answer_f1": 1, "support_f1": 1}
    assert scores.means() == pytest.approx({"answer_em": 1 / 3, "answer_f1": 5 / 9, "support_f1": 1.4 / 3})
    assert scores.missing == {"": 1}


def test_musique_treats_yes_as_an_ordinary_word(score: Any) -> None:
    scores = score(
        "musique",
        [musique("a", answer="yes")],
        [{"id": "a", "predicted_answer": "yes sir", "predicted_support_idxs": []}],
    )
    assert scores.means()["answer_f1"] == pytest.approx(2 / 3)


def test_musique_without_paragraphs_takes_the_decomposition(score: Any) -> None:
    gold = musique("a", question_decomposition=[{"paragraph_support_idx": 1}, {"paragraph_support_idx": 3}])
    del gold["paragraphs"]
    predictions = [{"id": "a", "predicted_answer": "", "predicted_support_idxs": [1]}]
    assert score("musique", [gold], predictions).means()["support_f1"] == pytest.approx(2 / 3)
    with pytest.raises(RecordError, match="record 1: paragraphs: missing"):
        score("musique", [gold | {"question_decomposition": None}], predictions)


def test_musique_passes_over_the_unanswerable_twin(score: Any) -> None:
    line = {"id": "a", "predicted_answer": "feline", "predicted_support_idxs": [1, 3]}
    gold = [musique("a", answerable=False), musique("a")]
    scores = score("musique", gold, [line | {"predicted_answer": "wrong"}, line])
    assert scores.n == 1
    assert scores.means()["answer_em"] == 1
    assert scores.notes == ("1 unanswerable questions take no part",)


def test_nq(score: Any) -> None:
    gold = [{"question": "q1", "answer": ["big cat", "lion"]}, {"question": "q2", "answer": ["x"]}]
    predictions = [{"question": "q1", "prediction": "A lion-like thing, the lion"}]
    means = score("nq", gold, predictions).means()
    assert means == pytest.approx({"em": 0, "sub_em": 0.5, "f1": 0.5 * 2 * (1 / 3) / (4 / 3)})
    listed = score("nq", gold, json.dumps(["Lion", "the x"]))
    assert listed.means() == {"em": 1, "sub_em": 1, "f1": 1}
    assert score("nq", gold, json.dumps(predictions)).means() == means
    with pytest.raises(RecordError, match="1 predictions, but the gold file has 2"):
        score("nq", gold, json.dumps(["Lion"]))


QALD = {
    "questions": [
        {"id": 1, "question": [], "answers": [{"results": {"bindings": [
            {"result": {"type": "uri", "value": "http://www.wikidata.org/entity/Q5"}},
            {"result": {"type": "uri", "value": "http://www.wikidata.org/entity/Q6"}},
        ]}}]},
        {"id": "2", "question": [], "answers": [{"head": {}, "boolean": False}]},
        {"id": 3, "question": [], "answers": [{"results": {"bindings": [
            {"c": {"type": "literal", "value": "+100", "datatype": "http://www.w3.org/2001/XMLSchema#decimal"}},
        ]}}]},
    ]
}  # fmt: skip


def test_qald10(score: Any) -> None:
    names = [{"id": 1, "topic_entity": {}, "answer_labels": {"Q5": "Ann Bee", "Q6": "Cid"}}]
    scores = score("qald10", QALD, {"1": ["ann", "CID", "x"], "2": ["No"], "3": ["100"]}, names)
    assert scores.per_question()["1"] == pytest.approx(
        {"em": 1, "f1": 1, "set_prec": 1 / 3, "set_recall": 1 / 2, "set_f1": 0.4}
    )
    assert scores.per_question()["2"]["em"] == scores.per_question()["3"]["set_f1"] == 1
    by_id = score("qald10", QALD, {"1": ["Q5", "http://www.wikidata.org/entity/Q6"]}).per_question()
    assert by_id["1"]["set_f1"] == 1
    assert by_id["2"]["em"] == 0


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ("[1,", "predictions: not valid JSON .*line 1"),
        ("", "predictions: not valid JSON"),
        ("[]", "predictions: Expected `object`, got `array`"),
        ({"answer": {}}, "predictions: Object missing required field `sp`"),
        ({"answer": {"b": "x", "a": None}, "sp": {}}, "predictions: answer.a: Expected `str`, got `null`"),
        ({"answer": {}, "sp": {"a": [], "b": [["T", [1]]]}}, r"predictions: sp.b\[0\]\[1\]: Expected"),
    ],
)
def test_invalid_prediction_files_are_refused(score: Any, predictions: Any, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        score("hotpotqa", [hotpot("a")], predictions)


def test_invalid_gold_files_are_refused(score: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="gold: record 2: answer: Expected `str`, got `int`"):
        score("hotpotqa", [hotpot("a"), hotpot("b", answer=3)], {"answer": {}, "sp": {}})  # type: ignore[arg-type]
    with pytest.raises(RecordError, match="gold: holds no question"):
        score("hotpotqa", [], {"answer": {}, "sp": {}})
    with pytest.raises(RecordError, match="gold: line 3: .*answer_aliases"):
        score("musique", json.dumps(musique("a")) + '\n\n{"id": "b", "answer": "x"}\n', [])
    with pytest.raises(RecordError, match="nowhere: cannot be read: No such file"):
        score_files("nq", tmp_path / "nowhere", tmp_path / "gold")


def test_lone_surrogate_in_predictions_is_scored(score: Any) -> None:
    text = '{"answer": {"a": "\\ud800 cat"}, "sp": {}}'  # half a character, as some tools cut texts
    assert score("hotpotqa", [hotpot("a")], text).means()["f1"] == pytest.approx(2 / 3)
