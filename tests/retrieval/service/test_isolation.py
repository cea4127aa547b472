"""A caller learns of its own team's collections only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.retrieval.service.metrics import Metrics
from platform_sdk.retrieval.service.tokens import Tokens
from tests.process_watch import wait_for
from tests.retrieval.processes import Embeddings, served

HIDDEN = "vault"
BODY = {"queries": [{"query": "who"}], "k": 1}


@pytest.fixture(scope="module")
def url(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with two collections of team blue, one of team red, and one of red's that cannot be opened."""
    tokens = tmp_path_factory.mktemp("tokens")
    for team in ("red", "blue", "green"):
        (tokens / team).write_text(f"{team}-secret")
    with Embeddings() as encoder:
        own = encoder.spec().model_copy(update={"uri": str(world / "index.db")})

        def collection(name: str, team: str, run_dir: Path = world) -> CollectionSpec:
            return CollectionSpec(
                name=name, run_dir=run_dir, environment="world-text", retrieval=own, teams=(team,)
            )  # fmt: skip

        absent = collection(f"{HIDDEN}-absent", "red", world / "absent")
        spec = ServiceSpec(
            collections=(collection("blue-a", "blue"), collection("blue-b", "blue"), collection(HIDDEN, "red"), absent)
        )
        with served(spec, Tokens(tokens)) as address:
            yield address


def client(url: str, team: str | None) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {team}-secret"} if team else {})


def test_collection_of_another_team_is_answered_as_an_absent_one(url: str) -> None:
    with client(url, "blue") as blue:
        for method, route in (("POST", "/v1/search"), ("GET", "/readyz")):
            answers = []
            for name in (HIDDEN, f"{HIDDEN}-absent", "nowhere"):
                more = {"json": BODY | {"collection": name}} if method == "POST" else {"params": {"collection": name}}
                answer = blue.request(method, route, **more)
                answers.append((answer.status_code, answer.text.replace(name, "NAME")))
            assert answers[0] == answers[1] == answers[2], route
            assert answers[0][0] == 404


@pytest.mark.parametrize("team", ["blue", "green", None])
def test_responses_never_name_a_collection_of_another_team(url: str, team: str | None) -> None:
    with client(url, team) as caller:
        answers = [
            caller.post("/v1/search", json=BODY),
            caller.get("/v1/collections"),
            *(caller.get(route) for route in ("/readyz", "/healthz", "/metrics", "/openapi.json", "/docs", "/redoc")),
            caller.get("/readyz", params={"digest": "other"}),
        ]
    assert not [answer.url for answer in answers if HIDDEN in answer.text]
    statuses = [answer.status_code for answer in answers]
    assert statuses[2:8] == [200, 200, 404, 404, 404, 404]
    if team == "blue":
        assert "blue-a, blue-b" in answers[0].json()["error"]["message"]
        assert (statuses[0], statuses[8]) == (400, 409)
    elif team == "green":
        assert (statuses[0], answers[1].json()) == (404, [])
    else:
        assert (statuses[0], statuses[1], statuses[8]) == (401, 401, 401)
        assert answers[2].json() == {"status": "ready", "detail": ""}


def test_own_team_sees_why_its_collection_is_not_open(url: str) -> None:
    with client(url, "red") as red:
        wait_for(lambda: red.get("/readyz").status_code == 200)
        assert f"collection {HIDDEN}-absent: " in red.get("/readyz").json()["detail"]
        assert red.get("/readyz", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert red.get("/readyz", headers={"Authorization": "bearer red-secret"}).status_code == 200


def test_metrics_have_a_port_of_their_own_on_this_machine() -> None:
    metrics = Metrics()
    metrics.queries.labels("vault", "red").inc()
    port = metrics.listen("127.0.0.1", 0)
    assert 'collection="vault"' in httpx.get(f"http://127.0.0.1:{port}/metrics").text
    with pytest.raises(UserError, match=rf"--metrics-port: cannot listen on 127.0.0.1:{port}: Address already in use"):
        Metrics().listen("127.0.0.1", port)
