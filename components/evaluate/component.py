"""A policy's scores on unseen questions."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def evaluate(
    run_dir: str,
    method: str,
    phase: str,
    iteration: int,
    model_path: str,
    model_digest: str,
    environment: str,
    agent: dict,
    sampling: dict,
    retrieval: dict,
    evaluation: dict,
    searched_digest: str,
    index_digest: str,
    eval_digest: str,
    seed: int,
    scores: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    iterations: int = -1,
) -> NamedTuple("Outputs", [("scores_digest", str)]):
    """Answer every evaluation question once and score the answers.

    Several processes share the questions, on a cluster as a job with GPUs: see the component `sample`.

    Args:
        run_dir: The run directory.
        method: Whose agent and prompts: a shipped method's name, or the dotted name of a method's module.
        phase: The folder in the run directory, e.g. eval-start or eval-final.
        iteration: After how many iterations or updates.
        model_path: The policy.
        model_digest: Digest of its weights.
        environment: What the agent searches in.
        agent: The agent's settings.
        sampling: The engine.
        retrieval: Encoder and index.
        evaluation: Distribution and prompts of the evaluation.
        searched_digest: Digest of what is searched; a mismatch stops the run.
        index_digest: Digest of the index.
        eval_digest: Digest of the questions.
        seed: Of the bootstrap, and of sampling where it is not greedy.
        scores: Where the scores are, and their digest.
        metrics: The mean of each metric.
        iterations: How many iterations the run makes; nothing is evaluated after one beyond. Below 0: all.
    """
    from pathlib import Path

    from platform_sdk.evaluation.run import ROLLOUTS, written_files
    from platform_sdk.kubeflow.component import beyond_last, describe, log_numbers, received
    from platform_sdk.kubeflow.training_job.here import job_runner
    from platform_sdk.recipes.launch import EvaluateStep, launch
    from platform_sdk.record_files import check_digest
    from platform_sdk.records import Question
    from platform_sdk.sampling.pairs import check_policy
    from platform_sdk.tracking import step_run

    run = Path(run_dir)
    if beyond_last(iteration, iterations, run, scores):
        return ("",)
    given = {"agent": agent, "sampling": sampling, "retrieval": retrieval, "evaluation": evaluation}
    arguments = EvaluateStep(
        method=method,
        run_dir=run,
        phase=phase,
        model=model_path,
        environment=environment,
        corpus_digest=searched_digest,
        seed=seed,
        **received(given),
    )
    with step_run(run, phase) as step:
        check_digest(run / "corpus" / "questions.eval.jsonl", Question, eval_digest)
        check_policy(model_path, model_digest)
        evaluated = launch(arguments, job_runner(run))
        step.log_inputs(model=model_digest, evaluation={"eval": eval_digest}, retrieval={"index": searched_digest})
        digests = {"searched": searched_digest, "index": index_digest, "settings": arguments.settings_digest}
        step.record_digests(policy=model_digest, scores=evaluated.digest, **digests)
        step.seal(*written_files(evaluated.path.parent))
        step.log_scores(evaluated.path, iteration=iteration, model=model_digest, questions=eval_digest)
        step.log_rollouts(evaluated.path.with_name(ROLLOUTS))
        describe(scores, evaluated.path, digest=evaluated.digest, parents=[model_digest, searched_digest, eval_digest])
        log_numbers(metrics, evaluated.metrics)
    return (evaluated.digest,)
