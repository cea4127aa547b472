"""Loaders of question files, official ones and one's own: records in, :class:`Question` out.

Each format is a struct that says which fields a record must have, and a function that makes a question of it.
What is odd in the official files but harmless is kept as found: a supporting fact that names a sentence beyond its
paragraph, a gold title that the context lacks, contexts of any number of paragraphs or none at all.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from platform_sdk.config.dataset import Format
from platform_sdk.data.aliases import Aliases, read_aliases
from platform_sdk.data.files import check, is_list, lines_of, parse_loose, read_bytes
from platform_sdk.data.plain import BadField, PlainRecord, plain_question
from platform_sdk.data.qald import EntityNames, QaldQuestion, accepted_answers, english, read_entity_names
from platform_sdk.display import shortened
from platform_sdk.record_files import RecordError, check_text
from platform_sdk.records import Hop, Passage, Question, Triple

_ENTITY_ID = re.compile(r"Q\d+")
NameTriple = tuple[str, str, str]


@dataclass(frozen=True)
class LoadedQuestions:
    """The questions of a file, and the message of each record that was left out."""

    questions: list[Question]
    skipped: list[str]


@dataclass(frozen=True)
class Names:
    """Further names of entities: QALD-10's by question, 2WikiMultihopQA's by entity."""

    qald: dict[str, EntityNames]
    aliases: Aliases


class HotpotRecord(msgspec.Struct):
    """HotpotQA's record; the context may be left out."""

    question: str
    answer: str
    supporting_facts: list[tuple[str, int]]
    id: str = msgspec.field(name="_id")
    type: str = ""
    context: list[tuple[str, list[str]]] = msgspec.field(default_factory=list)


class TwoWikiRecord(HotpotRecord, kw_only=True):
    """2WikiMultihopQA's record; ``evidences_id`` is empty where the dataset gives no ids."""

    evidences: list[NameTriple]
    answer_id: str | None = None
    evidences_id: list[NameTriple] = msgspec.field(default_factory=list)


class MusiqueParagraph(msgspec.Struct):
    """A paragraph of a MuSiQue record."""

    idx: int
    title: str
    paragraph_text: str
    is_supporting: bool


class MusiqueStep(msgspec.Struct):
    """A step of a MuSiQue question's decomposition."""

    question: str
    answer: str
    paragraph_support_idx: int | None = None


class MusiqueRecord(msgspec.Struct):
    """MuSiQue's record; the paragraphs may be left out."""

    id: str
    question: str
    answer: str
    answer_aliases: list[str]
    question_decomposition: list[MusiqueStep]
    paragraphs: list[MusiqueParagraph] = msgspec.field(default_factory=list)
    answerable: bool = True


class NqPassage(msgspec.Struct):
    """A passage of a gold-passage file."""

    title: str
    text: str
    isgold: bool = True


class NqRecord(msgspec.Struct):
    """NQ-open's record, or a gold-passage file's, which says ``answers`` and gives passages."""

    question: str
    answer: list[str] = msgspec.field(default_factory=list)
    answers: list[str] = msgspec.field(default_factory=list)
    ctxs: list[NqPassage] = msgspec.field(default_factory=list)


def load_questions(
    path: Path, format: Format, *, skip_invalid: bool = False, labels: Path | None = None
) -> LoadedQuestions:
    """Load a question file.

    Args:
        path: the file as the dataset's authors distribute it.
        format: which dataset it is of.
        skip_invalid: leave malformed records out and list them, instead of failing at the first.
        labels: further names of the entities. QALD-10's ``topic_entities.json``: without it an entity answer is its
            Wikidata id, and there are no topic entities. 2WikiMultihopQA's ``id_aliases.json``: without it only the
            answer itself is accepted.

    Raises:
        RecordError: the file cannot be read or holds no question, or a record is malformed: names file, record number
            and field.
    """
    names = Names(
        read_entity_names(labels) if labels and format == "qald10" else {},
        read_aliases(labels) if labels and format == "2wikimultihopqa" else {},
    )
    questions: list[Question] = []
    skipped: list[str] = []
    seen: set[str] = set()
    for where, parse in _records(path, format):
        try:
            question = _question(path, where, parse(), format, names)
            if (
                format in ("nq", "jsonl") and question.id in seen and not _named(parse())
            ):  # the same question may be asked twice, with other answers
                question = question.model_copy(update={"id": f"{question.id}-{len(seen)}"})
            if question.id in seen:
                raise RecordError(f"{path}: {where}id: {shortened(question.id)} is another record's too")
            check_text(path, where, question)
        except RecordError as error:
            if not skip_invalid:
                raise
            skipped.append(str(error))
            continue
        seen.add(question.id)
        questions.append(question)
    if not questions:
        raise RecordError(f"{path}: holds no question" + (f" that is valid; {skipped[0]}" if skipped else ""))
    return LoadedQuestions(questions, skipped)


