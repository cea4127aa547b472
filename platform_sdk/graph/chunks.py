"""Splitting of passages into sentences and overlapping chunks.

Lengths are counted in words and punctuation marks: chunks are the same for every extractor and model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from platform_sdk.records import Passage

Span = tuple[int, int]
TOKEN = re.compile(r"\w+|[^\w\s]")
# A full stop with its quotation marks or brackets, and space before a possible start of a sentence.
_END = re.compile(r"(?<![.!?])[.!?]++[\"'”’)\]]*+\s++(?=[\"'“‘(\[]*[A-Z0-9À-ÖØ-Þ])|\n\s*\n|[。！？]")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'“‘])(?:[A-Z]|[A-Za-z](?:\.[A-Za-z])+|"
    r"Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Mt|Ft|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Gov|Sen|Rep|vs|etc|No|Nos|Vol|Inc|Ltd|Co|Corp|"
    r"approx|ca|cf|al|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.\s+$"
)


@dataclass(frozen=True)
class Chunk:
    """A piece of a passage: whole sentences, as spans of the passage's text. ``id`` follows from the content."""

    id: str
    passage: Passage
    sentences: tuple[Span, ...]

    @property
    def span(self) -> Span:
        return self.sentences[0][0], self.sentences[-1][1]

    @property
    def text(self) -> str:
        start, end = self.span
        return self.passage.text[start:end]


def sentences(text: str) -> list[Span]:
    """Return the spans of a text's sentences, without surrounding space."""
    ends = [
        match.end()
        for match in _END.finditer(text)
        if not _ABBREVIATION.search(text, max(0, match.start() - 20), match.end())
    ]
    spans = []
    for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
        stripped = text[start:end].strip()
        if stripped:
            start = text.index(stripped, start)
            spans.append((start, start + len(stripped)))
    return spans


def chunks(passage: Passage, size: int, overlap: int) -> Iterator[Chunk]:
    """Cut a passage into chunks of at most ``size`` tokens that share at most ``overlap``; longer sentences are cut."""
    pieces = [
        (span, count) for sentence in sentences(passage.text) for span, count in _cut(passage.text, *sentence, size)
    ]
    first = 0
    while first < len(pieces):
        last, total = first, 0
        while last < len(pieces) and total + pieces[last][1] <= size:
            total += pieces[last][1]
            last += 1
        spans = tuple(span for span, _ in pieces[first:last])
        content = "\x1f".join((passage.id, passage.title, str(spans[0][0]), passage.text[spans[0][0] : spans[-1][1]]))
        yield Chunk(hashlib.sha256(content.encode()).hexdigest()[:20], passage, spans)
        if last == len(pieces):
            return
        following, shared = last, 0
        while following > first + 1 and shared + pieces[following - 1][1] <= overlap:
            following -= 1
            shared += pieces[following][1]
        # The next chunk must reach past this one's end.
        first = following if shared + pieces[last][1] <= size else last


def _cut(text: str, start: int, end: int, size: int) -> Iterator[tuple[Span, int]]:
    tokens = [match.span() for match in TOKEN.finditer(text, start, end)] or [(start, end)]
    for at in range(0, len(tokens), size):
        part = tokens[at : at + size]
        yield (part[0][0], part[-1][1]), len(part)
