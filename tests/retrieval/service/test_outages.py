"""Milvus and the service killed and started again in the middle of rollouts and of load, as real processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Evidence, Question
from platform_sdk.retrieval.environments import build_retriever
from platform_sdk.retrieval.remote import RemoteRetriever
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.rollout import Agent, Generate, RetrieverFault, SearchFunction, SearchRequest, look_up, run
from platform_sdk.sampling.seeds import seed_of
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.process_watch import wait_for
from tests.refusals import refused
from tests.retrieval.processes import STARTED_WITHIN, Embeddings, Milvus, Process, Service, prepare_world, served
from tests.sampling.tiny_models import VOCABULARY, save_model

TURNS = 3


@dataclass(frozen=True)
class Place:
    """Places of everything: a prepared run directory, a Milvus server, the service over both, and a policy."""

    run_dir: Path
    milvus: Milvus
    service: Service
    direct: RetrievalSpec
    policy: Path

    @property
    def by_service(self) -> RetrievalSpec:
        return RetrievalSpec(url=self.service.url)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("outages")
    prepare_world(directory)
    policy = save_model(directory / "policy")
    with pytest.MonkeyPatch.context() as patch, Embeddings() as encoder, Milvus(directory / "milvus") as milvus:
        patch.setattr("platform_sdk.retrieval.patience.LONGEST_PAUSE", 0.5)
        direct = encoder.spec().model_copy(update={"uri": milvus.uri})
        with Service(directory, service_of(directory, direct)) as service:
            service.ready()
            yield Place(directory, milvus, service, direct, policy)


def service_of(run_dir: Path, retrieval: RetrievalSpec) -> ServiceSpec:
    return ServiceSpec(
        collections=(
            CollectionSpec(name="world", run_dir=run_dir, environment="world-text", retrieval=retrieval),
        )
    )  # fmt: skip


def agent(question: Question, search: SearchFunction) -> Agent[tuple[str, list[str], float]]:
    """Searches with what the policy said last, three times; scores 0 where nothing was found."""
    said: list[str] = []
    for turn in range(TURNS):
        [found] = yield look_up(search, [SearchRequest(f"{question.text} {said}")], 4)
        if not found:
            return question.id, said, 0.0
        tokens = tuple(3 + sum(one.id.encode()) % (VOCABULARY - 3) for one in found)
        params = SamplingParams(max_tokens=4, seed=seed_of(question.id, turn))
        completion = yield Generate(tokens, params, question.id)
        said.append(f"{[one.id for one in found]} {completion.token_ids}")
    return question.id, said, 1.0


def rollouts(place: Place, spec: RetrievalSpec, at: int = -1, disturb: Callable[[], None] = lambda: None) -> list:
    """Sample every question; before the search number ``at``, ``disturb`` is called."""
    questions = list(read_jsonl(place.run_dir / "corpus/questions.eval.jsonl", Question))
    engine = TransformersEngine(str(place.policy), live=4)
    with build_retriever("world-text", place.run_dir, spec) as retriever:
        searches = 0

        def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
            nonlocal searches
            searches += 1
            if searches == at:
                disturb()
            return retriever.search(requests, k)

        starts = [partial(agent, question, search) for question in questions]
        done = sorted(run(starts, engine, live=4))
    assert searches > 6
    return done


def away_until_missed(process: Process, log: pytest.LogCaptureFixture, aside: ThreadPoolExecutor) -> None:
    """Kill it, and start it again behind the caller's back once the caller waits for it."""
    process.end(signal.SIGKILL)

    def back() -> None:
        wait_for(lambda: "waiting up to" in log.text)
        process.start()

    aside.submit(back)


@pytest.fixture(scope="module")
def undisturbed(place: Place) -> list:
    done = rollouts(place, place.direct)
    assert len(done) == 20
    assert {score for _, _, score in done} == {1.0}
    assert len({str(said) for _, said, _ in done}) == 20
    return done


