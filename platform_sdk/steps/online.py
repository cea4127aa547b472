"""Online training of a policy on its own samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.execution.step import Finished, StepOutputs, step_name
from platform_sdk.methods.context import Context
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.steps.base import job_runner

if TYPE_CHECKING:
    from platform_sdk.methods.launch import OnlineStep
    from platform_sdk.processes.launch import StepProcesses


class Inputs(Context):
    """The initial policy, and the settings of training and of evaluations between updates."""

    phase: str
    model_path: str
    model_digest: str
    online: dict[str, Any]
    evaluation: dict[str, Any]
    train_digest: str


class Outputs(StepOutputs):
    model_path: str
    model_digest: str
    updates: int


def run(inputs: Inputs) -> Finished[Outputs]:
    """Sample, score and update in one loop; a killed step resumes from its last checkpoint."""
    from platform_sdk.evaluation.cards import training_card
    from platform_sdk.evaluation.evaluator import SCORES, written_files
    from platform_sdk.methods.launch import launch
    from platform_sdk.record_files import check_digest
    from platform_sdk.records import Question
    from platform_sdk.sampling.pairs import check_policy
    from platform_sdk.tracking import step_run
    from platform_sdk.tracking.following import following

    run_dir, phase, start = inputs.run_dir, inputs.phase, inputs.model_digest
    searched, questions = inputs.searched_digest, inputs.train_digest
    folder = run_dir / phase
    with step_run(run_dir, step_name("online", phase)) as step:
        check_digest(RunDir(run_dir).questions("train"), Question, questions)
        check_policy(inputs.model_path, start)
        step.log_inputs(model=start, training={"train": questions}, retrieval={"index": searched})
        with following(step, PhaseDir(folder).updates, axis="update", phase=phase):
            result = launch(_arguments(inputs), job_runner(step))
        step.seal(
            Path(result.model), PhaseDir(folder).train, *folder.glob(PhaseDir.updates), PhaseDir(folder).update_rollouts
        )
        evaluations = {path.name.removeprefix("eval-u"): path for path in sorted(run_dir.glob("eval-u*"))}
        between = {int(update): path for update, path in evaluations.items() if update.isdigit()}  # none set aside
        step.seal(*(file for one in between.values() for file in written_files(one)))
        for update, one in between.items():
            step.log_score_point(one / SCORES, iteration=update)
        step.log_figures(PhaseDir(folder).train, iteration=result.updates)
        parents = {"parent_weights": start, "searched": searched, "train": questions}
        step.record_digests(**parents)
        if result.skipped is None:
            step.log_model(Path(result.model), digest=result.weights, iteration=result.updates, tags=parents)
        return Finished(
            Outputs(model_path=str(Path(result.model).resolve()), model_digest=result.weights, updates=result.updates),
            training_card(phase, result.model_dump()),
            {"digest": result.weights, "parents": [start, searched, questions]},
        )


def processes(inputs: Inputs) -> list[StepProcesses]:
    """Return the processes that become a job on a cluster."""
    from platform_sdk.methods.launch import step_processes

    return [step_processes(_arguments(inputs))]


def _arguments(inputs: Inputs) -> OnlineStep:
    from platform_sdk.config.online import OnlineSpec
    from platform_sdk.methods.launch import OnlineStep

    return OnlineStep(
        **inputs.shared,
        phase=inputs.phase,
        model=inputs.model_path,
        online=OnlineSpec.model_validate(inputs.online),
        evaluation=inputs.evaluation,
    )
