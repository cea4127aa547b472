"""The rollouts of a round of a method's own step."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def sample(
    run_dir: str,
    method: str,
    step: str,
    phase: str,
    iteration: int,
    model_path: str,
    model_digest: str,
    environment: str,
    agent: dict,
    sampling: dict,
    retrieval: dict,
    settings: dict,
    carry: dict,
    searched_digest: str,
    index_digest: str,
    train_digest: str,
    seed: int,
    rollouts: dsl.Output[dsl.Dataset],
    iterations: int = -1,
) -> NamedTuple("Outputs", [("rollouts_digest", str), ("carry", dict)]):
    """Sample the rollouts of a round of a method's own step; a killed round resumes and samples no attempt twice.

    Several processes, where `sampling` or the machine's GPUs ask for them, share the questions; on a cluster they are a
    job with GPUs, and this one waits for it.

    Args:
        run_dir: The run directory.
        method: Whose agent and step: a shipped method's name, or the dotted name of a method's module.
        step: The method's step, e.g. MyGO's warmup or iteration, ARENA's demonstrations.
        phase: The folder in the run directory, e.g. warmup or iteration-01.
        iteration: The number of the round from 1; 0 for one that stands alone.
        model_path: The policy that samples.
        model_digest: Digest of its weights.
        environment: What the agent searches in or is given.
        agent: The agent's settings.
        sampling: Engine and distribution.
        retrieval: Encoder and index.
        settings: The step's own settings.
        carry: What the step's last round handed on; {} for the first.
        searched_digest: Digest of what is searched; a mismatch stops the run.
        index_digest: Digest of the index.
        train_digest: Digest of the questions.
        seed: Of everything that is drawn.
        rollouts: Where the rollouts are, and their digest.
        iterations: How many iterations the run makes; the rounds beyond hand on what they were given. Below 0: all.
    """
    from pathlib import Path

    from platform_sdk.files import read_object
    from platform_sdk.kubeflow.component import beyond_last, describe, received
    from platform_sdk.kubeflow.training_job.here import job_runner
    from platform_sdk.recipes.launch import SampleStep, launch
    from platform_sdk.record_files import check_digest, digest_records
    from platform_sdk.records import Question
    from platform_sdk.sampling.pairs import check_policy
    from platform_sdk.tracking import step_run

    run = Path(run_dir)
    if beyond_last(iteration, iterations, run, rollouts):
        return "", received(carry)
    structs = {"agent": agent, "sampling": sampling, "retrieval": retrieval, "settings": settings, "carry": carry}
    arguments = SampleStep(
        method=method,
        run_dir=run,
        phase=phase,
        model=model_path,
        environment=environment,
        corpus_digest=searched_digest,
        seed=seed,
        step=step,
        iteration=iteration,
        **received(structs),
    )
    with step_run(run, f"sample-{phase}") as record:
        check_digest(run / "corpus" / "questions.train.jsonl", Question, train_digest)
        check_policy(model_path, model_digest)
        record.log_inputs(model=model_digest, training={"train": train_digest}, retrieval={"index": searched_digest})
        sampled = launch(arguments, job_runner(run))
        record.record_digests(
            policy=model_digest, searched=searched_digest, index=index_digest, rollouts=sampled.digest
        )
        folder = run / phase
        others = ("candidates.jsonl", "examples.jsonl", "rejected.jsonl", "agent.json", "statistics.json")
        left = [folder / name for name in others if (folder / name).exists()]
        record.seal(sampled.path, folder / "sample.json", *left)
        record.log_rollouts(sampled.path)
        if sampled.digest == digest_records([]):  # nothing to score, so no later step logs the figures
            figures = read_object(folder / "sample.json")["figures"]
            record.log_curve([{"iteration": iteration, **figures}], axis="iteration", phase=phase)
        describe(
            rollouts,
            sampled.path,
            digest=sampled.digest,
            carry=sampled.carry,
            parents=[model_digest, searched_digest, train_digest],
        )
    return sampled.digest, sampled.carry
