"""Preparation of a run's corpus folder from a dataset's specification."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from platform_sdk.config.dataset import DatasetSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.data.dataset import prepare, read_corpus
from platform_sdk.record_files import RecordError, digest_records, read_jsonl
from platform_sdk.records import Passage, Question


def record(number: int) -> dict[str, Any]:
    return {
        "_id": f"q{number}",
        "question": f"Question {number}?",
        "answer": f"B{number}",
        "type": "compositional",
        "supporting_facts": [[f"A{number}", 0]],
        "context": [[f"A{number}", ["One.", "Two."]], ["Common", ["Same."]]],
        "evidences": [[f"A{number}", "r", f"B{number}"]],
        "evidences_id": [],
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.json").write_text(json.dumps([record(n) for n in range(20)]))
    (folder / "dev.json").write_text(json.dumps([record(n) for n in range(20, 25)]))
    (folder / "kg.tsv").write_text("head\trelation\ttail\nA1\tr\tB1\n")
    return folder


def spec(**more: Any) -> DatasetSpec:
    return DatasetSpec(**{"format": "2wikimultihopqa", "train": "train.json", "eval": "dev.json"} | more)


def questions(workdir: Path, part: str) -> list[Question]:
    return list(read_jsonl(workdir / f"corpus/questions.{part}.jsonl", Question))


def test_prepared_files_and_digests_agree(data: Path, tmp_path: Path) -> None:
    prepared = prepare(spec(), data, tmp_path / "run")
    assert prepared.counts == {"train": 20, "eval": 5, "passages": 26, "triples": 0, "skipped": 0}
    corpus = tmp_path / "run/corpus"
    assert Corpus.load(corpus / "passages.jsonl").digest == prepared.passages
    assert TripleStore.load(corpus / "triples.jsonl").digest == prepared.triples
    assert digest_records(questions(tmp_path / "run", "train")) == prepared.train
    assert questions(tmp_path / "run", "eval")[0].context[0].text == "One. Two."
    written = json.loads((corpus / "digests.json").read_text())
    assert written["passages"] == prepared.passages
    assert written["counts"] == prepared.counts
    assert {path.name for path in corpus.iterdir()} == {
        "questions.train.jsonl", "questions.eval.jsonl", "passages.jsonl", "triples.jsonl", "digests.json"
    }  # fmt: skip


def test_prepared_data_is_reused_until_the_input_changes(data: Path, tmp_path: Path) -> None:
    first = prepare(spec(), data, tmp_path / "run")
    marker = tmp_path / "run/corpus/passages.jsonl"
    before = marker.stat().st_mtime_ns
    assert prepare(spec(), data, tmp_path / "run") == first
    assert marker.stat().st_mtime_ns == before
    (data / "dev.json").write_text(json.dumps([record(30)]))
    changed = prepare(spec(), data, tmp_path / "run")
    assert changed.input != first.input
    assert changed.eval != first.eval
    assert changed.train == first.train


def test_a_killed_preparation_is_made_again(data: Path, tmp_path: Path) -> None:
    first = prepare(spec(), data, tmp_path / "run")
    (tmp_path / "run/corpus/digests.json").unlink()
    (tmp_path / "run/corpus/triples.jsonl").unlink()
    assert prepare(spec(), data, tmp_path / "run") == first
    assert (tmp_path / "run/corpus/triples.jsonl").exists()


def test_subsets_are_drawn_by_seed_and_grow(data: Path, tmp_path: Path) -> None:
    def drawn(count: int, seed: int = 0) -> list[str]:
        workdir = tmp_path / f"{count}-{seed}"
        prepared = prepare(spec(train_questions=count, seed=seed), data, workdir)
        assert prepared.counts["passages"] == 26  # what is searched does not shrink with the questions
        return [question.id for question in questions(workdir, "train")]

    assert len(drawn(5)) == 5
    assert set(drawn(5)) < set(drawn(9))
    assert drawn(9) != drawn(9, seed=1)
    assert drawn(9) == sorted(drawn(9), key=lambda id_: int(id_[1:]))
    with pytest.raises(UserError, match="21 questions are requested, but there are 20"):
        drawn(21)


def test_left_out_questions_are_exactly_the_ones_that_a_smaller_draw_uses(data: Path, tmp_path: Path) -> None:
    def drawn(name: str, **more: Any) -> list[str]:
        prepare(spec(**more), data, tmp_path / name)
        return [question.id for question in questions(tmp_path / name, "train")]

    every, first = drawn("every"), drawn("first", train_questions=8, seed=3)
    rest = drawn("rest", train_skip=8, seed=3)
    assert sorted([*first, *rest], key=every.index) == every
    assert set(drawn("some", train_skip=8, train_questions=5, seed=3)) < set(rest)
    with pytest.raises(UserError, match="13 questions are requested, but there are 20, of which 8 are left out"):
        drawn("more", train_skip=8, train_questions=13, seed=3)
    with pytest.raises(UserError, match="train_skip leaves out 21 questions, but there are 20; lower it"):
        drawn("none", train_skip=21)


def test_given_passages_are_the_gold_ones_and_others_drawn_up_to_a_number(data: Path, tmp_path: Path) -> None:
    titles = ["P0", "A7", "P1", "P2", "P3", "A8", "P4"]
    gold = {"supporting_facts": [["A7", 0], ["A8", 1]], "context": [[title, ["One.", "Two."]] for title in titles]}
    (data / "train.json").write_text(json.dumps([record(n) | gold for n in range(20)]))

    def given(name: str, **more: Any) -> list[Question]:
        prepared = prepare(spec(**more), data, tmp_path / name)
        assert prepared.counts["passages"] == 13  # what is searched does not shrink
        return questions(tmp_path / name, "train")

    whole, four = given("all"), given("four", context_passages=4)
    for before, after in zip(whole, four, strict=True):
        kept = [passage for passage in before.context if passage in after.context]
        assert list(after.context) == kept
        assert [after.context[place].title for place in after.gold_positions] == ["A7", "A8"]
        assert after.context_sentences == ((0, 5),) * 4
    assert len({question.context for question in four}) > 1
    assert four == given("again", context_passages=4) != given("seed", context_passages=4, seed=1)
    assert {len(question.context) for question in given("one", context_passages=1)} == {2}
    assert given("more", context_passages=9) == whole


def test_given_corpus_and_triples_replace_the_questions_own(data: Path, tmp_path: Path) -> None:
    (data / "c1.jsonl").write_text('{"id": "0", "title": "A", "text": "x"}\n{"id": "1", "title": "B", "text": "y"}\n')
    (data / "c2.jsonl").write_text('{"id": "0", "title": "B", "text": "y"}\n{"id": "1", "title": "C", "text": "z"}\n')
    one = prepare(spec(corpus="c1.jsonl", triples=["kg.tsv"]), data, tmp_path / "one")
    assert (one.counts["passages"], one.counts["triples"]) == (2, 1)
    prepare(spec(corpus=["c1.jsonl", "c2.jsonl"]), data, tmp_path / "two")
    passages = Corpus.load(tmp_path / "two/corpus/passages.jsonl").passages
    assert [(p.id, p.title) for p in passages] == [("0", "A"), ("1", "B"), ("2", "C")]


def test_relative_dataset_paths_need_a_data_directory(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--set data_dir=DIR or the environment variable HOPFORGE_DATA"):
        prepare(spec(), None, tmp_path / "run")
    absolute = spec(train=str(data / "train.json"), eval=str(data / "dev.json"))
    assert prepare(absolute, None, tmp_path / "run").counts["train"] == 20
    with pytest.raises(UserError, match="there is no file .*nowhere.json; check --set data_dir"):
        prepare(spec(train="nowhere.json"), data, tmp_path / "run")
    with pytest.raises(UserError, match="should read hf://OWNER/NAME/FILE"):
        prepare(spec(train="hf://owner/name"), data, tmp_path / "run")


def test_skipped_records_are_counted_listed_and_logged(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (data / "train.json").write_text(json.dumps([record(0), {"_id": "broken"}]))
    with pytest.raises(RecordError, match="record 2"):
        prepare(spec(), data, tmp_path / "run")
    prepared = prepare(spec(skip_invalid=True), data, tmp_path / "run")
    assert prepared.counts["skipped"] == 1
    assert "train.json: record 2" in prepared.skipped[0]
    assert "skipped 1 malformed records" in caplog.text
    caplog.clear()
    assert prepare(spec(skip_invalid=True), data, tmp_path / "run") == prepared
    assert "train.json: record 2" in caplog.text


def test_a_question_in_two_files_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="dataset.train: question q0 is in more than one file"):
        prepare(spec(train=["train.json", "train.json"]), data, tmp_path / "run")


def test_a_generated_world_needs_no_files(tmp_path: Path) -> None:
    world = DatasetSpec(format="world", world=WorldSpec(train_questions=30, eval_questions=10), train_questions=12)
    prepared = prepare(world, None, tmp_path / "run")
    assert (prepared.counts["train"], prepared.counts["eval"]) == (12, 10)
    assert prepared.counts["passages"] > 0
    assert prepared.counts["triples"] > 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"format": "mixed", "mixture": [{"format": "jsonl", "eval": "x"}], "train_questions": 0},
            "format mixed takes its questions from its mixture; remove train_questions",
        ),
        ({"format": "world", "train": "x"}, "format world is generated; remove train"),
        ({"format": "world", "context_passages": 3}, "format world is generated; remove context_passages"),
        ({"format": "nq", "train": "x", "world": {}}, "world is for format world"),
        ({"format": "nq"}, "name question files"),
        ({"format": "nq", "eval": "x", "labels": "y"}, "labels is for formats qald10 and 2wikimultihopqa"),
        ({"format": "squad", "eval": "x"}, "format"),
    ],
)
def test_contradictory_dataset_specs_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DatasetSpec(**fields)


def hotpot(number: int) -> dict[str, Any]:
    return {key: value for key, value in record(number).items() if not key.startswith("evidences")}


def mixture(**second: Any) -> DatasetSpec:
    parts = [
        {"format": "2wikimultihopqa", "train": "train.json", "eval": "dev.json", "train_questions": 3},
        {"format": "hotpotqa", "eval": "hotpot.json", **second},
    ]
    return DatasetSpec.model_validate({"format": "mixed", "mixture": parts})


def test_a_mixture_is_its_datasets_one_after_the_other(data: Path, tmp_path: Path) -> None:
    (data / "hotpot.json").write_text(json.dumps([hotpot(n) for n in range(100, 104)]))
    prepared = prepare(mixture(eval_questions=2), data, tmp_path / "run")
    # The corpus is that of all questions, drawn or not: A0 to A24, A100 to A103, and the one Common.
    assert prepared.counts == {"train": 3, "eval": 7, "passages": 30, "triples": 0, "skipped": 0}
    assert {q.dataset for q in questions(tmp_path / "run", "train")} == {"2wikimultihopqa"}
    assert [q.dataset for q in questions(tmp_path / "run", "eval")] == ["2wikimultihopqa"] * 5 + ["hotpotqa"] * 2
    assert questions(tmp_path / "run", "train") == questions_alone(data, tmp_path)
    (data / "hotpot.json").write_text(json.dumps([hotpot(n) for n in range(101, 105)]))
    assert prepare(mixture(eval_questions=2), data, tmp_path / "run").eval != prepared.eval


def test_a_mixture_with_a_corpus_searches_it_alone(data: Path, tmp_path: Path) -> None:
    (data / "hotpot.json").write_text(json.dumps([hotpot(100)]))
    (data / "wiki.jsonl").write_text('{"id": "7", "contents": "\\"A\\"\\nOf all."}\n')
    whole = mixture().model_copy(update={"corpus": ("wiki.jsonl",)})
    before = prepare(whole, data, tmp_path / "run")
    assert read_corpus(tmp_path / "run").passages == [Passage(id="7", title="A", text="Of all.")]
    (data / "wiki.jsonl").write_text('{"id": "7", "contents": "\\"A\\"\\nOf some."}\n')
    assert prepare(whole, data, tmp_path / "run").passages != before.passages


def questions_alone(data: Path, tmp_path: Path) -> list[Question]:
    prepare(spec(train_questions=3), data, tmp_path / "alone")
    return questions(tmp_path / "alone", "train")


def test_a_mixture_with_a_question_twice_is_refused(data: Path, tmp_path: Path) -> None:
    (data / "hotpot.json").write_text(json.dumps([hotpot(22)]))
    with pytest.raises(RecordError, match="question q22 is in more than one file"):
        prepare(mixture(), data, tmp_path / "run")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format": "mixed"}, "a list of datasets must be given for format mixed"),
        ({"format": "world", "mixture": [{"format": "world"}]}, "and only for it"),
        ({"format": "mixed", "mixture": [{"format": "world"}], "train_questions": 5}, "remove train_questions"),
        ({"format": "mixed", "mixture": [{"format": "mixed", "mixture": [{"format": "world"}]}]}, "side by side"),
    ],
)
def test_contradictory_mixture_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DatasetSpec.model_validate(content)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("~nosuchuser/train.json", "there is no such home directory; give a path that begins with /$"),
        ("~/no-such-file.json", r"there is no file /.*/no-such-file\.json \["),
        ("a" * 300, r"there is no file /.*; check --set data_dir=DIR"),
        ("hf://some owner/name/train.json", "could not be fetched from the hub: Repo id must"),
    ],
)
def test_path_that_leads_to_no_file_is_one_error(data: Path, tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        prepare(spec(train=path), data, tmp_path / "run")


def test_altered_digests_of_prepared_data_are_one_error(data: Path, tmp_path: Path) -> None:
    prepare(spec(), data, tmp_path)
    path = tmp_path / "corpus/digests.json"
    path.write_text(path.read_text().replace('"counts"', '"count"'))
    with pytest.raises(UserError, match=r"digests\.json: counts: Field required, so it was altered"):
        prepare(spec(), data, tmp_path)


def test_world_with_fewer_passages_than_a_context_is_refused(tmp_path: Path) -> None:
    world = WorldSpec(entities=103, context=103, train_questions=3, eval_questions=3, comparisons=0)
    with pytest.raises(UserError, match=r"world\.context is 103, but the world has only 101 passages; lower it"):
        prepare(DatasetSpec(format="world", world=world), None, tmp_path)
