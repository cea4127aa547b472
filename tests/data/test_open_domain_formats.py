"""TriviaQA, PopQA and Bamboogle: files in, questions and official scores out; malformed files; detection."""

from __future__ import annotations

import csv
import json
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_sdk.config.recipe import load_recipe
from platform_sdk.data.detect import question_formats
from platform_sdk.data.questions import load_questions
from platform_sdk.evaluation.answers import exact_match, f1_score
from platform_sdk.evaluation.metrics import Dataset, score_files
from platform_sdk.evaluation.predictions import write_predictions
from platform_sdk.methods.requirements import missing_here
from platform_sdk.record_files import RecordError
from platform_sdk.records import Question, Rollout, Trajectory

HOME = Path(__file__).parents[2]
POP_COLUMNS = ["id", "subj", "prop", "obj", "question", "possible_answers"]


def trivia(number: int, value: str, *aliases: str, human: tuple[str, ...] = ()) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "Value": value, "Aliases": [value, *aliases], "Type": "WikipediaEntity",
        "NormalizedAliases": [plain(name) for name in (value, *aliases)], "NormalizedValue": plain(value),
    }  # fmt: skip
    if human:
        answer["HumanAnswers"] = list(human)
    return {"QuestionId": f"tc_{number}", "Question": f"Which {number}?", "Answer": answer, "SearchResults": []}


def write_trivia(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"Data": records, "Domain": "unfiltered-web", "Version": 1.0}, indent=4))
    return path


def write_pop(path: Path, *rows: tuple[int, str, list[str]]) -> Path:
    """Write rows of id, question and possible answers as pandas writes a TSV."""
    with path.open("w", newline="") as stream:
        table = csv.writer(stream, delimiter="\t", lineterminator="\n")
        table.writerow(POP_COLUMNS)
        for id_, question, answers in rows:
            table.writerow([id_, "Dawn", "author", answers[0], question, json.dumps(answers)])
    return path


def write_bamboogle(path: Path, *rows: tuple[str, str]) -> Path:
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerows([("Question", "Answer"), *rows])
    return path


def plain(text: str) -> str:
    """Normalise step by step, as the authors of TriviaQA describe it."""
    text = text.replace("_", " ").lower()
    for mark in string.punctuation + "‘’´`":
        text = text.replace(mark, " ")
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def rollout(question: Question, answer: str | None) -> Rollout:
    main = Trajectory(id="a", role="a", token_ids=(), agent_mask=(), logprobs=(), turns=(), answer=answer)
    return Rollout(question=question, attempt=0, seed=0, main=main, outcome="answered", weights="w", corpus="c")


def test_triviaqa_accepts_value_aliases_and_human_answers(tmp_path: Path) -> None:
    path = write_trivia(tmp_path / "f", trivia(1, "U.S.", "United States", human=("America", "u.s.")))
    (question,) = load_questions(path, "triviaqa").questions
    assert (question.id, question.text, question.dataset, question.hops) == ("tc_1", "Which 1?", "triviaqa", 1)
    # "u.s." differs from the value in case alone; the normalised forms differ from it otherwise.
    assert question.answers == ("U.S.", "United States", "America", "u s")
    assert question_formats(path) == {"triviaqa"}


def test_popqa_reads_quoted_lists_of_answers(tmp_path: Path) -> None:
    path = write_pop(tmp_path / "f", (42, 'Who wrote\n"Dawn"?', ["Ann Lee", 'A. "Lee"', "Ann Lee"]), (43, "?", ["x"]))
    first, second = load_questions(path, "popqa").questions
    assert (first.id, first.text, first.type) == ("popqa-42", 'Who wrote\n"Dawn"?', "author")
    assert first.answers == ("Ann Lee", 'A. "Lee"')
    assert second.id == "popqa-43"
    assert question_formats(path) == {"popqa"}


