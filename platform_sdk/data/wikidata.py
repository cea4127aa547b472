"""Triples from a Wikidata dump: the official JSON dump in, the TSV of ``dataset.triples`` out.

The dump (``latest-all.json``, also compressed: ``.gz``, ``.bz2``) is a JSON list with one entity per line. It is read
twice, line by line: for the statements of the requested entities, then for the labels in these statements. Only these
labels are kept in memory, so a dataset's entities need no large machine.

Statements of rank normal or preferred are kept if their value is an item, a point in time, a quantity or a text, but no
external id, URL or file. Items without an English label are called by their id. Dates have the format of most of
2WikiMultihopQA's answers: ``15 August 1947``.
"""

from __future__ import annotations

import re
import tempfile
from calendar import month_name
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from platform_sdk.data.files import REFUSED
from platform_sdk.data.streams import lines_in
from platform_sdk.display import excerpt
from platform_sdk.errors import UserError
from platform_sdk.outputs import writing_output
from platform_sdk.record_files import RecordError

_ID = re.compile(r"[QPL][0-9]+(-[FS][0-9]+)?")  # items, properties, lexemes, their forms and senses
HEADER = ("head_id", "head", "relation", "tail_id", "tail")
LANGUAGE = "en"
FOREIGN = ("external-id", "url", "commonsMedia", "geo-shape", "tabular-data")
"""Datatypes of texts that do not state facts."""


class Text(msgspec.Struct):
    value: str


class Snak(msgspec.Struct):
    snaktype: str
    datatype: str = ""
    datavalue: dict[str, Any] = {}


class Statement(msgspec.Struct):
    mainsnak: Snak
    rank: str = "normal"


class Entity(msgspec.Struct):
    """Used fields of a line of the dump; missing labels or claims are ``[]``."""

    id: str
    labels: dict[str, Text] | list[Any] = msgspec.field(default_factory=dict)
    claims: dict[str, list[Statement]] | list[Any] = msgspec.field(default_factory=dict)

    @property
    def label(self) -> str:
        labels = self.labels if isinstance(self.labels, dict) else {}
        return _line(labels[LANGUAGE].value) if LANGUAGE in labels else self.id


def convert_wikidata(dump: Path, output: Path, heads: frozenset[str] = frozenset()) -> int:
    """Write the triples of a dump as TSV; return their number.

    Args:
        heads: ids of the entities whose statements are kept; empty for all.

    Raises:
        RecordError: the dump cannot be read, or a line is not an entity.
        UserError: the dump holds no statement of the requested entities.
    """
    rows = 0
    named: set[str] = set()
    with tempfile.TemporaryFile("w+", encoding="utf-8", dir=output.parent) as found:
        for number, entity in _entities(dump):
            if heads and entity.id not in heads:
                continue
            for property, tail_id, tail in _checked_statements(dump, number, entity):
                named |= {property, tail_id} - {""}
                found.write("\t".join((entity.id, entity.label, property, tail_id, tail)) + "\n")
                rows += 1
        if not rows:
            raise UserError(f"{dump}: holds no statement of the wanted entities; check the dump and the list of ids")
        labels = {entity.id: entity.label for _, entity in _entities(dump) if entity.id in named}
        found.seek(0)
        with writing_output(output) as out:
            out.write(("\t".join(HEADER) + "\n").encode())
            for line in found:
                head_id, head, property, tail_id, tail = line.rstrip("\n").split("\t")
                name = labels.get(tail_id, tail_id) if tail_id else tail
                out.write(("\t".join((head_id, head, labels.get(property, property), tail_id, name)) + "\n").encode())
    return rows


def _entities(dump: Path) -> Iterator[tuple[int, Entity]]:
    """Yield the entities of a dump with their line numbers."""
    decoder = msgspec.json.Decoder(Entity)
    for number, line in enumerate(lines_in(dump), start=1):
        text = line.strip().removesuffix(b",")
        if text in (b"", b"[", b"]"):
            continue
        try:
            yield number, decoder.decode(text)
        except REFUSED as error:
            raise RecordError(f"{dump}: line {number}: is not an entity of a Wikidata dump: {error}") from error


def _checked_statements(dump: Path, number: int, entity: Entity) -> Iterator[tuple[str, str, str]]:
    """Yield the checked results of ``_statements``.

    Raises:
        RecordError: an id is not a Wikidata id, so it could shift the columns, or a date cannot be parsed.
    """
    where = f"{dump}: line {number}"
    try:
        statements = list(_statements(entity))
    except (ValueError, IndexError) as error:
        raise RecordError(f"{where}: holds a date that is not of the form +1947-08-15T00:00:00Z") from error
    ids = [entity.id, *(id for property, tail_id, _ in statements for id in (property, tail_id) if id)]
    if wrong := next((id for id in ids if not _ID.fullmatch(id)), None):
        raise RecordError(f"{where}: {excerpt(wrong)} is no id of Wikidata, which looks like Q42 or P31")
    yield from statements


def _statements(entity: Entity) -> Iterator[tuple[str, str, str]]:
    """Yield property, the value's id for an item, and its text otherwise."""
    for property, statements in entity.claims.items() if isinstance(entity.claims, dict) else ():
        for statement in statements:
            snak = statement.mainsnak
            if statement.rank == "deprecated" or snak.snaktype != "value" or snak.datatype in FOREIGN:
                continue
            value = _value(snak.datavalue)
            if value is not None:
                yield property, *value


def _value(datavalue: dict[str, Any]) -> tuple[str, str] | None:
    value = datavalue.get("value")
    match datavalue.get("type"), value:
        case "wikibase-entityid", {"id": str(id)}:
            return id, ""
        case "time", {"time": str(time), "precision": int(precision)}:
            return "", _date(time, precision)
        case "quantity", {"amount": str(amount)}:
            return "", _line(amount.removeprefix("+"))
        case "monolingualtext", {"text": str(text)}:
            return "", _line(text)
        case "string", str(text):
            return "", _line(text)
    return None


def _date(time: str, precision: int) -> str:
    """Format ``+1947-08-15T00:00:00Z`` with a precision (11: day, 10: month): ``15 August 1947``."""
    year, month, day = time[1:].partition("T")[0].split("-")
    parts = (day.lstrip("0"), month_name[int(month)], year.lstrip("0") or "0")
    return " ".join(parts[min(max(0, 11 - precision), 2) :]) + " BC" * time.startswith("-")


def _line(text: str) -> str:
    """Return a text escaped for a TSV field."""
    return " ".join(text.split())
