"""The loaders: each official format in, questions out; malformed records; the real files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.data.detect import distractor_format
from platform_sdk.data.questions import load_questions
from platform_sdk.record_files import RecordError
from platform_sdk.records import Passage, Triple

HOTPOT: dict[str, Any] = {
    "_id": "h1",
    "question": "Who made it?",
    "answer": "Ann",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Film", 0], ["Ann", 9], ["Film", 1]],  # Ann has no tenth sentence
    "context": [["Film", ["The film.", " By Ann."]], ["Ann", ["Ann is."]]],
}
TWOWIKI = HOTPOT | {
    "evidences": [["Film", "director", "Ann"], ["Other", "director", "Cid"], ["Ann", "date of birth", "1 May 1900"]],
    "evidences_id": [["Q1", "director", "Q2"], ["Q3", "director", "Q4"], ["Q2", "date of birth", "date_information"]],
}
MUSIQUE: dict[str, Any] = {
    "id": "3hop1__1_2_3",
    "question": "?",
    "answer": "Ann",
    "answer_aliases": ["Anna", "Ann"],
    "answerable": True,
    "question_decomposition": [{"id": n, "question": "", "answer": "", "paragraph_support_idx": n} for n in range(3)],
    "paragraphs": [
        {"idx": n, "title": f"T{n % 3}", "paragraph_text": f"text {n}", "is_supporting": n < 4} for n in range(5)
    ],
}


def write(path: Path, records: list[Any], *, lines: bool = False) -> Path:
    path.write_text("\n".join(map(json.dumps, records)) if lines else json.dumps(records))
    return path


def test_hotpotqa(tmp_path: Path) -> None:
    (question,) = load_questions(write(tmp_path / "f", [HOTPOT]), "hotpotqa").questions
    assert (question.id, question.text, question.answers, question.dataset) == (
        "h1",
        "Who made it?",
        ("Ann",),
        "hotpotqa",
    )
    assert (question.type, question.hops, question.gold_passages) == ("bridge", 2, ("Film", "Ann"))
    assert question.supporting_facts == (("Film", 0), ("Ann", 9), ("Film", 1))
    assert question.context == (
        Passage(id="h1/0", title="Film", text="The film. By Ann."),
        Passage(id="h1/1", title="Ann", text="Ann is."),
    )


def test_twowiki_joins_sentences_with_a_space_and_finds_the_entry_points(tmp_path: Path) -> None:
    (question,) = load_questions(write(tmp_path / "f", [TWOWIKI]), "2wikimultihopqa").questions
    assert question.context[0].text == "The film.  By Ann."
    assert question.topic_entities == ("Film", "Other")  # Ann is the answer to the first triple
    assert question.gold_triples[0] == Triple(head="Film", relation="director", tail="Ann", head_id="Q1", tail_id="Q2")
    assert question.gold_triples[2].tail_id == ""  # a placeholder is no entity
    assert question.dataset == "2wikimultihopqa"


def test_twowiki_without_ids_and_without_context(tmp_path: Path) -> None:
    record = {key: value for key, value in TWOWIKI.items() if key != "context"} | {"evidences_id": []}
    (question,) = load_questions(write(tmp_path / "f", [record]), "2wikimultihopqa").questions
    assert question.context == ()
    assert question.gold_triples[0].head_id == ""


@pytest.mark.parametrize(
    ("heads", "ids", "expected"),
    [
        # Ann has two facts, Bo one; the ids are given in turn, with the tails' beside them.
        (["Ann", "Ann", "Bo"], ["Q1 Q16", "Q2 Q30", "Q1 Q142"], ["Q1 Q16", "Q1 Q142", "Q2 Q30"]),
        (["Ann", "Bo", "Ann"], ["Q1 Q16", "Q2 Q30", "Q1 Q142"], ["Q1 Q16", "Q2 Q30", "Q1 Q142"]),
        (["Ann", "Ann", "Bo"], ["Q1 Q16", "Q2 Q30", "Q2 Q142"], [" ", " ", " "]),  # Ann has two facts, Q1 one
        (["Ann", "Ann", "Bo"], ["Q1 Q16", "Q2 Q30", "Q3 Q142"], [" ", " ", " "]),  # two of one name: who is who?
    ],
)
def test_twowiki_ids_in_another_order_go_to_the_entity_they_belong_to(
    tmp_path: Path, heads: list[str], ids: list[str], expected: list[str]
) -> None:
    record = TWOWIKI | {
        "evidences": [[head, "country", f"T{n}"] for n, head in enumerate(heads)],
        "evidences_id": [[one.split()[0], "country", one.split()[1]] for one in ids],
    }
    (question,) = load_questions(write(tmp_path / "f", [record]), "2wikimultihopqa").questions
    assert [(t.head, t.tail) for t in question.gold_triples] == [(head, f"T{n}") for n, head in enumerate(heads)]
    assert [f"{t.head_id} {t.tail_id}" for t in question.gold_triples] == expected
    assert question.topic_entities == ("Ann", "Bo")
    assert question.topic_ids == (("Q1", "Q2") if expected[0] != " " else ())


def test_musique(tmp_path: Path) -> None:
    (question,) = load_questions(write(tmp_path / "f", [MUSIQUE], lines=True), "musique").questions
    assert question.answers == ("Ann", "Anna")
    assert (question.type, question.hops, question.gold_passages) == ("3hop1", 3, ("T0", "T1", "T2"))
    assert question.context[4] == Passage(id="3hop1__1_2_3/4", title="T1", text="text 4")
    bare = {key: value for key, value in MUSIQUE.items() if key != "paragraphs"}
    (question,) = load_questions(write(tmp_path / "g", [bare], lines=True), "musique").questions
    assert not question.context
    assert not question.gold_passages


def test_nq_with_and_without_gold_passages(tmp_path: Path) -> None:
    records = [
        {"question": "q1", "answer": ["a", "b", "a"]},
        {"question": "q2", "answers": ["c"], "ctxs": [{"title": "T", "text": "x", "isgold": True, "hasanswer": True}]},
        {"question": "q1", "answer": ["d"]},
    ]
    first, second, again = load_questions(write(tmp_path / "f", records, lines=True), "nq").questions
    assert first.answers == ("a", "b")
    assert second.gold_passages == ("T",)
    assert second.context[0].text == "x"
    assert len({first.id, second.id, again.id}) == 3
    # the id depends on the question alone, not on its place
    assert load_questions(write(tmp_path / "g", records[1:2], lines=True), "nq").questions[0].id == second.id


def test_nq_distractor_with_the_gold_passages_title_is_not_gold(tmp_path: Path) -> None:
    passages = [{"title": "T", "text": text, "isgold": text == "gold"} for text in ("other", "gold")]
    record = {"question": "q", "answers": ["c"], "ctxs": passages}
    (question,) = load_questions(write(tmp_path / "f", [record], lines=True), "nq").questions
    assert question.gold_passages == ("T",)
    assert question.gold_positions == (1,)


def qald(id_: int, *values: dict[str, Any], boolean: bool | None = None, language: str = "en") -> dict[str, Any]:
    answer = {"results": {"bindings": [{"result": v} for v in values]}} if boolean is None else {"boolean": boolean}
    wordings = [{"language": "de", "string": "Wer?"}, {"language": language, "string": "Who?"}]
    return {"id": id_, "question": wordings, "query": {"sparql": "…"}, "answers": [answer]}


def uri(entity: str) -> dict[str, Any]:
    return {"type": "uri", "value": f"http://www.wikidata.org/entity/{entity}"}


def literal(value: str, datatype: str) -> dict[str, Any]:
    return {"type": "literal", "value": value, "datatype": f"http://www.w3.org/2001/XMLSchema#{datatype}"}


def test_qald10(tmp_path: Path) -> None:
    records = [
        qald(1, uri("Q5"), uri("Q6")),
        qald(2, boolean=True),
        qald(3, literal("+100", "decimal")),
        qald(4, literal("1955-02-24T00:00:00Z", "dateTime")),
    ]
    (tmp_path / "f").write_text(json.dumps({"dataset": {}, "questions": records}))
    names = [{"id": 1, "topic_entity": {"Q9": "Tencent"}, "answer_labels": {"Q5": "Ann"}}]
    questions = load_questions(tmp_path / "f", "qald10", labels=write(tmp_path / "names", names)).questions
    assert [q.id for q in questions] == ["1", "2", "3", "4"]
    assert [q.text for q in questions] == ["Who?"] * 4
    assert [q.answers for q in questions] == [("Ann", "Q6"), ("yes",), ("100",), ("1955-02-24", "1955-02-24T00:00:00Z")]
    assert questions[0].topic_entities == ("Tencent",)


@pytest.mark.parametrize(
    ("format", "record", "message"),
    [
        ("hotpotqa", {"answer": None}, "answer: Expected `str`, got `null`"),
        ("hotpotqa", {"_id": 5}, "_id: Expected `str`, got `int`"),
        ("hotpotqa", {"supporting_facts": [["T", "0"]]}, r"supporting_facts\[0\]\[1\]: Expected `int`, got `str`"),
        ("hotpotqa", {"context": [["T"]]}, r"context\[0\]: Expected `array` of length 2"),
        ("2wikimultihopqa", {"evidences": [["a", "b"]]}, r"evidences\[0\]: Expected `array` of length 3"),
        ("2wikimultihopqa", {"evidences_id": [["a", "b", "c"]]}, "evidences_id: 1 entries, but evidences has 3"),
    ],
)
def test_a_malformed_record_is_named_by_file_number_and_field(
    tmp_path: Path, format: Any, record: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "file.json", [TWOWIKI | {"_id": "fine"}, TWOWIKI | record])
    with pytest.raises(RecordError, match=rf"file\.json: record 2: {message}"):
        load_questions(path, format)


def test_missing_fields_and_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text(json.dumps(MUSIQUE) + '\n\n{"id": "x"\n')
    with pytest.raises(RecordError, match=r"f: record 3: not valid JSON"):
        load_questions(path, "musique")
    with pytest.raises(RecordError, match="record 1: Object missing required field `question`"):
        load_questions(write(path, [{"_id": "x"}]), "hotpotqa")
    with pytest.raises(RecordError, match="record 1: answer: missing or empty"):
        load_questions(write(path, [{"question": "x", "answer": []}], lines=True), "nq")
    with pytest.raises(RecordError, match="record 1: question: has no English wording"):
        (tmp_path / "q").write_text(json.dumps({"questions": [qald(1, boolean=True, language="ru")]}))
        load_questions(tmp_path / "q", "qald10")
    with pytest.raises(RecordError, match="an object with a list of questions is expected"):
        load_questions(write(path, []), "qald10")
    with pytest.raises(RecordError, match="record 2: id: h1 is another record's too"):
        load_questions(write(path, [HOTPOT, HOTPOT]), "hotpotqa")
    with pytest.raises(RecordError, match="nowhere: cannot be read"):
        load_questions(tmp_path / "nowhere", "hotpotqa")


@pytest.mark.parametrize("field", ["question", "answer"])
@pytest.mark.parametrize(
    ("format", "record"),
    [
        ("hotpotqa", HOTPOT),
        ("2wikimultihopqa", TWOWIKI),
        ("musique", MUSIQUE | {"answer_aliases": []}),
        ("nq", {"question": "Who?", "answer": ["x"]}),
    ],
)
def test_an_empty_question_or_answer_is_refused(
    tmp_path: Path, format: str, record: dict[str, Any], field: str
) -> None:
    empty = record | {field: [" "] if isinstance(record[field], list) else " "}
    with pytest.raises(RecordError, match=f"f: record 1: {field}: is empty"):
        load_questions(write(tmp_path / "f", [empty], lines=format in ("musique", "nq")), format)


def test_plain_questions_name_entities_and_triples_of_a_graph(tmp_path: Path) -> None:
    plain = {"question": "Who directed Dawn?", "answers": ["Ann"]}
    about = {"topic_entities": ["Dawn", "Dawn"], "gold_triples": [["Dawn", "director", "Ann"]]}
    [question] = load_questions(write(tmp_path / "f", [plain | about], lines=True), "jsonl").questions
    assert question.topic_entities == ("Dawn",)
    assert question.gold_triples == (Triple(head="Dawn", relation="director", tail="Ann"),)
    with pytest.raises(RecordError, match=r"gold_triples"):
        load_questions(write(tmp_path / "g", [plain | {"gold_triples": [["Dawn", "Ann"]]}], lines=True), "jsonl")


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "f", [], lines=True)
    for format in ("jsonl", "musique"):
        with pytest.raises(RecordError, match=r"f: holds no question$"):
            load_questions(path, format)  # type: ignore[arg-type]
    path.write_text("{")
    with pytest.raises(RecordError, match=r"f: holds no question that is valid; .*f: record 1: not valid JSON"):
        load_questions(path, "musique", skip_invalid=True)


def test_skipping_lists_every_record_left_out(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("\n".join(["{", json.dumps(MUSIQUE), json.dumps(MUSIQUE | {"id": "2hop__", "answer": 1})]))
    loaded = load_questions(path, "musique", skip_invalid=True)
    assert [question.id for question in loaded.questions] == [MUSIQUE["id"]]
    assert [message.split(": ")[1] for message in loaded.skipped] == ["record 1", "record 3"]
    assert "answer: Expected `str`" in loaded.skipped[1]


def test_row_of_another_length_is_skipped_alone(tmp_path: Path) -> None:
    path = tmp_path / "popqa.tsv"
    path.write_text('id\tquestion\tpossible_answers\n1\tWho?\t["Ann"]\n2\tWhere?\n3\tWhen?\t["1901"]\n')
    loaded = load_questions(path, "popqa", skip_invalid=True)
    assert [question.text for question in loaded.questions] == ["Who?", "When?"]
    assert loaded.skipped == [f"{path}: line 3: 2 columns, but the header has 3"]


def test_equal_questions_with_ids_that_their_format_does_not_read_are_numbered(tmp_path: Path) -> None:
    records = [{"id": f"test_{n}", "question": "who?", "answer": [answer]} for n, answer in enumerate("ab")]
    first, second = load_questions(write(tmp_path / "nq.jsonl", records, lines=True), "nq").questions
    assert second.id == f"{first.id}-1"


REAL = {
    "hotpotqa/hotpot_train.json": ("hotpotqa", 300),
    "hotpotqa/hotpot_dev.json": ("hotpotqa", 100),
    "hotpotqa/hotpot_dev_fullwiki_extra.json": ("hotpotqa", 285),
    "2wikimultihopqa/train.json": ("2wikimultihopqa", 300),
    "2wikimultihopqa/dev_questions_nocontext.json": ("2wikimultihopqa", 3977),
    "musique/musique_ans_train.jsonl": ("musique", 100),
    "musique/musique_ans_dev_noparagraphs.jsonl": ("musique", 2210),
    "nq/NQ-open.train.sample.jsonl": ("nq", 300),
    "nq/nq_gold_passages.dev.jsonl": ("nq", 100),
    "qald10/qald_10_dev.json": ("qald10", 194),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_load_whole(real_data: Path, name: str) -> None:
    format, count = REAL[name]
    questions = load_questions(real_data / name, format).questions  # type: ignore[arg-type]
    assert len(questions) == count
    assert all(question.dataset == format and question.text and question.answers for question in questions)


def test_no_real_id_stands_for_two_heads_of_a_question(real_data: Path) -> None:
    shared: list[str] = []
    topics: dict[str, str] = {}
    for name in ("train.json", "dev.json", "dev_questions_nocontext.json"):
        for question in load_questions(real_data / "2wikimultihopqa" / name, "2wikimultihopqa").questions:
            heads = {triple.head: triple.head_id for triple in question.gold_triples if triple.head_id}
            shared += [question.id] * (len(set(heads.values())) < len(heads))
            topics |= zip(question.topic_entities, question.topic_ids, strict=False)
    assert shared == []
    assert (topics["Kyle Wiltjer"], topics["Christopher T. Russell"]) == ("Q6451516", "Q5113312")


def test_real_oddities_are_kept_as_found(real_data: Path) -> None:
    hotpot = load_questions(real_data / "hotpotqa/hotpot_train.json", "hotpotqa").questions
    assert Counter(len(question.context) for question in hotpot) == {10: 297, 4: 2, 2: 1}
    without = [q for q in hotpot if not set(q.gold_passages) <= {passage.title for passage in q.context}]
    assert len(without) == 57
    qald = load_questions(
        real_data / "qald10/qald_10_dev.json", "qald10", labels=real_data / "qald10/topic_entities.json"
    )
    assert sum(question.answers in (("yes",), ("no",)) for question in qald.questions) == 33
    assert sum(bool(question.topic_entities) for question in qald.questions) == 161


def test_gold_positions_are_those_of_the_gold_paragraphs(tmp_path: Path) -> None:
    """MuSiQue's by paragraph, since titles repeat: T0 is gold as paragraphs 0 and 3, T1 as 1 and not as 4."""
    (musique,) = load_questions(write(tmp_path / "m", [MUSIQUE], lines=True), "musique").questions
    assert musique.gold_positions == (0, 1, 2, 3)
    more = HOTPOT | {"context": [*HOTPOT["context"], ["Not", ["It."]]]}
    lacking = HOTPOT | {"_id": "h2", "context": [["No", ["-"]], ["Ann", ["-"]]]}  # no paragraph on Film
    hotpot, partly = load_questions(write(tmp_path / "h", [more, lacking]), "hotpotqa").questions
    assert (hotpot.gold_positions, partly.gold_positions) == ((0, 1), (1,))


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("more", "says"),
    [
        pytest.param(f'"x": {DEEP}', "record 2: lists or objects are nested too deeply", id="depth"),
        pytest.param(f'"x": {"9" * 10_000}', "record 2: holds an integer of too many digits", id="digits"),
        pytest.param('"answer": ["\\ud800"]', "record 2: answers: contains a lone surrogate", id="surrogate"),
        pytest.param(
            '"\\ud800": 1', "record 2: the name of a field contains a lone surrogate", id="surrogate in a name"
        ),
        pytest.param('"x": "\xff"', "record 2: not UTF-8 text", id="bytes"),
        pytest.param('"x": "\x00"', "record 2: not valid JSON (Invalid control character", id="NUL"),
    ],
)
def test_odd_lines_are_named_and_nothing_is_lost(tmp_path: Path, more: str, says: str) -> None:
    path = tmp_path / "nq.jsonl"
    lines = ['{"question": "a", "answer": ["x"]}', f'{{"question": "b", "answer": ["x"], {more}}}']
    path.write_bytes("\n".join([*lines, lines[0].replace("a", "c", 1), ""]).encode("latin-1"))
    with pytest.raises(RecordError) as caught:
        load_questions(path, "nq")
    assert str(caught.value).startswith(f"{path}: {says}")
    assert len(str(caught.value)) < 500
    loaded = load_questions(path, "nq", skip_invalid=True)
    assert [len(loaded.questions), len(loaded.skipped)] == [2, 1]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (DEEP, "lists or objects are nested too deeply"),
        ("9" * 10_000, "holds an integer of too many digits (line 2)"),
        ('"\xff"', "not UTF-8 text (line 2)"),
    ],
    ids=["depth", "digits", "bytes"],
)
def test_odd_documents_are_refused(tmp_path: Path, value: str, says: str) -> None:
    path = tmp_path / "hotpot.json"
    path.write_bytes((json.dumps([HOTPOT])[:-2] + f',\n "x": {value}}}]').encode("latin-1"))
    with pytest.raises(RecordError) as caught:
        load_questions(path, "hotpotqa")
    assert str(caught.value) == f"{path}: {says}"


def test_deeply_nested_document_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hotpot.json"
    path.write_text(f'[{{"x": {DEEP}}}]')
    with pytest.raises(RecordError, match="nested too deeply"):
        distractor_format(path)