def test_bamboogle_ids_depend_on_the_question_alone(tmp_path: Path) -> None:
    rows = [("Who, if anyone, was first?", " Ann Lee "), ("When?", "1900")]
    first, second = load_questions(write_bamboogle(tmp_path / "f", *rows), "bamboogle").questions
    (again,) = load_questions(write_bamboogle(tmp_path / "g", rows[1]), "bamboogle").questions
    assert (first.text, first.answers, first.hops) == ("Who, if anyone, was first?", ("Ann Lee",), 2)
    assert (again.id, again.dataset) == (second.id, "bamboogle")
    assert question_formats(tmp_path / "f") == {"bamboogle"}


CASES: list[tuple[Dataset, list[str | None], list[dict[str, float]]]] = [
    # Punctuation becomes a space, so "U.S" is "u s", and "US" is not.
    ("triviaqa", ["the U.S", "US", "America", None], [
        {"em": 1, "f1": 1}, {"em": 0, "f1": 0}, {"em": 1, "f1": 1}, {"em": 0, "f1": 0},
    ]),
    ("popqa", ["It is ann lee.", "Ann Lee", "the ANN LEE", None], [
        {"accuracy": 1, "em": 0, "f1": 2 / 3}, {"accuracy": 1, "em": 1, "f1": 1}, {"accuracy": 0, "em": 1, "f1": 1},
        {"accuracy": 0, "em": 0, "f1": 0},
    ]),
    ("bamboogle", ["Ann Lee!", "by Ann Lee", "Lee", None], [
        {"em": 1, "sub_em": 1, "f1": 1}, {"em": 0, "sub_em": 1, "f1": 0.8}, {"em": 0, "sub_em": 0, "f1": 2 / 3},
        {"em": 0, "sub_em": 0, "f1": 0},
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("dataset", "answers", "expected"), CASES, ids=[case[0] for case in CASES])
def test_written_predictions_have_the_official_scores(
    dataset: Dataset, answers: list[str | None], expected: list[dict[str, float]], tmp_path: Path
) -> None:
    gold = tmp_path / "gold"
    match dataset:
        case "triviaqa":
            write_trivia(gold, *(trivia(n, "U.S.", human=("America",)) for n in range(4)))
        case "popqa":
            write_pop(gold, *((n, f"Who {n}?", ["Ann Lee"]) for n in range(4)))
        case _:
            write_bamboogle(gold, *((f"Who {n}?", "Ann Lee") for n in range(4)))
    questions = load_questions(gold, dataset).questions
    pairs = list(zip(questions, answers, strict=True))
    [path] = write_predictions(tmp_path, [rollout(*pair) for pair in pairs])
    scores = score_files(dataset, gold, path)
    assert list(scores.per_question().values()) == [pytest.approx(values) for values in expected]
    assert (scores.n, scores.missing, scores.unknown) == (4, {"": 1}, 0)
    for (question, answer), values in zip(pairs, expected, strict=True):
        assert exact_match(answer, question.answers, dataset) == values["em"]
        assert f1_score(answer, question.answers, dataset).f1 == pytest.approx(values["f1"])


TEXT = st.sampled_from(["the U.S.", "A_b", "‘a’ b", "“a” b", "B´s", "an`x", "the", "é a"]) | st.text(max_size=8)


@given(prediction=TEXT, golds=st.lists(TEXT, min_size=1, max_size=3))
def test_triviaqa_scores_equal_a_plain_reading_of_the_script(prediction: str, golds: list[str]) -> None:
    def f1(gold: str) -> float:
        own, right = plain(prediction).split(), plain(gold).split()
        same = sum((Counter(own) & Counter(right)).values())
        return 2 * same / (len(own) + len(right)) if same else 0.0

    assert exact_match(prediction, golds, "triviaqa") == any(plain(gold) == plain(prediction) for gold in golds)
    assert f1_score(prediction, golds, "triviaqa").f1 == pytest.approx(max(map(f1, golds)))


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("triviaqa", '{"Data": [{"Question": "?"}]}', "record 1: Object missing required field `QuestionId`"),
        ("triviaqa", '[{"Question": "?"}]', "an object with a list of Data is expected"),
        ("triviaqa", '{"Data": [{"QuestionId": "a", "Question": "?", "Answer": {"Value": "", "Aliases": []}}]}',
         "record 1: Answer: has no text"),
        ("popqa", "id\tquestion\n1\tWho?\n", "line 2: Object missing required field `possible_answers`"),
        ("popqa", "id\tquestion\tpossible_answers\n1\tWho?\tAnn\n", "line 2: possible_answers: not a JSON list"),
        ("popqa", "id\tquestion\tpossible_answers\n1\tWho?\t[]\n", "line 2: possible_answers: lists no answer"),
        ("popqa", "id\tquestion\tpossible_answers\n1\tWho?\n", "line 2: 2 columns, but the header has 3"),
        ("popqa", "", "line 1: has no header"),
        ("bamboogle", 'Question,Answer\nWho?,"Ann\n', "line 2: not a valid table: unexpected end"),
        ("bamboogle", "Question,Question\nWho?,Ann\n", "line 1: column Question occurs twice"),
        ("bamboogle", "Question,Answer\n\nWho?,\n", "line 3: Answer: is empty"),
        ("bamboogle", "Question,Answer\n", "holds no question"),
        ("bamboogle", "Question,Answer\nWho?,\xff\n", "line 2: not UTF-8 text"),
    ],
)  # fmt: skip
def test_malformed_file_is_refused_with_line_and_field(tmp_path: Path, format: str, text: str, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RecordError) as caught:
        load_questions(path, format)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_skipped_rows_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text('id\tquestion\tpossible_answers\n1\tWho?\t["a"]\n2\tWho?\t[1]\n3\tWho?\t["b"]\n')
    loaded = load_questions(path, "popqa", skip_invalid=True)
    assert [question.id for question in loaded.questions] == ["popqa-1", "popqa-3"]
    assert len(loaded.skipped) == 1
    assert "line 3: possible_answers: not a JSON list of texts" in loaded.skipped[0]