@pytest.mark.parametrize("what", ["milvus, direct", "milvus, by the service", "the service"])
def test_rollouts_survive_an_outage_unchanged(
    place: Place, undisturbed: list, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    process = place.service if what == "the service" else place.milvus
    spec = place.direct if what == "milvus, direct" else place.by_service
    before = process.process.pid
    with ThreadPoolExecutor(1) as aside:
        assert rollouts(place, spec, 5, partial(away_until_missed, process, caplog, aside)) == undisturbed
    assert process.process.pid != before


def test_concurrent_clients_are_answered_despite_kills_of_milvus_and_service(place: Place) -> None:
    questions = [question.text for question in read_jsonl(place.run_dir / "corpus/questions.eval.jsonl", Question)]
    asked = [SearchRequest(text) for text in questions]
    with build_retriever("world-text", place.run_dir, place.direct) as own:
        expected = own.search(asked, 3)
    stop = threading.Event()
    answered = [0] * 16

    def client(number: int) -> None:
        with RemoteRetriever(place.service.url) as remote:
            while not stop.is_set():
                at = (number + answered[number]) % len(asked)
                assert remote.search([asked[at]] * 2, 3) == [expected[at]] * 2
                answered[number] += 1
            assert remote.search(asked, 3) == expected  # and it is well again in the end

    with ThreadPoolExecutor(len(answered)) as pool:
        clients = [pool.submit(client, number) for number in range(len(answered))]

        def until_answered() -> None:
            before = sum(answered)
            wait_for(lambda: sum(answered) > before + len(answered) or any(done.done() for done in clients), pause=0.01)

        try:
            for process in (place.milvus, place.service, place.milvus):
                until_answered()
                process.end(signal.SIGKILL)
                process.start()
            until_answered()
        finally:
            stop.set()
        for done in clients:
            done.result()


def test_patience_ends_with_one_clear_error(place: Place) -> None:
    place.milvus.end()
    try:
        for spec, who in ((place.direct, "Milvus"), (place.by_service, place.service.url)):
            impatient = spec.model_copy(update={"patience_seconds": 0.1})
            place.milvus.start()
            with refused("retrieval.unavailable") as error:
                rollouts(place, impatient, 3, place.milvus.end)
            assert who in str(error.value)
            assert "the run resumes where it stopped" in str(error.value)
    finally:
        place.milvus.start()


def test_a_service_that_starts_before_milvus_gets_ready_when_milvus_does(place: Place) -> None:
    place.milvus.end()
    with Service(place.run_dir, service_of(place.run_dir, place.direct)) as early:
        wait_for(lambda: early.status()[1].get("status") == "failed")
        code, status = early.status()
        assert code == 503
        assert "Milvus" in status["detail"]
        assert httpx.get(f"{early.url}/healthz").status_code == 200
        refused = httpx.post(f"{early.url}/v1/search", json={"queries": [{"query": "who"}], "k": 1})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        place.milvus.start()
        early.ready()


def test_terminated_service_answers_accepted_requests_and_ends(place: Place) -> None:
    with Service(place.run_dir, service_of(place.run_dir, place.direct), "--drain", "1") as service:
        service.ready()
        place.milvus.process.send_signal(signal.SIGSTOP)  # so that a request stays under way
        try:
            with ThreadPoolExecutor(1) as pool:
                body = {"queries": [{"query": "who"}], "k": 1}
                under_way = pool.submit(httpx.post, f"{service.url}/v1/search", json=body, timeout=STARTED_WITHIN)
                wait_for(lambda: 'encode_seconds_count{collection="world"} 1.0' in httpx.get(service.metrics_url).text)
                service.process.send_signal(signal.SIGTERM)
                stopping = (503, {"status": "stopping", "detail": "the service is shutting down"})
                wait_for(lambda: service.status() == stopping, pause=0.01)
                assert not under_way.done()
                wait_for(lambda: service.status() == (0, {}))  # the drain is over, and nothing new is taken
                assert not under_way.done()
                place.milvus.process.send_signal(signal.SIGCONT)
                assert under_way.result().status_code == 200
        finally:
            place.milvus.process.send_signal(signal.SIGCONT)
        assert service.process.wait(STARTED_WITHIN) in (0, -signal.SIGTERM)
        assert service.status() == (0, {})
        assert "Traceback" not in "".join(service.printed)


def test_hanging_milvus_call_is_abandoned_after_its_deadline(place: Place) -> None:
    spec = service_of(place.run_dir, place.direct).model_copy(update={"deadline_seconds": 1.5})
    with served(spec) as url, httpx.Client(base_url=url, timeout=60) as client:

        def ask(query: str, **more: int) -> httpx.Response:
            return client.post("/v1/search", json={"queries": [{"query": query}], "k": 1} | more)

        assert ask("who").status_code == 200
        place.milvus.process.send_signal(signal.SIGSTOP)
        try:
            assert ask("who is it").status_code in (503, 504)
            patient = ask("who was it", deadline_ms=30_000)  # does not stand behind a call that never ends
            assert (patient.status_code, patient.json()["error"]["code"]) == (503, "retriever_fault")
        finally:
            place.milvus.process.send_signal(signal.SIGCONT)
        wait_for(lambda: ask("who will it be").status_code == 200)


def test_fault_without_patience_is_raised_at_once(place: Place) -> None:
    spec = place.direct.model_copy(update={"patience_seconds": 0.0})
    with build_retriever("world-text", place.run_dir, spec) as retriever:
        place.milvus.end()
        try:
            with pytest.raises(RetrieverFault, match="Milvus: Fail connecting to server"):
                retriever.search([SearchRequest("who")], 1)
        finally:
            place.milvus.start()

        def answers() -> bool:
            try:
                return len(retriever.search([SearchRequest("who")], 1)[0]) == 1
            except RetrieverFault:
                return False

        wait_for(answers)
