"""Online training of a method's agent: in this process, or in several."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from platform_sdk.config.online import OnlineSpec
from platform_sdk.tracking.outcomes import write_json
from platform_sdk.training.launch import JOB, Elsewhere, processes_for, start

if TYPE_CHECKING:
    from platform_sdk.training.online.loop import OnlineResult


class OnlineJob(BaseModel):
    """What ``python -m platform_sdk.recipes --spec FILE`` reads: a method, its setting, and what is to be learned.

    ``agent``, ``sampling``, ``retrieval`` and ``evaluation`` are the recipe's structs, which the method's room knows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    run_dir: Path
    phase: str
    model: str
    environment: str
    agent: dict[str, Any]
    sampling: dict[str, Any]
    retrieval: dict[str, Any]
    corpus_digest: str
    seed: int
    online: OnlineSpec
    evaluation: dict[str, Any]


def launch_online(job: OnlineJob, elsewhere: Elsewhere | None = None) -> OnlineResult:
    """Train as ``job`` says: elsewhere, or on as many processes as its ``online`` and this machine ask for.

    For other processes than this one the job is written to ``<run_dir>/<phase>/job.json`` first.

    Raises:
        UserError: a setting does not fit the questions, the model or the machine, or a process failed.
    """
    processes = processes_for(job.online) if elsewhere is None else None
    if processes is None and elsewhere is None:
        return run_online(job)
    from platform_sdk.training.online.loop import OnlineResult

    folder = job.run_dir / job.phase
    write_json(folder / JOB, job.model_dump(mode="json"))
    start("platform_sdk.recipes", folder / JOB, processes, elsewhere)
    return OnlineResult.model_validate_json((folder / "train.json").read_text())


def run_online(job: OnlineJob) -> OnlineResult:
    """Train as ``job`` says in this process, which may be one of several."""
    steps = importlib.import_module(f"platform_sdk.recipes.{job.method}.steps")
    settings = importlib.import_module(f"platform_sdk.recipes.{job.method}.settings")
    setting = steps.Setting.read(
        job.run_dir, job.environment, job.agent, job.sampling, job.retrieval, job.corpus_digest, job.seed
    )
    evaluation = settings.EvaluationSpec.model_validate(job.evaluation)
    result: OnlineResult = steps.online(setting, job.phase, job.model, job.online, evaluation)
    return result
