"""Detection of an official question file's dataset by its fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from platform_sdk.data.files import REFUSED, is_list, lines_of, parse_loose, read_bytes
from platform_sdk.record_files import RecordError


class _Marks(msgspec.Struct):
    """The fields that distinguish the formats; all others are skipped."""

    id: Any = msgspec.field(name="_id", default=None)
    supporting_facts: Any = None
    evidences: Any = None
    paragraphs: Any = None


def distractor_format(path: Path) -> str:
    """Return the dataset of a file of questions with passages, by its first record.

    Raises:
        RecordError: the file cannot be read, or is not HotpotQA, 2WikiMultihopQA or MuSiQue.
    """
    first = _first(path)
    if first is not None and first.paragraphs is not None:
        return "musique"
    if first is not None and first.id is not None and first.supporting_facts is not None:
        return "hotpotqa" if first.evidences is None else "2wikimultihopqa"
    raise RecordError(f"{path}: not an official question file of HotpotQA, 2WikiMultihopQA or MuSiQue with passages")


def _first(path: Path) -> _Marks | None:
    data = read_bytes(path)
    try:
        if is_list(data):
            return next(iter(msgspec.json.decode(data, type=list[_Marks])), None)
        return next((msgspec.json.decode(line, type=_Marks) for _, line in lines_of(data)), None)
    except REFUSED:
        # The standard library accepts some text that msgspec rejects; otherwise its error has the position.
        parsed = parse_loose(path, data if is_list(data) else next(lines_of(data))[1], "")
        found = parsed[0] if isinstance(parsed, list) and parsed else parsed
        return msgspec.convert(found, _Marks) if isinstance(found, dict) else None
