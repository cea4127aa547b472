"""Collections side by side in one service: one that is missing, slow or hanging touches no other."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from platform_sdk.cli.serve import of_recipe
from platform_sdk.config.errors import UserError
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.retrieval.environments import open_retriever
from platform_sdk.retrieval.remote import RemoteRetriever
from platform_sdk.retrieval.service.hosting import Host
from platform_sdk.retrieval.service.metrics import Metrics
from platform_sdk.retrieval.service.tokens import Tokens
from platform_sdk.sampling.rollout import SearchRequest
from tests.process_watch import wait_for
from tests.retrieval.processes import STARTED_WITHIN, Embeddings, served

WORLD = Path(__file__).parents[3] / "pipelines/mygo/world.yaml"
BODY = {"queries": [{"query": "who"}], "k": 1}


@pytest.fixture
def slow() -> Iterator[Embeddings]:
    """An encoder that answers no search until its gate is opened."""
    with Embeddings() as server:
        server.gate.clear()
        yield server


def collection(name: str, run_dir: Path, encoder: Embeddings, *teams: str) -> CollectionSpec:
    own = encoder.spec().model_copy(update={"uri": str(run_dir / "index" / f"{name}.db")})
    return CollectionSpec(name=name, run_dir=run_dir, environment="world-text", retrieval=own, teams=teams)


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_collection_that_fails_to_open_leaves_others_available(
    world: Path, tmp_path: Path, embeddings: Embeddings
) -> None:
    (tmp_path / "tokens").mkdir()
    for team in ("red", "blue"):
        (tmp_path / "tokens" / team).write_text(f"{team}-secret")
    bad = tmp_path / "bad"  # a corpus that was not prepared
    spec = ServiceSpec(collections=(collection("bad", bad, embeddings, "red"), collection("good", world, embeddings)))
    with (
        served(spec, Tokens(tmp_path / "tokens")) as url,
        httpx.Client(base_url=url, headers={"Authorization": "Bearer red-secret"}) as red,
        httpx.Client(base_url=url, headers={"Authorization": "Bearer blue-secret"}) as blue,
    ):
        answer = blue.post("/v1/search", json=BODY | {"collection": "good"})
        assert len(answer.json()["results"][0]["evidence"]) == 1
        closed = red.post("/v1/search", json=BODY | {"collection": "bad"})
        assert refused(closed) == (503, "failed")
        assert int(closed.headers["Retry-After"]) > 0
        assert "bad/corpus" in closed.json()["error"]["message"]
        assert refused(blue.post("/v1/search", json=BODY | {"collection": "bad"})) == (404, "no_such_collection")

        ready = red.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        assert "collection bad: " in ready.json()["detail"]  # so the refusal of its searches is explained
        codes = {name: red.get("/readyz", params={"collection": name}).status_code for name in ("bad", "good", "worse")}
        assert codes == {"bad": 503, "good": 200, "worse": 404}
        digest = answer.json()["corpus_digest"]
        assert red.get("/readyz", params={"digest": digest}).status_code == 200
        assert red.get("/readyz", params={"digest": digest, "collection": "bad"}).status_code == 503
        assert red.get("/readyz", params={"digest": "other"}).status_code == 503  # it may be that of the bad one

        listed = {one["name"]: one for one in red.get("/v1/collections").json()}
        assert (listed["bad"]["status"]["status"], listed["bad"]["facts"]) == ("failed", None)
        assert listed["good"]["facts"]["corpus_digest"] == digest
        with pytest.raises(UserError, match=r"bad/corpus.*waited 0.01 s"), pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOPFORGE_RETRIEVER_TOKEN", "red-secret")
            RemoteRetriever(url, "bad", patience=0.01)

        shutil.copytree(world / "corpus", bad / "corpus")  # and then it is, without a restart
        wait_for(lambda: red.get("/readyz", params={"collection": "bad"}).status_code == 200)
        assert red.post("/v1/search", json=BODY | {"collection": "bad"}).status_code == 200


def test_slow_collection_build_does_not_delay_other_collections(
    world: Path, embeddings: Embeddings, slow: Embeddings, caplog: pytest.LogCaptureFixture
) -> None:
    spec = ServiceSpec(collections=(collection("slow", world, slow), collection("quick", world, embeddings)))
    with served(spec, ready=False) as url, ThreadPoolExecutor(1) as pool:
        wait_for(lambda: httpx.get(f"{url}/readyz", params={"collection": "quick"}).status_code == 200)
        with RemoteRetriever(url, "quick") as remote:
            assert len(remote.search([SearchRequest("who")], 1)[0]) == 1
        assert refused(httpx.post(f"{url}/v1/search", json=BODY | {"collection": "slow"})) == (503, "loading")
        ready = httpx.get(f"{url}/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "loading")
        assert ready.json()["detail"].startswith("collection slow: ")
        waiting = pool.submit(RemoteRetriever, url, "slow")
        wait_for(lambda: "waiting up to" in caplog.text)
        assert not waiting.done()
        slow.gate.set()
        with waiting.result() as remote:
            assert len(remote.search([SearchRequest("who")], 1)[0]) == 1
        assert httpx.get(f"{url}/readyz").json() == {"status": "ready", "detail": ""}


def test_hanging_collection_fills_only_its_own_queue(world: Path, embeddings: Embeddings, slow: Embeddings) -> None:
    slow.gate.set()
    spec = ServiceSpec(
        collections=(collection("slow", world, slow), collection("quick", world, embeddings)),
        queue=4,
        deadline_seconds=STARTED_WITHIN,
    )
    metrics = Metrics()
    with (
        served(spec, metrics=metrics) as url,
        httpx.Client(base_url=url, timeout=STARTED_WITHIN) as client,
        ThreadPoolExecutor(5) as pool,
    ):
        slow.gate.clear()

        def ask(name: str, query: str) -> int:
            body = {"queries": [{"query": query}], "k": 1, "collection": name}
            return client.post("/v1/search", json=body).status_code

        try:
            hanging = [pool.submit(ask, "slow", "who is under way")]
            wait_for(lambda: "who is under way" in slow.asked)
            hanging += [pool.submit(ask, "slow", f"who is {number}") for number in range(4)]
            wait_for(lambda: 'queue_queries{collection="slow"} 4.0' in metrics.text())
            assert ask("slow", "who is too many") == 429
            assert [ask("quick", f"who is {number}") for number in range(20)] == [200] * 20
            assert not any(one.done() for one in hanging)
        finally:
            slow.gate.set()
        assert [one.result() for one in hanging] == [200] * 5


def test_host_stopped_while_loading_keeps_the_status_stopping(world: Path, slow: Embeddings) -> None:
    spec = collection("slow", world, slow)
    slow.gate.set()
    open_retriever(spec.environment, world, spec.retrieval, show_progress=False).close()
    slow.gate.clear()  # so that nothing is built, and only the encoder is waited for
    slow.asked = []

    async def main() -> None:
        host = Host(ServiceSpec(collections=(spec,)), Metrics())
        async with host.open():
            while not slow.asked:  # it is being loaded
                await asyncio.sleep(0.05)
            assert host.status.status == "loading"
            host.leave()
            assert host.status.status == "stopping"
            slow.gate.set()
            async with asyncio.timeout(STARTED_WITHIN):
                while not host.collections_of(None)[0].facts:  # it is open in the end
                    assert host.status.status == "stopping"
                    await asyncio.sleep(0.05)
            assert host.status.status == "stopping"

    # In a thread of its own: the browser of other tests leaves an event loop running in the main one.
    with ThreadPoolExecutor(1) as aside:
        aside.submit(lambda: asyncio.run(main())).result()


def test_a_service_asks_no_other_service(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a service searches its own index"):
        CollectionSpec(name="x", run_dir=Path("x"), environment="hotpot", retrieval=RetrievalSpec(url="http://y"))
    # A recipe may name the very service that is started from it.
    [served] = of_recipe(WORLD, ["retrieval.url=http://127.0.0.1:8080"], tmp_path).collections
    assert (served.retrieval.url, served.retrieval.encoder) == (None, RetrievalSpec().encoder)
