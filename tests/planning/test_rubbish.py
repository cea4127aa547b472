"""API servers that refuse, know nothing, answer nothing, or answer objects of another version or no objects at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from tests.http_server import HttpResponse, HttpServer
from tests.planning.test_cluster_plan import CLUSTER, HOME, KUBECONFIG, RECIPE

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
REFUSED = STATUS | {"code": 403, "reason": "Forbidden", "message": 'x is forbidden: User "ann" cannot get resource "x"'}
UNKNOWN = STATUS | {"code": 404, "reason": "NotFound", "message": "x not found"}
# An object of a later version, whose fields have other names; as a list it has one of them.
OTHER: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v2", "kind": "Thing", "metadata": {"name": "x", "labels": None},
    "spec": {"quota": [{"flavour": "a100"}], "resourceGroups": [{"flavors": [{"kind": 1}]}], "clusterQueue": "q"},
    "status": {"flavorsReservation": [{"kind": 1}], "conditions": [{"kind": "Active"}], "allowed": True},
}  # fmt: skip
ANSWERS: dict[str, HttpResponse] = {
    "403": (403, REFUSED),
    "404": (404, UNKNOWN),
    "404 in plain text": (404, "404 page not found\n"),
    "nothing": None,
    "500": (500, "oops"),
    "a proxy's page": (200, "<html>Sign in</html>"),
    "an empty object": (200, "{}"),
    "a list": (200, "[1, 2]"),
    "null": (200, "null"),
    "fields that are null": (200, '{"metadata": null, "spec": null, "status": null, "items": null, "resources": null}'),
    "another version": (200, OTHER),
    "items of another version": (200, {"kind": "List", "items": [OTHER], "resources": [{"kind": "Thing"}]}),
}


@pytest.fixture(params=ANSWERS)
def rubbish(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The kind of answers of the cluster in KUBECONFIG."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("  backend: pytorchjob\n", ""))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    with HttpServer(lambda _: ANSWERS[request.param]) as server:
        (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(url=server.url))
        yield request.param


@pytest.mark.parametrize(
    "command",
    [
        ["teams", "check", str(HOME / "manifests/teams.yaml")],
        ["teams", "status", str(HOME / "manifests/teams.yaml")],
        ["plan", str(RECIPE), "--cluster", "CLUSTER"],
        ["submit", str(RECIPE), "--cluster", "CLUSTER", "--dry-run"],
    ],
    ids=lambda command: " ".join(command[:2]) if command[0] == "teams" else command[0],
)  # fmt: skip
def test_every_answer_gives_sentences_and_no_traceback(rubbish: str, command: list[str], tmp_path: Path) -> None:
    place = {"CLUSTER": str(tmp_path / "cluster.yaml")}
    done = CliRunner().invoke(app, [place.get(word, word) for word in command])
    if isinstance(done.exception, UserError):
        text = str(done.exception)
    else:
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        text = done.output
    assert text
    assert "Traceback" not in text
    lines = text.splitlines()
    assert max(map(len, lines)) < 700
    said = ("API server", "does not exist", "unexpected form", "cannot check", "cannot be reached", "is none", "✗")
    assert any(part in line for line in lines for part in said), text
