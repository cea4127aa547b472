"""Requests that the service's OpenAPI allows and forbids, sent to the running service by schemathesis."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx

from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.retrieval.service.app import create_app
from platform_sdk.retrieval.service.metrics import Metrics
from platform_sdk.retrieval.service.tokens import Tokens
from tests.retrieval.processes import Embeddings, Service, prepare_world

HERE = Path(__file__).parent
EXAMPLES = 15


def test_the_service_answers_as_its_openapi_says(tmp_path: Path) -> None:
    prepare_world(tmp_path)
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens/red").write_text("red-secret")
    with Embeddings() as encoder:
        graph = CollectionSpec(name="graph", run_dir=tmp_path, environment="world-kg", retrieval=encoder.spec())
        spec = ServiceSpec(collections=(graph,))
        document = tmp_path / "openapi.json"
        document.write_text(json.dumps(create_app(spec, Tokens(tmp_path / "tokens"), Metrics()).openapi()))
        with Service(tmp_path, spec, "--tokens", str(tmp_path / "tokens")) as service:
            service.ready()
            done = subprocess.run(
                [
                    sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml"), "run",
                    str(document), "--url", service.url, "--checks", "all", "--phases", "examples,coverage,fuzzing",
                    "--seed", "1", "--max-examples", str(EXAMPLES), "--generation-database", "none",
                    "--continue-on-failure", "--header", "Authorization: Bearer red-secret",
                ],
                cwd=tmp_path, capture_output=True, text=True,
            )  # fmt: skip
            report = "\n".join(line[:500] for line in (done.stdout + done.stderr).splitlines())
            assert done.returncode == 0, report
            assert "Tested: 4" in report  # every route
            assert httpx.post(f"{service.url}/v1/search", json={}).status_code == 401
            service.end()
    printed = "".join(service.printed)
    assert "Traceback" not in printed
    assert "red-secret" not in printed
