"""A policy trained on what it samples itself."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def online(
    run_dir: str,
    method: str,
    phase: str,
    model_path: str,
    model_digest: str,
    environment: str,
    agent: dict,
    sampling: dict,
    retrieval: dict,
    online: dict,
    evaluation: dict,
    searched_digest: str,
    train_digest: str,
    seed: int,
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple("Outputs", [("model_path", str), ("model_digest", str), ("updates", int)]):
    """Sample, score and update in one loop; a killed step resumes from its last checkpoint.

    Args:
        run_dir: The run directory.
        method: Whose agent, prompts and rewards: a shipped method's name, or the dotted name of a method's module.
        phase: The folder in the run directory, e.g. online.
        model_path: The policy to start from.
        model_digest: Digest of its weights.
        environment: What the agent searches in.
        agent: The agent's settings.
        sampling: Engine and distribution.
        retrieval: Encoder and index.
        online: Updates, groups, objective and optimiser (platform_sdk.config.online).
        evaluation: Distribution and prompts of the evaluations between updates.
        searched_digest: Digest of what is searched; a mismatch stops the run.
        train_digest: Digest of the questions.
        seed: Of everything that is drawn.
        model: Where the trained policy is, and the digest of its weights.
        metrics: Rewards, tokens and seconds.
    """
    from pathlib import Path

    from platform_sdk.evaluation.run import SCORES, written_files
    from platform_sdk.kubeflow.component import describe, log_numbers, received
    from platform_sdk.kubeflow.training_job.here import job_runner
    from platform_sdk.recipes.launch import OnlineStep, launch
    from platform_sdk.record_files import check_digest
    from platform_sdk.records import Question
    from platform_sdk.sampling.pairs import check_policy
    from platform_sdk.tracking import step_run
    from platform_sdk.tracking.following import following

    run = Path(run_dir)
    given = {"agent": agent, "sampling": sampling, "retrieval": retrieval, "online": online, "evaluation": evaluation}
    arguments = OnlineStep(
        method=method,
        run_dir=run,
        phase=phase,
        model=model_path,
        environment=environment,
        corpus_digest=searched_digest,
        seed=seed,
        **received(given),
    )
    with step_run(run, f"online-{phase}") as step:
        check_digest(run / "corpus" / "questions.train.jsonl", Question, train_digest)
        check_policy(model_path, model_digest)
        step.log_inputs(model=model_digest, training={"train": train_digest}, retrieval={"index": searched_digest})
        with following(step, run / phase / "updates.jsonl", axis="update", phase=phase):
            result = launch(arguments, job_runner(run))
        folder = run / phase
        step.seal(Path(result.model), folder / "train.json", *folder.glob("updates.jsonl"), folder / "rollouts")
        found = {path.name.removeprefix("eval-u"): path for path in sorted(run.glob("eval-u*"))}
        between = {int(update): path for update, path in found.items() if update.isdigit()}  # none set aside
        step.seal(*(file for one in between.values() for file in written_files(one)))
        for update, one in between.items():
            step.log_score_point(one / SCORES, iteration=update)
        step.log_figures(run / phase / "train.json", iteration=result.updates)
        parents = {"parent_weights": model_digest, "searched": searched_digest, "train": train_digest}
        step.record_digests(**parents)
        if result.skipped is None:
            step.log_model(Path(result.model), digest=result.weights, iteration=result.updates, tags=parents)
        describe(
            model, Path(result.model), digest=result.weights, parents=[model_digest, searched_digest, train_digest]
        )
        log_numbers(metrics, result.model_dump())
    return str(Path(result.model).resolve()), result.weights, result.updates
