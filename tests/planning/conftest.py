from __future__ import annotations

from tests.kubeflow.training_job.conftest import cluster

__all__ = ["cluster"]
