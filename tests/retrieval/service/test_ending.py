"""The service told to end while it builds an index, as a process of its own."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.retrieval.milvus import CHUNK
from platform_sdk.retrieval.service.hosting import LEAVE_SECONDS
from tests.retrieval.processes import Embeddings, Service, prepare_world, served, until


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Embeddings]:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with Embeddings() as server:
        yield server


def service_of(run_dir: Path, encoder: Embeddings) -> ServiceSpec:
    # A request holds a quarter of a chunk.
    retrieval = encoder.spec().model_copy(update={"batch_size": CHUNK // 4})
    return ServiceSpec(
        collections=(
            CollectionSpec(name="world", run_dir=run_dir, environment="world-text", retrieval=retrieval),
        )
    )  # fmt: skip


def test_a_build_is_left_within_seconds_and_the_next_start_goes_on_there(tmp_path: Path, encoder: Embeddings) -> None:
    rows = 5 * CHUNK
    prepare_world(tmp_path, entities=rows)
    encoder.pause = 1.0  # of each chunk, since its four requests go together: seconds of building are left
    with Service(tmp_path, service_of(tmp_path, encoder)) as service:
        until(lambda: f"{2 * CHUNK} of {rows} are indexed" in told(service))
        began = time.monotonic()
        assert service.end(signal.SIGTERM) == -signal.SIGTERM
        assert time.monotonic() - began < LEAVE_SECONDS
        assert not any("left as it is" in line or "Traceback" in line for line in service.printed)
    encoder.pause, encoder.texts = 0.0, []
    with served(service_of(tmp_path, encoder)):
        # A passage has a line for its title. One more than what was left: the first, which is compared.
        encoded = sum("\n" in text for text in encoder.texts)
    assert 0 < encoded <= rows - 2 * CHUNK + 1


def test_what_cannot_be_interrupted_is_not_waited_for(tmp_path: Path, encoder: Embeddings) -> None:
    prepare_world(tmp_path)
    encoder.gate.clear()
    with Service(tmp_path, service_of(tmp_path, encoder)) as service:
        until(lambda: "are indexed" in told(service))
        began = time.monotonic()
        assert service.end(signal.SIGINT) == 130  # Python itself would wait for the thread
        assert LEAVE_SECONDS < time.monotonic() - began < LEAVE_SECONDS + 4
        assert any("collection world is left as it is" in line for line in service.printed)


def told(service: Service) -> str:
    return service.status()[1].get("detail", "")
