"""Official releases made small: a Wikidata dump to triples, HotpotQA's Wikipedia and 2Wiki's files to a corpus."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.config.errors import UserError
from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.data.releases import convert_release
from platform_sdk.data.wikidata import convert_wikidata
from platform_sdk.record_files import RecordError


def entity(id: str, label: str | None, **claims: list[Any]) -> dict[str, Any]:
    labels = {"en": {"language": "en", "value": label}} if label else []
    return {"id": id, "type": "item", "labels": labels, "claims": claims or []}


def claim(type: str, value: Any, rank: str = "normal", datatype: str = "") -> dict[str, Any]:
    snak = {"snaktype": "value", "datatype": datatype or type, "datavalue": {"type": type, "value": value}}
    return {"mainsnak": snak, "rank": rank}


def item(id: str, rank: str = "normal") -> dict[str, Any]:
    return claim("wikibase-entityid", {"entity-type": "item", "id": id}, rank)


def time(text: str, precision: int) -> dict[str, Any]:
    return claim("time", {"time": text, "precision": precision})


ENTITIES = [
    entity(
        "Q1", "Amberfall\t(film)", P57=[item("Q2"), item("Q9", "deprecated")], P577=[time("+1947-08-15T00:00:00Z", 11)],
        P2047=[claim("quantity", {"amount": "+97", "unit": "Q7727"})],
        P1476=[claim("monolingualtext", {"text": "Amber"}), claim("string", "Ambre")],
        P345=[claim("string", "tt0000001", datatype="external-id")],
        P856=[claim("string", "http://amberfall.example", datatype="url")],
        P18=[claim("string", "Amberfall poster.jpg", datatype="commonsMedia")],
    ),
    entity("Q2", "Ida Roth", P569=[time("+1901-00-00T00:00:00Z", 9)], P27=[item("Q5")],
           P2031=[time("+1920-05-00T00:00:00Z", 10), time("-0044-03-05T00:00:00Z", 11)],
           P570=[{"mainsnak": {"snaktype": "somevalue"}, "rank": "normal"}]),
    entity("Q3", "Nobody's", P57=[item("Q2")]),
    entity("Q5", None),
    entity("P57", "director"), entity("P577", "publication date"), entity("P569", "date of birth"),
    entity("P27", "country of citizenship"), entity("P2047", "duration"),
]  # fmt: skip


def dump() -> bytes:
    return ("[\n" + ",\n".join(map(json.dumps, ENTITIES)) + "\n]\n").encode()


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".json", bytes), (".json.gz", gzip.compress), (".json.bz2", bz2.compress)]
)
def test_a_wikidata_dump_becomes_triples(tmp_path: Path, suffix: str, pack: Any) -> None:
    source, ids = tmp_path / f"dump{suffix}", tmp_path / "ids"
    source.write_bytes(pack(dump()))
    ids.write_text("Q1\nQ2\n")
    arguments = ["convert", str(source), "--from", "wikidata", "--entities", str(ids), "-o", str(tmp_path / "kg.tsv")]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).stdout.startswith("9 triples")
    found = TripleStore.load(tmp_path / "kg.tsv").triples
    assert [(t.head_id, t.head, t.relation, t.tail_id, t.tail) for t in found] == [
        ("Q1", "Amberfall (film)", "director", "Q2", "Ida Roth"),
        ("Q1", "Amberfall (film)", "publication date", "", "15 August 1947"),
        ("Q1", "Amberfall (film)", "duration", "", "97"),
        ("Q1", "Amberfall (film)", "P1476", "", "Amber"),  # a property that the dump does not label
        ("Q1", "Amberfall (film)", "P1476", "", "Ambre"),
        ("Q2", "Ida Roth", "date of birth", "", "1901"),
        ("Q2", "Ida Roth", "country of citizenship", "Q5", "Q5"),
        ("Q2", "Ida Roth", "P2031", "", "May 1920"),
        ("Q2", "Ida Roth", "P2031", "", "5 March 44 BC"),
    ]


def test_a_damaged_dump_names_its_line(tmp_path: Path) -> None:
    source = tmp_path / "dump.json"
    source.write_bytes(dump().replace(b'"id": "Q3"', b'"id": 3'))
    with pytest.raises(RecordError, match=r"dump.json: line 4: is not an entity"):
        convert_wikidata(source, tmp_path / "kg.tsv")
    assert not (tmp_path / "kg.tsv").exists()
    source.write_bytes(dump())
    with pytest.raises(UserError, match="no statement of the wanted entities"):
        convert_wikidata(source, tmp_path / "kg.tsv", frozenset({"Q77"}))


def test_a_damaged_archive_is_one_error(tmp_path: Path) -> None:
    source = tmp_path / "dump.json.gz"
    packed = bytearray(gzip.compress(dump()))
    packed[20:50] = bytes(30)
    source.write_bytes(packed)
    with pytest.raises(RecordError, match=r"dump\.json\.gz: cannot be read: "):
        convert_wikidata(source, tmp_path / "kg.tsv")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"id": "Q1"', '"id": "\\n"', "line 2: .* is no id of Wikidata"),
        ('"id": "Q1"', '"id": "Q1\\tQ2"', "line 2: .* is no id of Wikidata"),
        ('"id": "Q2"', '"id": "Q2\\t"', "is no id of Wikidata, which looks like Q42 or P31"),
        ("+1947-08-15T", "+1947-99-15T", "line 2: holds a date that is not of the form"),
        ("+1947-08-15T", "1947", "line 2: holds a date that is not of the form"),
    ],
)
def test_id_or_date_that_would_shift_columns_is_refused_with_its_line(
    old: str, new: str, fault: str, tmp_path: Path
) -> None:
    source = tmp_path / "dump.json"
    assert old in dump().decode()
    source.write_text(dump().decode().replace(old, new))
    with pytest.raises(RecordError, match=fault):
        convert_wikidata(source, tmp_path / "kg.tsv")
    assert not (tmp_path / "kg.tsv").exists()


ARTICLES = [
    {"id": "12", "title": "Amberfall", "text": ["Amberfall is a film.", " Ida Roth directed it."]},
    {"id": "13", "title": "Empty", "text": []},
    {"id": "14", "title": "Ida Roth", "text": ["Ida Roth was born in Oslo."]},
]


def packed(records: list[dict[str, Any]]) -> bytes:
    return bz2.compress("".join(json.dumps(record) + "\n" for record in records).encode())


def test_hotpotqas_wikipedia_becomes_a_corpus(tmp_path: Path) -> None:
    parts = {"abstracts/AA/wiki_00.bz2": packed(ARTICLES[:2]), "abstracts/AB/wiki_00.bz2": packed(ARTICLES[1:])}
    with tarfile.open(tmp_path / "abstracts.tar.bz2", "w:bz2") as archive:
        for name, data in parts.items():
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).write_bytes(data)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    for source in ("abstracts.tar.bz2", "abstracts"):
        assert convert_release("hotpotqa", [tmp_path / source], tmp_path / f"{source}.jsonl") == 2
        passages = Corpus.load(tmp_path / f"{source}.jsonl").passages
        assert [(p.id, p.title, p.text) for p in passages] == [
            ("0", "Amberfall", "Amberfall is a film. Ida Roth directed it."),
            ("1", "Ida Roth", "Ida Roth was born in Oslo."),
        ]


def test_2wikis_files_become_a_corpus_of_distinct_passages(tmp_path: Path) -> None:
    asked = [
        {"_id": "a", "question": "?", "context": [["T", ["One.", "Two."]], ["U", ["Three."]]]},
        {"_id": "b", "question": "?", "context": [["U", ["Three."]], ["U", ["Another U."]]]},
    ]
    (tmp_path / "test.json").write_text(json.dumps(asked))
    (tmp_path / "para.jsonl").write_text(json.dumps({"id": "1", "title": "T", "sentences": ["One.", "Two."]}) + "\n")
    for source, texts in (("test.json", ["One. Two.", "Three.", "Another U."]), ("para.jsonl", ["One. Two."])):
        output = tmp_path / f"{source}.corpus"
        arguments = ["convert", str(tmp_path / source), "--from", "2wikimultihopqa", "-o", str(output)]
        assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
        assert [passage.text for passage in Corpus.load(output).passages] == texts
    with pytest.raises(UserError, match="exists already"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    "text", [b'{"id": "Q1", "title": "\xff"}', b'{"id": "Q1", "title": "a", "x": ' + b"[" * 100_000]
)
def test_line_that_cannot_be_decoded_is_an_error_with_its_place(tmp_path: Path, text: bytes) -> None:
    source = tmp_path / "dump.json"
    source.write_bytes(b"[\n" + text.replace(b'"title"', b'"claims"').replace(b'"a"', b"{}") + b"\n]\n")
    with pytest.raises(RecordError, match=r"dump\.json: line 2: is not an entity of a Wikidata dump"):
        convert_wikidata(source, tmp_path / "kg.tsv")
    source = tmp_path / "articles.jsonl"
    source.write_bytes(text + b"\n")
    with pytest.raises(RecordError, match=r"articles\.jsonl: is not a passage of the release"):
        convert_release("hotpotqa", [source], tmp_path / "corpus.jsonl")
