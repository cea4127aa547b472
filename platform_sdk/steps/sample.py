"""Rollouts of a round of a method's step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from platform_sdk.execution.step import Finished, StepOutputs, step_name
from platform_sdk.methods.context import Context
from platform_sdk.run_dir import PhaseDir, RunDir
from platform_sdk.steps.base import job_runner

if TYPE_CHECKING:
    from platform_sdk.methods.launch import SampleStep
    from platform_sdk.processes.launch import StepProcesses


class Inputs(Context):
    """The method's step, its policy and its settings.

    Attributes:
        step: the method's step, e.g. MyGO's warmup or iteration, ARENA's demonstrations.
        phase: the folder in the run directory, e.g. warmup or iteration-01.
        iteration: the number of the round from 1; 0 if there is only one.
        model_path: the policy that samples.
        model_digest: digest of its weights.
        settings: settings of the step.
        carry: the state after the step's previous round; {} for the first.
        index_digest: digest of the index.
        train_digest: digest of the questions.
    """

    step: str
    phase: str
    iteration: int
    model_path: str
    model_digest: str
    settings: dict[str, Any]
    carry: dict[str, Any]
    index_digest: str
    train_digest: str


class Outputs(StepOutputs):
    rollouts_digest: str
    carry: dict[str, Any]


def run(inputs: Inputs) -> Finished[Outputs]:
    """Sample the rollouts of a round of a method's step; a killed round resumes and samples no attempt twice.

    If ``sampling`` or the machine's GPUs require several processes, they share the questions; on a cluster they are a
    job with GPUs, and this step waits for it.
    """
    from platform_sdk.evaluation.cards import rollouts_card
    from platform_sdk.files import read_object
    from platform_sdk.methods.launch import launch
    from platform_sdk.methods.method import load_method
    from platform_sdk.record_files import check_digest, digest_records, read_jsonl
    from platform_sdk.records import Question, Rollout
    from platform_sdk.sampling.pairs import check_policy
    from platform_sdk.tracking import step_run

    run_dir, phase, model = inputs.run_dir, inputs.phase, inputs.model_digest
    searched, questions = inputs.searched_digest, inputs.train_digest
    folder = run_dir / phase
    with step_run(run_dir, step_name("sample", phase)) as record:
        check_digest(RunDir(run_dir).questions("train"), Question, questions)
        check_policy(inputs.model_path, model)
        record.log_inputs(model=model, training={"train": questions}, retrieval={"index": searched})
        sampled = launch(_arguments(inputs), job_runner(record))
        record.record_digests(policy=model, searched=searched, index=inputs.index_digest, rollouts=sampled.digest)
        others = (PhaseDir.candidates, PhaseDir.examples, PhaseDir.rejected, PhaseDir.agent, PhaseDir.statistics)
        left = [folder / name for name in others if (folder / name).exists()]
        record.seal(sampled.path, PhaseDir(folder).sample, *left)
        method = load_method(inputs.method)
        record.log_rollouts(sampled.path, sources=method.reward_sources(method.context(inputs)))
        if sampled.digest == digest_records([]):  # nothing to score, so no later step logs the figures
            figures = read_object(PhaseDir(folder).sample)["figures"]
            record.log_curve([{"iteration": inputs.iteration, **figures}], axis="iteration", phase=phase)
        facts = {"digest": sampled.digest, "carry": sampled.carry, "parents": [model, searched, questions]}
        outputs = Outputs(rollouts_digest=sampled.digest, carry=sampled.carry)
        return Finished(outputs, rollouts_card(phase, read_jsonl(sampled.path, Rollout)), facts)


def processes(inputs: Inputs) -> list[StepProcesses]:
    """Return the processes that become a job on a cluster; none if the step does not sample."""
    from platform_sdk.methods.launch import step_processes

    step = _arguments(inputs)
    return [step_processes(step)] if step.needs_model else []


def _arguments(inputs: Inputs) -> SampleStep:
    from platform_sdk.methods.launch import SampleStep

    return SampleStep(
        **inputs.shared,
        phase=inputs.phase,
        model=inputs.model_path,
        step=inputs.step,
        iteration=inputs.iteration,
        settings=inputs.settings,
        carry=inputs.carry,
    )
