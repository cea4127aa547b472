"""The rollouts of one phase of a method."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def sample(
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
    selection: dict,
    warmup: dict,
    searched_digest: str,
    index_digest: str,
    train_digest: str,
    seed: int,
    rollouts: dsl.Output[dsl.Dataset],
    threshold: float = 0.0,
) -> NamedTuple("Outputs", [("rollouts_digest", str), ("threshold", float)]):
    """Sample the rollouts of one phase; a killed step goes on, and samples no attempt twice.

    Several processes, where `sampling` or the machine's GPUs ask for them, share the questions; on a cluster they are a
    job with GPUs, and this one waits for it.

    Args:
        run_dir: The run directory.
        method: Whose agent and prompts (a room of platform_sdk.recipes).
        phase: The folder in the run directory, as warmup or iteration-01.
        iteration: The number of the iteration from 1; 0 for the warm-up.
        model_path: The policy that samples.
        model_digest: Digest of its weights.
        environment: What the agent searches in.
        agent: The agent's settings.
        sampling: Engine and distribution.
        retrieval: Encoder and index.
        selection: Questions, attempts and threshold of an iteration.
        warmup: Trajectories and attempts of the warm-up.
        searched_digest: Digest of what is searched; a mismatch stops the run.
        index_digest: Digest of the index.
        train_digest: Digest of the questions.
        seed: Of everything that is drawn.
        rollouts: Where the rollouts are, and their digest.
        threshold: K that the last phase ended with; the warm-up hands on the initial one.
    """
    from pathlib import Path
    from typing import NamedTuple

    from platform_sdk.kubeflow.component import describe, received
    from platform_sdk.kubeflow.training_job.here import job_runner
    from platform_sdk.recipes.jobs import SampleJob, launch
    from platform_sdk.record_files import check_digest
    from platform_sdk.records import Question
    from platform_sdk.sampling.pairs import check_policy
    from platform_sdk.tracking import step_run

    run = Path(run_dir)
    given = {"agent": agent, "sampling": sampling, "retrieval": retrieval, "selection": selection, "warmup": warmup}
    job = SampleJob(
        method=method,
        run_dir=run,
        phase=phase,
        model=model_path,
        environment=environment,
        corpus_digest=searched_digest,
        seed=seed,
        iteration=iteration,
        threshold=threshold,
        **received(given),
    )
    with step_run(run, f"sample-{phase}") as step:
        check_digest(run / "corpus" / "questions.train.jsonl", Question, train_digest)
        check_policy(model_path, model_digest)
        sampled = launch(job, job_runner(run))
        step.record_digests(policy=model_digest, searched=searched_digest, index=index_digest, rollouts=sampled.digest)
        folder = run / phase
        step.seal(sampled.path, folder / "sample.json", *folder.glob("undemonstrated.jsonl"))
        step.log_rollouts(sampled.path)
        describe(
            rollouts,
            sampled.path,
            digest=sampled.digest,
            threshold=sampled.threshold,
            parents=[model_digest, searched_digest, train_digest],
        )
    return NamedTuple("Outputs", [("rollouts_digest", str), ("threshold", float)])(sampled.digest, sampled.threshold)
