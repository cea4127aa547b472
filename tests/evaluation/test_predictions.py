"""Answers in the official forms: scored by the official definitions they give what the evaluation says itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.data.questions import load_questions
from platform_sdk.evaluation.answers import exact_match, f1_score
from platform_sdk.evaluation.metrics import score_files
from platform_sdk.evaluation.predictions import write_predictions
from platform_sdk.records import Evidence, Question, Rollout, Trajectory, Turn, given_evidence

ALIASES = [
    {"Q_id": "Q30", "aliases": ["United States of America", "USA"], "demonyms": ["American"]},
    {"Q_id": "Q99", "aliases": ["California Republic"], "demonyms": []},
]
HOTPOT = {"question": "Where?", "supporting_facts": [["T", 0]], "context": [["T", ["Text."]]]}
TWOWIKI = {**HOTPOT, "evidences": [["film", "country", "United States"]], "evidences_id": [["Q1", "country", "Q30"]]}
MUSIQUE = {
    "question": "Where?", "paragraphs": [{"idx": 0, "title": "T", "paragraph_text": "Text.", "is_supporting": True}],
    "question_decomposition": [{"id": 1, "question": "Where?", "answer": "Rome", "paragraph_support_idx": 0}],
}  # fmt: skip

# A dataset, its questions, the answer to each, and EM, F1, precision, recall of the official script by hand.
CASES: list[tuple[str, list[dict[str, Any]], list[str | None], list[tuple[float, float, float, float]]]] = [
    (
        "hotpotqa",
        [{**HOTPOT, "_id": str(n), "answer": text} for n, text in enumerate(["the Old Bridge", "yes", "Rome", "Bo"])],
        ["Old Bridge!", "yes it is", "Rome and Paris", None],
        # The article and the mark go; yes is all or nothing; "and" and "paris" are two words too many.
        [(1, 1, 1, 1), (0, 0, 0, 0), (0, 0.5, 1 / 3, 1), (0, 0, 0, 0)],
    ),
    (
        "2wikimultihopqa",
        [{**TWOWIKI, "_id": str(n), "answer": "United States", "answer_id": "Q30"} for n in range(4)],
        ["American", "USA", "the United States of America now", "Canada"],
        # A demonym and an alias are right. The third has 4 of 5 words of the alias (F1 8/9, precision 4/5, recall 1).
        [(1, 1, 1, 1), (1, 1, 1, 1), (0, 8 / 9, 0.8, 1), (0, 0, 0, 0)],
    ),
    (
        "musique",
        [{**MUSIQUE, "id": f"2hop__{n}", "answer": "Rome", "answer_aliases": ["Eternal City"]} for n in range(3)],
        ["the Eternal City", "Rome, Italy", None],
        [(1, 1, 1, 1), (0, 2 / 3, 0.5, 1), (0, 0, 0, 0)],
    ),
    (
        "nq",
        [{"question": f"Who {n}?", "answer": ["Ann Lee", "A. Lee"]} for n in range(2)],
        ["Ann Lee", None],
        [(1, 1, 1, 1), (0, 0, 0, 0)],
    ),
]  # fmt: skip


def answered(question: Question, answer: str | None) -> Rollout:
    main = Trajectory(id="a", role="a", token_ids=(), agent_mask=(), logprobs=(), turns=(), answer=answer)
    return Rollout(question=question, attempt=0, seed=0, main=main, outcome="answered", weights="w", corpus="c")


@pytest.mark.parametrize(("dataset", "records", "answers", "worth"), CASES, ids=[case[0] for case in CASES])
def test_official_scores_of_the_written_predictions(
    dataset: str, records: list[dict[str, Any]], answers: list[str | None], worth: list[Any], tmp_path: Path
) -> None:
    gold, labels = tmp_path / "gold", tmp_path / "id_aliases.json"
    lines = dataset in ("musique", "nq")
    gold.write_text("\n".join(map(json.dumps, records)) if lines else json.dumps(records))
    labels.write_text("\n".join(map(json.dumps, ALIASES)))
    names = labels if dataset == "2wikimultihopqa" else None
    questions = load_questions(gold, dataset, labels=names).questions
    for question, answer, (em, f1, precision, recall) in zip(questions, answers, worth, strict=True):
        assert exact_match(answer, question.answers, dataset) == em
        assert f1_score(answer, question.answers, dataset) == pytest.approx((f1, precision, recall))
    [path] = write_predictions(tmp_path, [answered(*pair) for pair in zip(questions, answers, strict=True)])
    official = score_files(dataset, gold, path, names)
    assert official.unknown == 0
    found = list(official.per_question().values())
    columns = ("answer_em", "answer_f1") if dataset == "musique" else ("em", "f1")
    for values, (em, f1, *_) in zip(found, worth, strict=True):
        assert [values[name] for name in columns] == pytest.approx([em, f1])
    if dataset in ("hotpotqa", "2wikimultihopqa"):
        assert [(v["prec"], v["recall"]) for v in found] == [pytest.approx(tuple(w[2:])) for w in worth]


def test_musique_predictions_name_the_chosen_paragraphs_of_the_questions_own(tmp_path: Path) -> None:
    paragraphs = [
        {"idx": idx, "title": "T", "paragraph_text": f"Text {idx}.", "is_supporting": idx != 5} for idx in (5, 7, 9)
    ]
    record = {**MUSIQUE, "id": "2hop__1_2", "answer": "Rome", "answer_aliases": [], "paragraphs": paragraphs}
    (tmp_path / "gold").write_text(json.dumps(record))
    [question] = load_questions(tmp_path / "gold", "musique").questions
    given = given_evidence(question.context)
    found = (*given[:2], Evidence(kind="passage", id="1", text="Text 9.", score=0.5))  # 1: of a corpus, not of context
    # Chosen are idx 5 and 7 of the gold 7 and 9, F1 1/2; then 7 and a passage of a corpus, precision 1, recall 1/2.
    for evidence, selected, idxs, f1 in ((given, (0, 1), [5, 7], 0.5), (found, (1, 2), [7], 2 / 3)):
        rollout = answered(question, "Rome")
        turn = Turn(speaker="environment", text="", start=0, end=0, evidence=evidence)
        main = rollout.main.model_copy(update={"turns": (turn,), "selected": selected})
        [path] = write_predictions(tmp_path, [rollout.model_copy(update={"main": main})])
        assert json.loads(path.read_text())["predicted_support_idxs"] == idxs
        [values] = score_files("musique", tmp_path / "gold", path).per_question().values()
        assert values["support_f1"] == pytest.approx(f1)


def test_each_dataset_has_a_file_of_its_own(tmp_path: Path) -> None:
    asked = [Question(id="q", text="?", answers=("x",), dataset=name) for name in ("hotpotqa", "qald10", "world")]
    files = write_predictions(tmp_path, [answered(question, "x") for question in asked], "-greedy")
    assert [path.name for path in files] == [f"predictions-greedy-{q.dataset}.json" for q in asked]
    assert [json.loads(path.read_text()) for path in files] == [
        {"answer": {"q": "x"}, "sp": {}},
        {"q": ["x"]},
        {"answer": {"q": "x"}, "sp": {}},
    ]
