"""A small prepared run to build graphs of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from platform_sdk.data.corpus import Corpus, TripleStore
from platform_sdk.records import Passage, Triple

PASSAGES = [
    Passage(
        id="ada",
        title="Ada Lovelace",
        text="Ada Lovelace (10 December 1815) wrote notes on the Analytical Engine. She knew Dr. Charles Babbage well.",
    ),
    Passage(id="engine", title="Analytical Engine", text="The Analytical Engine was designed by Charles Babbage."),
    Passage(id="film", title="Conceiving Ada (film)", text="Conceiving Ada is a film of 1997 about Ada Lovelace."),
    Passage(id="paris", title="Paris", text="Paris lies on the Seine. It is the capital of France. The Seine is long."),
    Passage(id="empty", title="Nothing", text=" "),
    Passage(id="seine", title="Seine", text="The Seine flows through Paris and Rouen, e.g. past the Louvre in Paris."),
]
TRIPLES = [
    Triple(head="Paris", relation="country", tail="France"),
    Triple(head="Conceiving Ada", relation="main subject", tail="Ada Lovelace"),
    Triple(head="Rouen", relation="country", tail="France"),
]

PrepareRun = Callable[..., Path]


@pytest.fixture
def prepare_run(tmp_path: Path) -> PrepareRun:
    """Return a function that writes passages and triples into a run directory of that name."""

    def prepare(name: str, passages: Sequence[Passage] = PASSAGES, triples: Sequence[Triple] = TRIPLES) -> Path:
        Corpus(passages).save(tmp_path / name / "corpus" / "passages.jsonl")
        TripleStore(triples).save(tmp_path / name / "corpus" / "triples.jsonl")
        return tmp_path / name

    return prepare
