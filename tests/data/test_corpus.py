"""Corpora and triple stores: loading, saving, digests."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from pathlib import Path

import pytest

from platform_sdk.data.corpus import Corpus, TripleStore, corpus_from_questions
from platform_sdk.record_files import RecordError
from platform_sdk.records import Passage, Question, Triple


def test_an_official_corpus_and_its_saved_form_have_one_digest(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(
        '{"id": "0", "title": "A", "text": "x"}\n\n{"id": "1", "title": "B", "text": "é"}\n'
    )
    corpus = Corpus.load(tmp_path / "c.jsonl")
    assert corpus.passages == [Passage(id="0", title="A", text="x"), Passage(id="1", title="B", text="é")]
    corpus.save(tmp_path / "saved.jsonl")
    again = Corpus.load(tmp_path / "saved.jsonl")
    assert again.passages == corpus.passages
    assert again.digest == corpus.digest
    by_hand = '{"id":"0","title":"A","text":"x"}\n{"id":"1","title":"B","text":"é"}\n'
    assert corpus.digest == hashlib.sha256(by_hand.encode()).hexdigest()
    assert Corpus(corpus.passages[::-1]).digest != corpus.digest


def test_invalid_corpora_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": "0", "title": "A", "text": "x"}\n{"id": "0", "title": "B", "text": "y"}\n')
    with pytest.raises(RecordError, match="record 2: id: 0 is another"):
        Corpus.load(path)
    path.write_text('{"id": "0", "title": "A"}\n')
    with pytest.raises(RecordError, match="line 1: .*`text`"):
        Corpus.load(path)


def test_a_corpus_as_of_wiki_18_has_its_titles_in_the_contents(tmp_path: Path) -> None:
    path = tmp_path / "wiki-18.jsonl"
    lines = [{"id": "0", "contents": '"Aaron"\nHe is "A".\nIn two lines.'}, {"id": "1", "contents": "B\nb"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert Corpus.load(path).passages == [
        Passage(id="0", title="Aaron", text='He is "A".\nIn two lines.'), Passage(id="1", title="B", text="b"),
    ]  # fmt: skip
    path.write_text('{"id": "0", "contents": 3}\n')
    with pytest.raises(RecordError, match="line 1: contents: Expected `str`"):
        Corpus.load(path)


def test_a_corpus_that_is_edited_while_it_is_in_use_is_refused(tmp_path: Path) -> None:
    written = [Passage(id=str(number), title="T", text="x" * number) for number in range(300)]
    path = tmp_path / "passages.jsonl"
    Corpus(written).save(path)
    passages = Corpus.load(path).passages
    assert (passages[7], passages[-1], passages[10:300:70]) == (written[7], written[-1], written[10:300:70])
    content = path.read_bytes()
    for altered in (content.replace(b'{"id":"7","title":"T"', b'{"id":"7","title":"U"'), content[:1000]):
        with path.open("r+b") as stream:  # the same file, not another in its place
            stream.truncate(0)
            stream.write(altered)
        with pytest.raises(RecordError, match=r"passages\.jsonl: was altered while it was in use"):
            list(passages)
        assert passages[2] == written[2]


def test_memory_of_a_corpus_does_not_grow_with_its_texts(tmp_path: Path) -> None:
    path = tmp_path / "passages.jsonl"
    Corpus([Passage(id=str(number), title="T", text="word " * 2_000) for number in range(2_000)]).save(path)
    tracemalloc.start()
    corpus = Corpus.load(path)
    assert sum(len(passage.text) for passage in corpus.passages) == 2_000 * len("word " * 2_000)
    assert corpus.digest
    _, highest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert highest < path.stat().st_size / 10


def test_a_corpus_from_contexts_holds_each_passage_once() -> None:
    def question(id_: str, *texts: str) -> Question:
        context = tuple(Passage(id=f"{id_}/{n}", title=t[0], text=t) for n, t in enumerate(texts))
        return Question(id=id_, text="?", answers=("x",), dataset="nq", context=context)

    corpus = corpus_from_questions([question("q", "a", "b"), question("r", "b", "ab", "a")])
    assert [(p.id, p.title, p.text) for p in corpus.passages] == [("0", "a", "a"), ("1", "b", "b"), ("2", "a", "ab")]


@pytest.mark.parametrize(
    "text",
    [
        'head_id\thead\trelation\ttail_id\ttail\nQ1\tThe "A"\tr\tQ2\tB\n',
        'question_id\thead_id\thead\tproperty_id\ttail_id_or_literal\ttail\n3\tQ1\tThe "A"\tr\tQ2\tB\n',
    ],
)
def test_triples_of_either_header(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.tsv").write_text(text + text.splitlines()[1] + "\n")
    store = TripleStore.load(tmp_path / "t.tsv")
    assert store.triples == [Triple(head='The "A"', relation="r", tail="B", head_id="Q1", tail_id="Q2")]
    store.save(tmp_path / "t.jsonl")
    assert TripleStore.load(tmp_path / "t.jsonl").digest == store.digest


def test_invalid_triples_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("head\ttail\n")
    with pytest.raises(RecordError, match="line 1: the header lacks relation"):
        TripleStore.load(path)
    path.write_text("head\trelation\ttail\na\tb\tc\na\tb\n")
    with pytest.raises(RecordError, match="line 3: 2 columns, but the header has 3"):
        TripleStore.load(path)


@pytest.mark.parametrize(
    ("name", "count"), [("hotpotqa", 6721), ("2wikimultihopqa", 8559), ("musique", 5976), ("nq", 5159)]
)
def test_real_corpora(real_data: Path, name: str, count: int) -> None:
    assert len(Corpus.load(real_data / name / "corpus.jsonl").passages) == count


def test_real_triples(real_data: Path) -> None:
    store = TripleStore.load(real_data / "2wikimultihopqa/kg_triples.tsv")
    assert len(store.triples) == 10152
    assert next(triple.tail for triple in store.triples if triple.head == "Les Champs Libres") == "France"
    assert len(TripleStore.load(real_data / "2wikimultihopqa/kg_distractors_trex_zsre.tsv").triples) == 8612


def test_long_fields_of_triples_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("head\trelation\ttail\r\na\tr\t" + "x" * 200_000 + "\n")
    assert [len(triple.tail) for triple in TripleStore.load(path).triples] == [200_000]
    path.write_bytes(b"head\trelation\ttail\na\tr\t\xff\n")
    with pytest.raises(RecordError, match="t.tsv: line 2: not UTF-8 text"):
        TripleStore.load(path)


def test_a_passage_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": "0", "title": "A", "text": "x"}\n{"id": "1", "title": "A", "text": "\\ud800"}\n')
    with pytest.raises(RecordError, match="c.jsonl: record 2: text: contains a lone surrogate"):
        Corpus.load(path)


def test_triples_with_a_byte_order_mark_and_both_columns_of_the_relation_are_read(tmp_path: Path) -> None:
    path = tmp_path / "kg.tsv"
    path.write_text("\ufeffhead\trelation\tproperty_id\ttail\nAda\tborn in\tP19\tOslo\n")
    assert TripleStore.load(path).triples == [Triple(head="Ada", relation="born in", tail="Oslo")]
