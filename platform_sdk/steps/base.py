"""Shared parts of steps: inputs of a method's steps, and the runner of a step's processes."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.config.cluster import CLUSTER
from platform_sdk.execution.step import StepInputs

if TYPE_CHECKING:
    from platform_sdk.methods.method import AnyMethod, RunContext
    from platform_sdk.processes.launch import ProcessRunner


class MethodInputs(StepInputs):
    """Inputs that all steps of a method share.

    Attributes:
        method: a shipped method's name, or the dotted name of a method's module.
        environment: the searched environment, or the agent's passages.
        agent: the agent's settings.
        sampling: engine and distribution.
        retrieval: encoder and index.
        searched_digest: digest of the searched corpus; a mismatch stops the run.
        seed: seed of all sampling.
    """

    method: str
    environment: str
    agent: dict[str, Any]
    sampling: dict[str, Any]
    retrieval: dict[str, Any]
    searched_digest: str
    seed: int

    @cached_property
    def loaded(self) -> AnyMethod:
        from platform_sdk.methods.method import load_method

        return load_method(self.method)

    @property
    def context(self) -> RunContext[Any]:
        """Return the validated context of the run (see ``Method.context``)."""
        return self.loaded.context(
            self.run_dir, self.environment, self.agent, self.sampling, self.retrieval, self.searched_digest, self.seed
        )

    @property
    def shared(self) -> dict[str, Any]:
        """Return the common arguments of a method's steps: the fields of ``methods.launch.MethodStep`` except two."""
        return {
            "method": self.method,
            "run_dir": self.run_dir,
            "environment": self.environment,
            "agent": self.agent,
            "sampling": self.sampling,
            "retrieval": self.retrieval,
            "corpus_digest": self.searched_digest,
            "seed": self.seed,
        }


def job_runner(run_dir: Path) -> ProcessRunner | None:
    """Return the runner of a step's processes as a job on this cluster; None outside a cluster."""
    if CLUSTER not in os.environ:
        return None
    from platform_sdk.kubeflow.training_job.here import job_runner as of_cluster

    return of_cluster(run_dir)
