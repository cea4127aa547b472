"""The test server answers as the recorded real one: the requests of the recordings, replayed."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.kubeflow.remote.kfp_server import KfpServer
from tests.kubeflow.remote.pipelines import inputs_of, pipeline
from tests.kubeflow.remote.recorded import FOLDER, HELLO_RUN, recorded

HELLO = ("253d752b-18ab-4d00-8a46-4ebab0a05f21", "401882bd-ca5e-47d1-a0b9-7b910f0a7ae0")
# Uploads are multipart; lists have other filters and orders than these here.
OTHERS = {"error-upload-no-pipeline", "error-upload-version-duplicate", "error-upload-version-pipeline-unknown",
          "error-filter-bad-json", "error-sort-bad"}  # fmt: skip
NAMES = sorted(path.stem for path in FOLDER.glob("*.json") if "request" in recorded(path.stem))
VARIES = {"run_id", "experiment_id", "pipeline_id", "created_at", "scheduled_at", "state_history", "name", "namespace"}


@pytest.fixture
def server() -> Any:
    with KfpServer() as server:
        spec = pipeline()["pipeline_spec"]
        spec["root"]["inputDefinitions"]["parameters"] = {
            "text": {"parameterType": "STRING"}, "times": {"parameterType": "NUMBER_INTEGER"}
        }  # fmt: skip
        server.versions.append({"pipeline_id": HELLO[0], "pipeline_version_id": HELLO[1], "display_name": "hello",
                                "pipeline_spec": spec})  # fmt: skip
        server.pipelines.append({"pipeline_id": "m", "display_name": "mygo", "namespace": ""})
        server.experiments.append({"experiment_id": "m", "display_name": "mygo", "namespace": ""})
        server.runs.append(recorded("run-get-SUCCEEDED-hello")["body"] | {"run_id": HELLO_RUN}
                           if "body" in recorded("run-get-SUCCEEDED-hello")
                           else recorded("run-get-SUCCEEDED-hello") | {"run_id": HELLO_RUN})  # fmt: skip
        yield server


def answered(server: KfpServer, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    body = None if request["body"] is None else json.dumps(request["body"]).encode()
    if request["method"] == "POST" and body is None:
        body = b"{}"  # recorded without the broken text
    try:
        with urlopen(Request(server.url + request["path"], body, method=request["method"])) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OTHERS and "recurring" not in name])
def test_recorded_requests_get_the_recorded_answers(server: KfpServer, name: str) -> None:
    recording = recorded(name)
    status, body = answered(server, recording["request"])
    assert status == recording["status"]
    if status != 200:
        assert body == recording["body"]
    else:
        assert recording["body"].keys() <= body.keys()
        assert {k: v for k, v in body.items() if k not in VARIES}.items() >= {
            k: v for k, v in recording["body"].items() if k not in VARIES | {"service_account"}
        }.items()  # fmt: skip


def test_placeholders_are_filled_in_only_as_whole_constants() -> None:
    specification = pipeline()
    group = specification["pipeline_spec"]["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    longer = {"runtimeValue": {"constant": "/runs/{{$.pipeline_job_uuid}}"}}
    group["begin"]["inputs"]["parameters"]["run_dir"] = longer
    given = inputs_of(specification, "begin", {"seed": 5}, "id-1")
    assert given["run_id"] == "id-1"
    assert given["run_dir"] == "/runs/{{$.pipeline_job_uuid}}"
    assert given["seed"] == 5
