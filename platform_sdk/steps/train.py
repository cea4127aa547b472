"""Training of a policy on the selected rollouts of a phase."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.execution.step import Finished, StepInputs, StepOutputs, step_name
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.steps.base import job_runner

if TYPE_CHECKING:
    from platform_sdk.processes.launch import StepProcesses
    from platform_sdk.training.launch import TrainStep


class Inputs(StepInputs):
    """The initial policy, the phase of the selected rollouts, and the training settings."""

    phase: str
    iteration: int
    model_path: str
    model_digest: str
    selected_digest: str
    training: dict[str, Any]
    seed: int


class Outputs(StepOutputs):
    model_path: str
    model_digest: str


def run(inputs: Inputs) -> Finished[Outputs]:
    """Train a policy on the selected rollouts of a phase; a killed step resumes from its last checkpoint.

    If ``training`` or the machine's GPUs require several processes, they are children of this process; on a cluster
    they are a job with GPUs, and this step waits for it.
    """
    from contextlib import ExitStack

    from platform_sdk.evaluation.cards import training_card
    from platform_sdk.record_files import check_digest
    from platform_sdk.records import Rollout
    from platform_sdk.sampling.pairs import check_policy, models_of
    from platform_sdk.tracking import step_run
    from platform_sdk.tracking.following import following
    from platform_sdk.training.launch import launch_training

    run_dir, phase, start = inputs.run_dir, inputs.phase, inputs.model_digest
    selected = RunDir(run_dir).phase(phase).selected
    with step_run(run_dir, step_name("train", phase)) as step:
        check_digest(selected, Rollout, inputs.selected_digest)
        check_policy(inputs.model_path, start)
        step.log_inputs(model=start, training={f"{phase}/{PhaseDir.selected}": inputs.selected_digest})
        with ExitStack() as curves:
            for trained in [f"{phase}/{role}" for role in models_of(inputs.model_path)] or [phase]:
                curves.enter_context(
                    following(step, RunDir(run_dir).phase(trained).training_steps, axis="step", phase=trained)
                )
            result = launch_training(_arguments(inputs), job_runner(step))
        # Each model of a pair also has its own folder.
        step.seal(Path(result.model), *(run_dir / phase).glob("*/model"))
        step.seal(
            *(run_dir / phase).glob(f"**/{PhaseDir.train}"), *(run_dir / phase).glob(f"**/{PhaseDir.training_steps}")
        )
        step.log_figures(RunDir(run_dir).phase(phase).train, iteration=inputs.iteration)
        parents = {"parent_weights": start, "selected": inputs.selected_digest}
        step.record_digests(**parents)
        if result.skipped is None:
            step.log_model(Path(result.model), digest=result.weights, iteration=inputs.iteration, tags=parents)
        return Finished(
            Outputs(model_path=str(Path(result.model).resolve()), model_digest=result.weights),
            training_card(phase, result.model_dump()),
            {"digest": result.weights, "parents": [start, inputs.selected_digest]},
        )


def processes(inputs: Inputs, roles: Iterable[str] = ()) -> list[StepProcesses]:
    """Return the processes that become a job on a cluster; with ``roles``, a job for each model of a pair."""
    from platform_sdk.training.launch import training_processes

    return training_processes(_arguments(inputs), roles)


def _arguments(inputs: Inputs) -> TrainStep:
    from platform_sdk.config.training import TrainSpec
    from platform_sdk.training.launch import TrainStep

    return TrainStep(
        run_dir=inputs.run_dir,
        phase=inputs.phase,
        model=inputs.model_path,
        selected=RunDir(inputs.run_dir).phase(inputs.phase).selected,
        seed=inputs.seed,
        spec=TrainSpec.model_validate(inputs.training),
    )
