"""Detection of a question file's dataset by the fields of its first record."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

from platform_sdk.files import open_regular
from platform_sdk.record_files import RecordError

_HEAD = 1 << 20
"""Bytes that are read of a file: more than any first record of the shipped formats."""
_LIST_OF_RECORDS = re.compile(r'"(Data|questions)"\s*:\s*\[\s*\{')
_KEY = {"Data": "triviaqa", "questions": "qald10"}
_COLUMNS = {"\t": ("popqa", {"id", "question", "possible_answers"}), ",": ("bamboogle", {"Question", "Answer"})}


def question_formats(path: Path) -> frozenset[str]:
    """Return the shipped formats that the file's first record fits; none if no format is recognised.

    Raises:
        RecordError: the file cannot be read.
    """
    head = _head(path)
    if head[:1] == "{" and (found := _LIST_OF_RECORDS.search(head)):
        return frozenset({_KEY[found[1]]})
    if head[:1] in ("{", "["):
        return _json_formats(_first_fields(path, head))
    line = head.partition("\n")[0]
    return frozenset(
        name for separator, (name, columns) in _COLUMNS.items() if columns <= set(_columns(line, separator))
    )


def distractor_format(path: Path) -> str:
    """Return the dataset of a file of questions with passages, by its first record.

    Raises:
        RecordError: the file cannot be read, or is not HotpotQA, 2WikiMultihopQA or MuSiQue.
    """
    for name in ("musique", "2wikimultihopqa", "hotpotqa"):
        if name in question_formats(path):
            return name
    raise RecordError(f"{path}: not an official question file of HotpotQA, 2WikiMultihopQA or MuSiQue with passages")


def _head(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            data = stream.read(_HEAD)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    return data.decode("utf-8-sig", errors="replace").lstrip()


def _first_fields(path: Path, head: str) -> frozenset[str]:
    """Return the fields of the first JSON object of a list or of lines; none if its text is not JSON."""
    try:
        found, _ = json.JSONDecoder().raw_decode(head, head.index("{"))
    except ValueError:
        return frozenset()
    except RecursionError as error:
        raise RecordError(f"{path}: lists or objects are nested too deeply") from error
    return frozenset(found)


def _json_formats(fields: frozenset[str]) -> frozenset[str]:
    if "paragraphs" in fields or "question_decomposition" in fields:
        return frozenset({"musique"})
    if {"_id", "supporting_facts"} <= fields:
        # 2WikiMultihopQA's records are HotpotQA's with evidence triples, and can be read without these.
        return frozenset({"hotpotqa", "2wikimultihopqa"} if "evidences" in fields else {"hotpotqa"})
    if "question" in fields and fields & {"answer", "answers"}:
        return frozenset({"nq", "jsonl"} if "answers" in fields else {"nq"})
    return frozenset()


def _columns(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator, strict=True), [])
    except csv.Error:
        return []