def _records(path: Path, format: Format) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield where each record stands (``"record 3: "``) and a function that gives it as plain values."""
    data = read_bytes(path)
    if format in ("musique", "nq", "jsonl") and not is_list(data):
        for number, line in lines_of(data):
            where = f"{'line' if format == 'jsonl' else 'record'} {number}: "
            yield where, partial(parse_loose, path, line, where)
        return
    document = parse_loose(path, data, "")
    if format == "qald10":
        document = document.get("questions") if isinstance(document, dict) else None
    if not isinstance(document, list):
        raise RecordError(f"{path}: not a {format} file: {_EXPECTED.get(format, 'a JSON list of records')} is expected")
    for number, record in enumerate(document, start=1):
        yield f"record {number}: ", partial(_given, record)


def _named(record: Any) -> bool:
    """Return True if a record names its question itself, so that another of that name is a mistake."""
    return isinstance(record, dict) and record.get("id") is not None


def _given(record: Any) -> Any:
    return record


_EXPECTED = {"qald10": "an object with a list of questions"}


def _question(path: Path, where: str, record: Any, format: Format, names: Names) -> Question:
    try:
        match format:
            case "hotpotqa":
                return _hotpot(check(path, where, record, HotpotRecord))
            case "2wikimultihopqa":
                return _twowiki(check(path, where, record, TwoWikiRecord), names.aliases)
            case "musique":
                return _musique(check(path, where, record, MusiqueRecord))
            case "jsonl":
                return plain_question(check(path, where, record, PlainRecord))
            case "nq":
                return _nq(check(path, where, record, NqRecord))
            case "qald10":
                return _qald(check(path, where, record, QaldQuestion), names.qald)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{path}: {where}{field}: {first['msg']}") from error
    except (_Missing, BadField) as error:
        raise RecordError(f"{path}: {where}{error}") from error


class _Missing(ValueError):
    """A record has the fields of its format, but not what a question needs; says which field."""


def _context(id_: str, paragraphs: list[tuple[str, list[str]]], joint: str) -> tuple[Passage, ...]:
    return tuple(
        Passage(id=f"{id_}/{number}", title=title, text=joint.join(sentences).strip())
        for number, (title, sentences) in enumerate(paragraphs)
    )


def _hotpot(record: HotpotRecord) -> Question:
    titles = tuple(dict.fromkeys(title for title, _ in record.supporting_facts))
    return Question(
        id=record.id,
        text=record.question,
        answers=(record.answer,),
        dataset="hotpotqa",
        type=record.type,
        hops=len(titles) or None,
        gold_passages=titles,
        supporting_facts=tuple(record.supporting_facts),
        context=_context(record.id, record.context, ""),  # sentences carry their own leading space
    )


def _twowiki(record: TwoWikiRecord, aliases: Aliases) -> Question:
    triples = [
        Triple(head=head, relation=relation, tail=tail, head_id=_entity(head_id), tail_id=_entity(tail_id))
        for (head, relation, tail), (head_id, _, tail_id) in zip(record.evidences, _evidence_ids(record), strict=True)
    ]
    tails: set[str] = set()
    entry_points: dict[str, str] = {}
    for triple in triples:
        if triple.head not in tails:
            entry_points.setdefault(triple.head, triple.head_id)
        tails.add(triple.tail)
    return _hotpot(record).model_copy(
        update={
            "dataset": "2wikimultihopqa",
            "answers": tuple(dict.fromkeys([record.answer, *sorted(aliases.get(record.answer_id or "", ()))])),
            "gold_triples": tuple(triples),
            "topic_entities": tuple(entry_points),
            "topic_ids": tuple(entry_points.values()) if any(entry_points.values()) else (),
            "context": _context(record.id, record.context, " "),
        }
    )


def _evidence_ids(record: TwoWikiRecord) -> list[NameTriple]:
    """Return the ids of each evidence; blank ones where there are none or it is not certain whose they are.

    Some records list evidences entity by entity (A, A, B), but their ids in turn (A, B, A): by position, two entities
    would have one id. A relation's n-th entity has its n-th id, and the facts of both are in the same order.
    """
    names, ids = record.evidences, record.evidences_id
    if ids and len(ids) != len(names):
        raise _Missing(f"evidences_id: {len(ids)} entries, but evidences has {len(names)}")
    places, found = list(_places(names)), dict(zip(_places(ids), ids, strict=True))
    return [found[place] for place in places] if set(places) == set(found) else [("", "", "")] * len(names)


def _places(triples: Iterable[NameTriple]) -> Iterator[tuple[str, int, int]]:
    """Yield each triple's relation, which of the relation's heads it has, and which of that head's facts it is."""
    heads: defaultdict[str, dict[str, int]] = defaultdict(dict)
    facts: Counter[tuple[str, str]] = Counter()
    for head, relation, _ in triples:
        yield relation, heads[relation].setdefault(head, len(heads[relation])), facts[relation, head]
        facts[relation, head] += 1


