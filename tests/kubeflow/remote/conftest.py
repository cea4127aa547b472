from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kfp.kubernetes", reason="the extra [cluster] is not installed")
pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from tests.kubeflow.remote.cluster import Cluster
from tests.kubeflow.remote.cluster_server import ClusterServer
from tests.kubeflow.remote.kfp_server import KfpServer
from tests.kubeflow.toy import write_toy


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "UI_ENDPOINT", "TOKEN", "COOKIES", "SA_TOKEN_PATH", "SSL_CA_CERT"):
        monkeypatch.delenv(f"KF_PIPELINES_{name}", raising=False)


@pytest.fixture
def kfp() -> Iterator[KfpServer]:
    with KfpServer(namespaces=("team-a",)) as server:
        yield server


@pytest.fixture
def kubernetes() -> Iterator[ClusterServer]:
    with ClusterServer() as server:
        yield server


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_toy(tmp_path)


@pytest.fixture
def cluster(kfp: KfpServer, kubernetes: ClusterServer) -> Cluster:
    return Cluster(kfp, kubernetes)
