"""Official releases of passages as ``corpus.jsonl``: HotpotQA's Wikipedia abstracts, and 2WikiMultihopQA's paragraphs.

HotpotQA's ``enwiki-20171001-pages-meta-current-withlinks-abstracts.tar.bz2`` may be packed or unpacked:
``AA/wiki_00.bz2`` and so on, each with a JSON object per line, whose ``text`` is a list of sentences. 2WikiMultihopQA's
``para_with_hyperlink.jsonl`` has ``sentences``; its question files (``train.json``, ``dev.json``, ``test.json``) have
the passages of the 2Wiki-Text environment as ``context``; repeated passages are written once.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from platform_sdk.data.files import REFUSED, is_list, read_bytes, read_json
from platform_sdk.data.streams import lines_in
from platform_sdk.errors import UserError
from platform_sdk.outputs import writing_output
from platform_sdk.record_files import RecordError

Release = Literal["hotpotqa", "2wikimultihopqa"]
JOINTS: dict[Release, str] = {"hotpotqa": "", "2wikimultihopqa": " "}
"""Separators of a passage's sentences: HotpotQA's sentences include their leading space."""


class Article(msgspec.Struct):
    """A line of a release of passages."""

    title: str
    text: list[str] = msgspec.field(default_factory=list)
    sentences: list[str] = msgspec.field(default_factory=list)


class QuestionPassages(msgspec.Struct):
    """The passages of a record of a question file."""

    context: list[tuple[str, list[str]]]


def convert_release(release: Release, sources: Sequence[Path], output: Path) -> int:
    """Write the passages of a release as JSONL of ``id``, ``title``, ``text``; return their number.

    Equal passages are written once; ids count from 0 in the order of the release. Blank passages are left out.

    Raises:
        RecordError: a file cannot be read, or has another format.
        UserError: no passage was found.
    """
    written = 0
    with writing_output(output) as out:
        for title, text in _distinct(passage for source in sources for passage in _passages(source, JOINTS[release])):
            line = {"id": str(written), "title": title, "text": text}
            out.write(json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n")
            written += 1
        if not written:
            raise UserError(f"{', '.join(map(str, sources))}: no passage found; name the release's files or folder")
    return written


def _distinct(passages: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    # By digest, since the texts of all Wikipedia abstracts would not fit in memory.
    seen: set[bytes] = set()
    for passage in passages:
        key = hashlib.blake2b(repr(passage).encode(), digest_size=16).digest()
        if passage[1] and key not in seen:
            seen.add(key)
            yield passage


def _passages(source: Path, joint: str) -> Iterator[tuple[str, str]]:
    if source.name.endswith(".json") and is_list(read_bytes(source)):
        for record in read_json(source, list[QuestionPassages]):
            for title, sentences in record.context:
                yield title, joint.join(sentences).strip()
        return
    decoder = msgspec.json.Decoder(Article)
    for where, line in _lines(source):
        try:
            article = decoder.decode(line)
        except REFUSED as error:
            raise RecordError(f"{where}: is not a passage of the release: {error}") from error
        yield article.title, joint.join(article.text or article.sentences).strip()


def _lines(source: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of a file, of the files in a folder, or of those in a tar archive, with the file's name."""
    if source.is_dir():
        for path in sorted(path for path in source.rglob("*") if path.suffix in (".bz2", ".jsonl")):
            yield from _lines(path)
    elif ".tar" in source.suffixes:
        try:
            with tarfile.open(source, "r|*") as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.name.endswith(".bz2") else None
                    if content is not None:
                        with bz2.open(content, "rb") as lines:
                            for line in lines:
                                yield f"{source}/{member.name}", line
        except (OSError, EOFError, tarfile.TarError) as error:
            raise RecordError(f"{source}: cannot be read: {error}") from error
    else:
        for line in lines_in(source):
            yield str(source), line