def _entity(identifier: str) -> str:
    """Return a Wikidata id, and nothing for the dataset's placeholders (``date_information``)."""
    return identifier if _ENTITY_ID.fullmatch(identifier) else ""


def _musique(record: MusiqueRecord) -> Question:
    if not record.answerable:
        raise _Missing("answerable: false; only MuSiQue-Ans is supported")
    return Question(
        id=record.id,
        text=record.question,
        answers=tuple(dict.fromkeys([record.answer, *record.answer_aliases])),
        dataset="musique",
        type=record.id.partition("__")[0],
        hops=len(record.question_decomposition),
        gold_passages=tuple(dict.fromkeys(p.title for p in record.paragraphs if p.is_supporting)),
        context=tuple(
            Passage(id=f"{record.id}/{p.idx}", title=p.title, text=p.paragraph_text) for p in record.paragraphs
        ),
        gold_context=tuple(f"{record.id}/{p.idx}" for p in record.paragraphs if p.is_supporting),
        decomposition=tuple(
            Hop(question=step.question, answer=step.answer, passage=_supporting(record, step))
            for step in record.question_decomposition
        ),
    )


def _supporting(record: MusiqueRecord, step: MusiqueStep) -> str:
    found = [p.idx for p in record.paragraphs if p.idx == step.paragraph_support_idx]
    return f"{record.id}/{found[0]}" if found else ""


def _nq(record: NqRecord) -> Question:
    answers = record.answer or record.answers
    if not answers:
        raise _Missing("answer: missing or empty")
    id_ = "nq-" + hashlib.sha256(record.question.encode(errors="surrogatepass")).hexdigest()[:12]
    return Question(
        id=id_,
        text=record.question,
        answers=tuple(dict.fromkeys(answers)),
        dataset="nq",
        hops=1,
        gold_passages=tuple(dict.fromkeys(passage.title for passage in record.ctxs if passage.isgold)),
        context=tuple(
            Passage(id=f"{id_}/{number}", title=passage.title, text=passage.text)
            for number, passage in enumerate(record.ctxs)
        ),
    )


def _qald(record: QaldQuestion, names: dict[str, EntityNames]) -> Question:
    text = english(record)
    if text is None:
        raise _Missing("question: has no English wording")
    entities = names.get(str(record.id))
    answers = accepted_answers(record, entities.answer_labels if entities else {})
    if not answers:
        raise _Missing("answers: empty")
    # An entity's id and URI are names for scoring; an agent answers by label.
    literal = [name for answer in answers for name in (answer[:1] if answer[-1].startswith("http") else answer)]
    return Question(
        id=str(record.id),
        text=text,
        answers=tuple(dict.fromkeys(literal)),
        dataset="qald10",
        topic_entities=tuple(entities.topic_entity.values()) if entities else (),
        topic_ids=tuple(entities.topic_entity) if entities else (),
    )
