"""Whatever the service's OpenAPI allows and forbids, asked of the running service by schemathesis."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.retrieval.service.app import create_app
from platform_sdk.retrieval.service.metrics import Metrics
from platform_sdk.retrieval.service.tokens import Tokens
from tests.retrieval.processes import Embeddings, Service, prepare_world

HERE = Path(__file__).parent
EXAMPLES = 15


@pytest.mark.parametrize("locked", [False, True], ids=["open", "with tokens"])
def test_the_service_answers_as_its_openapi_says(tmp_path: Path, locked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    prepare_world(tmp_path)
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens/red").write_text("red-secret")
    options = ["--tokens", str(tmp_path / "tokens")] if locked else []
    header = ["--header", "Authorization: Bearer red-secret"] if locked else []
    with Embeddings() as encoder:
        graph = CollectionSpec(name="graph", run_dir=tmp_path, environment="world-kg", retrieval=encoder.spec())
        spec = ServiceSpec(collections=(graph,))
        document = tmp_path / "openapi.json"
        tokens = Tokens(tmp_path / "tokens") if locked else None
        document.write_text(json.dumps(create_app(spec, tokens, Metrics()).openapi()))
        with Service(tmp_path, spec, *options) as service:
            service.ready()
            assert httpx.get(f"{service.url}/openapi.json").status_code == (404 if locked else 200)
            done = subprocess.run(
                [
                    sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml"), "run",
                    str(document), "--url", service.url, "--checks", "all", "--phases", "examples,coverage,fuzzing",
                    "--seed", "1", "--max-examples", str(EXAMPLES), "--generation-database", "none",
                    "--continue-on-failure", *header,
                ],
                cwd=tmp_path, capture_output=True, text=True,
            )  # fmt: skip
            report = "\n".join(line[:500] for line in (done.stdout + done.stderr).splitlines())
            assert done.returncode == 0, report
            assert "Tested: 4" in report  # every route
            if locked:
                assert httpx.post(f"{service.url}/v1/search", json={}).status_code == 401
            service.end()
    printed = "".join(service.printed)
    assert "Traceback" not in printed
    assert "red-secret" not in printed
