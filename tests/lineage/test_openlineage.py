"""``hopforge lineage --openlineage``: a server receives the events, and the library parses them again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.serde import Serde
from typer.testing import CliRunner

from platform_sdk.cli import app
from platform_sdk.errors import UserError
from platform_sdk.files import sha256
from platform_sdk.tracking import manifest
from tests.http_server import HttpRequest, HttpResponse, HttpServer
from tests.lineage.runs import BASE, write_dataset, write_run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset, a run, and a second run that begins with the first one's model."""
    root = tmp_path_factory.mktemp("root")
    model = write_run(root / "runs/first", write_dataset(root / "data"))
    write_run(root / "runs/second", root / "data", base=model)
    return root


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE_DISABLED", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


class Server(HttpServer):
    """Server of the endpoint ``/api/v1/lineage``; it answers ``status``."""

    status = 201

    def answer(self, request: HttpRequest) -> HttpResponse:
        assert (request.method, request.path) == ("POST", "/api/v1/lineage")
        return self.status, b""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        monkeypatch.setenv("OPENLINEAGE_URL", server.url)
        yield server


def lineage(root: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["lineage", *arguments, "--openlineage", "--folder", str(root / "runs")])


def parse(content: dict[str, Any]) -> RunEvent:
    """Build the library's event from JSON; its classes check times, ids and the names of fields."""

    def datasets(kind: type[Any], field: str) -> list[Any]:
        return [
            kind(
                one["namespace"], one["name"],
                facets={"version": DatasetVersionDatasetFacet(one["facets"]["version"]["datasetVersion"])},
            )
            for one in content[field]
        ]  # fmt: skip

    return RunEvent(
        eventType=RunState(content["eventType"]), eventTime=content["eventTime"], producer=content["producer"],
        run=Run(content["run"]["runId"]), job=Job(**{name: content["job"][name] for name in ("namespace", "name")}),
        inputs=datasets(InputDataset, "inputs"), outputs=datasets(OutputDataset, "outputs"),
    )  # fmt: skip


def test_server_receives_the_steps_of_the_lineage_with_digests_as_versions(root: Path, server: Server) -> None:
    done = lineage(root, "second")
    assert done.exit_code == 0, done.output
    assert f"{len(server.received)} OpenLineage events sent" in done.output
    contents = [request.json() for request in server.received]
    events = [parse(content) for content in contents]
    for event, content in zip(events, contents, strict=True):
        assert Serde.to_dict(event)["eventTime"] == content["eventTime"]
        assert content["schemaURL"] == event.schemaURL
    trained = [one for one in events if one.job.name == "small.train-warmup"]
    states = sorted(one.eventType.value for one in trained if one.eventType)
    assert states == ["COMPLETE", "COMPLETE", "START", "START"]
    assert len({one.run.runId for one in trained}) == 2
    read = {one.facets["version"].datasetVersion for event in trained for one in event.inputs}
    assert BASE in read
    corpus = next(one for one in events if one.job.name == "small.corpus")
    files = {one.name: one for one in corpus.inputs}
    train = files[str(root / "data/train.jsonl")]
    assert (train.namespace, train.facets["version"].datasetVersion) == ("file", sha256(root / "data/train.jsonl"))
    entry = next(one for one in manifest.read(root / "runs/first") if one.event == "step train-warmup")
    times = {datetime.fromisoformat(one.eventTime) for one in trained if one.eventType == RunState.COMPLETE}
    assert datetime.fromisoformat(entry.time) in times


def test_model_that_one_run_wrote_and_another_read_is_one_dataset(root: Path, server: Server) -> None:
    lineage(root, "second")
    events = [parse(request.json()) for request in server.received]
    written = {(one.namespace, one.name) for event in events for one in event.outputs if "model" in one.name}
    read = {(one.namespace, one.name) for event in events for one in event.inputs}
    assert ("hopforge", "first/warmup/model") in written & read


def test_trained_model_has_its_runs_name_if_its_reader_comes_first_in_the_folder(
    tmp_path: Path, server: Server
) -> None:
    runs, data = tmp_path / "runs", write_dataset(tmp_path / "data")
    model = write_run(runs / "trainer", data)
    write_run(runs / "reader", data, base=model, base_file=runs / "trainer/warmup/model/model.safetensors")
    lineage(tmp_path, "reader")
    events = [parse(request.json()) for request in server.received]
    versions = {(one.namespace, one.name): one.facets["version"].datasetVersion for e in events for one in e.inputs}
    assert [name for name, version in versions.items() if version == model] == [("hopforge", "trainer/warmup/model")]


def test_repeated_events_are_equal(root: Path, server: Server) -> None:
    lineage(root, "first")
    before = [request.json() for request in server.received]
    lineage(root, "first")
    assert [request.json() for request in server.received] == before * 2


def test_events_are_printed_without_a_configuration(root: Path) -> None:
    done = lineage(root, "first")
    assert done.exit_code == 0, done.output
    assert {parse(json.loads(line)).job.namespace for line in done.stdout.splitlines()} == {"hopforge"}


def test_refusing_server_gives_one_sentence(root: Path, server: Server) -> None:
    server.status = 400
    done = lineage(root, "first")
    assert isinstance(done.exception, UserError)
    assert "was not sent: 400" in str(done.exception)
    assert "check OPENLINEAGE_URL" in str(done.exception)
    assert "\n" not in str(done.exception)


def test_invalid_configuration_gives_one_sentence(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "openlineage.yml").write_text("transport:\n  type: no_such_transport\n")
    done = lineage(root, "first")
    assert isinstance(done.exception, UserError)
    assert "OpenLineage is not configured" in str(done.exception)
    assert "\n" not in str(done.exception)


def test_missing_extra_gives_the_command_that_installs_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "openlineage"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "openlineage", None)
    done = lineage(root, "first")
    assert "pip install hopforge[audit]" in str(done.exception)
