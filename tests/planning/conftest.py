from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kubeflow.training_job.api_server import ApiServer

if TYPE_CHECKING:
    from tests.kubeflow.training_job.scripted import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    from tests.kubeflow.training_job.scripted import Cluster

    with ApiServer() as server:
        yield Cluster(server)