def test_validate_names_the_format_of_a_file_that_is_declared_as_another(tmp_path: Path) -> None:
    write_pop(tmp_path / "pop.tsv", (1, "Who?", ["Ann"]))
    dataset = "{format: nq, eval: pop.tsv, corpus: pop.tsv}"
    recipe = load_recipe(HOME / "pipelines/mygo/world-text.yaml", [f"dataset={dataset}", f"data_dir={tmp_path}"])
    problems = [problem.message for problem in missing_here(recipe) if problem.field == "dataset.eval"]
    assert problems == [f"{tmp_path / 'pop.tsv'} is a file of popqa; set format to that, or name another file"]
    again = load_recipe(recipe.path, [f"dataset={dataset.replace('nq', 'popqa')}", f"data_dir={tmp_path}"])
    assert [problem for problem in missing_here(again) if problem.field == "dataset.eval"] == []


@pytest.mark.parametrize(
    ("text", "formats"),
    [
        ('{"question": "?", "answer": ["a"]}\n', {"nq"}),
        ('[{"_id": "a", "supporting_facts": []', set()),  # cut within its first record
        ('[{"_id": "a", "supporting_facts": [], "evidences": []}]', {"hotpotqa", "2wikimultihopqa"}),
        ('{"dataset": {"id": "x"}, "questions": [{"id": 1}]}', {"qald10"}),
        ("", set()),
        ("title,text\n", set()),
    ],
)
def test_question_formats_follow_the_first_record(tmp_path: Path, text: str, formats: set[str]) -> None:
    (tmp_path / "f").write_text(text)
    assert question_formats(tmp_path / "f") == formats


def test_list_of_questions_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nq.json"
    path.write_text('\ufeff[{"question": "Where?", "answer": ["Oslo"]}]')
    [question] = load_questions(path, "nq").questions
    assert (question.text, question.answers) == ("Where?", ("Oslo",))
