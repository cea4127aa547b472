"""The service told to end while it builds an index, as a process of its own."""

from __future__ import annotations

import signal
from pathlib import Path

from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.retrieval.encoding import CHUNK
from tests.process_watch import wait_for
from tests.retrieval.processes import Embeddings, Service, prepare_world, served


def service_of(run_dir: Path, encoder: Embeddings) -> ServiceSpec:
    # A request holds a quarter of a chunk.
    retrieval = encoder.spec().model_copy(update={"batch_size": CHUNK // 4})
    return ServiceSpec(
        collections=(
            CollectionSpec(name="world", run_dir=run_dir, environment="world-text", retrieval=retrieval),
        )
    )  # fmt: skip


def test_a_build_is_left_unfinished_and_the_next_start_resumes_it(tmp_path: Path, embeddings: Embeddings) -> None:
    rows = 3 * CHUNK
    prepare_world(tmp_path, entities=rows)
    embeddings.ungated = CHUNK
    embeddings.gate.clear()
    patient = "from platform_sdk.retrieval.service import hosting; hosting.LEAVE_SECONDS = 60"  # on a busy machine
    with Service(tmp_path, service_of(tmp_path, embeddings), before=patient) as service:
        wait_for(lambda: f"{CHUNK} of {rows} are indexed" in told(service) and passages(embeddings.asked) > CHUNK)
        service.process.send_signal(signal.SIGTERM)
        wait_for(lambda: any("Shutting down" in line for line in service.printed))
        embeddings.gate.set()  # the request that is under way is answered, and no other is made
        assert service.end(signal.SIGTERM) == -signal.SIGTERM
        assert not any("was not closed" in line or "Traceback" in line for line in service.printed)
    assert passages(embeddings.asked) < rows
    embeddings.asked = []
    with served(service_of(tmp_path, embeddings)):
        # One more than what was left: the first, which is compared.
        assert 0 < passages(embeddings.asked) <= rows - CHUNK + 1


def test_a_build_that_cannot_be_interrupted_is_not_waited_for(tmp_path: Path, embeddings: Embeddings) -> None:
    prepare_world(tmp_path)
    embeddings.gate.clear()
    hurried = "from platform_sdk.retrieval.service import hosting; hosting.LEAVE_SECONDS = 0.1"
    with Service(tmp_path, service_of(tmp_path, embeddings), before=hurried) as service:
        wait_for(lambda: "are indexed" in told(service))
        assert service.end(signal.SIGINT) == 130  # Python itself would wait for the thread
        assert any("collection world was not closed" in line for line in service.printed)


def passages(texts: list[str]) -> int:
    """Count the passages among the texts: each has a line for its title."""
    return sum("\n" in text for text in texts)


def told(service: Service) -> str:
    return service.status()[1].get("detail", "")
