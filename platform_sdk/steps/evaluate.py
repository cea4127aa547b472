"""A policy's scores on unseen questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from platform_sdk.execution.step import Finished, StepOutputs, step_name
from platform_sdk.methods.context import Context
from platform_sdk.run_dir import RunDir
from platform_sdk.steps.base import job_runner

if TYPE_CHECKING:
    from platform_sdk.methods.launch import EvaluateStep
    from platform_sdk.processes.launch import StepProcesses

SHOWS = ("metrics",)


class Inputs(Context):
    """The policy, and the settings of sampling and scoring.

    ``phase`` is the folder in the run directory, e.g. eval-start; ``iteration`` the number of previous iterations or
    updates.
    """

    phase: str
    iteration: int
    model_path: str
    model_digest: str
    evaluation: dict[str, Any]
    index_digest: str
    eval_digest: str


class Outputs(StepOutputs):
    scores_digest: str


def run(inputs: Inputs) -> Finished[Outputs]:
    """Answer every evaluation question once and score the answers; several processes share the questions."""
    from platform_sdk.evaluation.cards import metric_values, scores_card
    from platform_sdk.evaluation.evaluator import ROLLOUTS, written_files
    from platform_sdk.files import read_object
    from platform_sdk.methods.launch import launch
    from platform_sdk.methods.method import load_method
    from platform_sdk.record_files import check_digest
    from platform_sdk.records import Question
    from platform_sdk.sampling.pairs import check_policy
    from platform_sdk.tracking import step_run

    run_dir, model, questions = inputs.run_dir, inputs.model_digest, inputs.eval_digest
    searched = inputs.searched_digest
    arguments = _arguments(inputs)
    with step_run(run_dir, step_name("evaluate", inputs.phase)) as step:
        check_digest(RunDir(run_dir).questions("eval"), Question, questions)
        check_policy(inputs.model_path, model)
        evaluated = launch(arguments, job_runner(step))
        step.log_inputs(model=model, evaluation={"eval": questions}, retrieval={"index": searched})
        digests = {"searched": searched, "index": inputs.index_digest, "settings": arguments.settings_digest}
        step.record_digests(policy=model, scores=evaluated.digest, **digests)
        step.seal(*written_files(evaluated.path.parent))
        step.log_scores(evaluated.path, iteration=inputs.iteration, model=model, questions=questions)
        method = load_method(inputs.method)
        sources = method.reward_sources(method.context(inputs))
        step.log_rollouts(evaluated.path.with_name(ROLLOUTS), sources=sources)
        scores = read_object(evaluated.path)
        return Finished(
            Outputs(scores_digest=evaluated.digest),
            scores_card(scores),
            {"digest": evaluated.digest, "parents": [model, searched, questions]},
            metric_values(scores),
        )


def processes(inputs: Inputs) -> list[StepProcesses]:
    """Return the processes that become a job on a cluster, unless the run has evaluated equal weights before."""
    from platform_sdk.methods.launch import step_processes

    return [step_processes(_arguments(inputs))]


def _arguments(inputs: Inputs) -> EvaluateStep:
    from platform_sdk.methods.launch import EvaluateStep

    return EvaluateStep(**inputs.shared, phase=inputs.phase, model=inputs.model_path, evaluation=inputs.evaluation)
