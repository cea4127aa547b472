"""2WikiMultihopQA: answer, supporting-fact, evidence and joint scores of ``2wikimultihop_evaluate_v1.1.py``.

Predictions have HotpotQA's format plus ``evidence`` {id: [[head, relation, tail]]}. Titles of supporting facts are
compared in lower case, evidence triples without case, punctuation and extra space. With the official
``id_aliases.json`` an alias of an entity counts like its name; without this file the scores equal the script's with an
empty alias file.

Two oddities of the script are kept: facts are deduplicated *before* titles are lowercased, so two spellings of a title
count as two; and with aliases several predicted triples may match one gold triple, each counting towards recall.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path

import msgspec

from platform_sdk.data.aliases import Aliases, read_aliases
from platform_sdk.data.files import read_json
from platform_sdk.display import shortened
from platform_sdk.evaluation.metrics.hotpotqa import Fact
from platform_sdk.evaluation.metrics.parts import Part, answer_part, counted, set_part, tabulate
from platform_sdk.evaluation.metrics.scores import Scores, count_unknown, require_questions
from platform_sdk.record_files import RecordError

_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
NameTriple = tuple[str, str, str]


class Gold(msgspec.Struct, gc=False):
    """The fields of a question that scoring needs."""

    answer: str
    supporting_facts: frozenset[tuple[str, int]]
    evidences: list[NameTriple]
    id: str = msgspec.field(name="_id")
    answer_id: str | None = None
    evidences_id: list[NameTriple] = msgspec.field(default_factory=list)


class Predictions(msgspec.Struct):
    """A prediction file."""

    answer: dict[str, str]
    sp: dict[str, frozenset[Fact]]
    evidence: dict[str, list[tuple[str, ...]]]


def score(gold: Path, predictions: Path, aliases: Path | None = None) -> Scores:
    """Score a prediction file; the columns have the script's names.

    Args:
        gold: the official list of questions (contexts may be left out).
        predictions: the prediction file.
        aliases: the official ``id_aliases.json`` (JSONL of ``Q_id, aliases, demonyms``), or nothing.

    Raises:
        RecordError: a file is malformed.
    """
    questions = read_json(gold, list[Gold])
    require_questions(gold, len(questions))
    predicted = read_json(predictions, Predictions)
    names = read_aliases(aliases) if aliases else {}
    if names:
        _check_evidence_ids(gold, questions)
    rows = _rows(predictions, questions, predicted, names)
    ids = [question.id for question in questions]
    unknown = count_unknown(ids, predicted.answer, predicted.sp, predicted.evidence)
    return tabulate(ids, ("", "sp_", "evi_"), rows, unknown)


def _rows(
    path: Path, questions: list[Gold], predicted: Predictions, names: Aliases
) -> Iterator[tuple[Part | None, Part | None, Part | None]]:
    for question in questions:
        answer = predicted.answer.get(question.id)
        facts = predicted.sp.get(question.id)
        evidence = predicted.evidence.get(question.id)
        yield (
            None if answer is None else _answer(answer, question, names),
            None if facts is None else _facts(path, question, facts),
            None if evidence is None else _evidence(evidence, question, names),
        )


def _answer(prediction: str, question: Gold, names: Aliases) -> Part:
    """Score against the answer and its aliases; each of the four numbers is maximised separately."""
    best = answer_part(prediction, question.answer, "2wikimultihopqa")
    aliases = names.get(question.answer_id or "")
    if not aliases:
        return best
    parts = [best, *(answer_part(prediction, alias, "2wikimultihopqa") for alias in aliases)]
    em, f1, precision, recall = map(max, zip(*parts, strict=True))
    return em, f1, precision, recall


def _facts(path: Path, question: Gold, facts: frozenset[Fact]) -> Part:
    try:
        predicted = [(fact[0].lower(), *fact[1:]) for fact in facts]  # type: ignore[union-attr]
    except (IndexError, AttributeError) as error:
        raise RecordError(f"{path}: sp.{shortened(question.id)}: a supporting fact must begin with a title") from error
    wanted = [(title.lower(), sentence) for title, sentence in question.supporting_facts]
    predicted_once, wanted_once = frozenset(predicted), frozenset(wanted)
    if len(predicted_once) == len(predicted) and len(wanted_once) == len(wanted):
        return set_part(predicted_once, wanted_once)
    right = sum(fact in wanted_once for fact in predicted)
    missed = sum(fact not in predicted_once for fact in wanted)
    return counted(right, len(predicted), right, right + missed)


def _evidence(evidence: list[tuple[str, ...]], question: Gold, names: Aliases) -> Part:
    predicted = {tuple(map(normalize_evidence, triple)) for triple in evidence}
    if not names:
        golds = {tuple(map(normalize_evidence, triple)) for triple in question.evidences}
        right = len(predicted & golds)
        return counted(right, len(predicted), right, len(question.evidences))
    wanted: set[tuple[str, ...]] = set()
    for position, (head, relation, tail) in enumerate(question.evidences):
        heads, tails = [head], [tail]
        if question.evidences_id:
            head_id, _, tail_id = question.evidences_id[position]
            heads += names.get(head_id, ())
            tails += names.get(tail_id, ())
        wanted.update(
            (normalize_evidence(h), normalize_evidence(relation), normalize_evidence(t))
            for h, t in product(heads, tails)
        )
    right = len(predicted & wanted)
    return counted(right, len(predicted), right, len(question.evidences))


@lru_cache(maxsize=1 << 17)
def normalize_evidence(text: str) -> str:
    """Lowercase, drop ASCII punctuation and collapse whitespace; articles stay."""
    return " ".join(text.lower().translate(_DROP_PUNCTUATION).split())


def _check_evidence_ids(path: Path, questions: list[Gold]) -> None:
    for number, question in enumerate(questions, start=1):
        ids = [triple[1] for triple in question.evidences_id]
        if ids and ids != [triple[1] for triple in question.evidences]:
            raise RecordError(
                f"{path}: record {number}: evidences_id: does not name the relations of evidences in turn"
            )
