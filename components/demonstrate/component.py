"""What a supervised baseline learns from."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def demonstrate(
    run_dir: str,
    method: str,
    phase: str,
    model_path: str,
    model_digest: str,
    environment: str,
    agent: dict,
    sampling: dict,
    retrieval: dict,
    demonstrations: dict,
    searched_digest: str,
    train_digest: str,
    seed: int,
    selected: dsl.Output[dsl.Dataset],
    figures: dsl.Output[dsl.Metrics],
) -> NamedTuple("Outputs", [("selected_digest", str)]):
    """Write demonstrations of a method's form, from gold answers and, where the form has it, the model's explanations.

    Several processes share the questions, on a cluster as a job with GPUs: see the component `sample`.

    Args:
        run_dir: The run directory.
        method: Whose form (a room of platform_sdk.recipes).
        phase: The folder in the run directory.
        model_path: The policy; it explains, and its tokenizer writes.
        model_digest: Digest of its weights.
        environment: What the agent is given or searches in.
        agent: The agent's settings.
        sampling: Engine and distribution.
        retrieval: Encoder and index, if the environment has one.
        demonstrations: How many, and their length.
        searched_digest: Digest of the passages; a mismatch stops the run.
        train_digest: Digest of the questions.
        seed: Of everything that is drawn.
        selected: Where the demonstrations are, and their digest.
        figures: How many there are.
    """
    from pathlib import Path
    from typing import NamedTuple

    from platform_sdk.kubeflow.component import describe, log_numbers, received
    from platform_sdk.kubeflow.training_job.here import job_runner
    from platform_sdk.recipes.jobs import DemonstrateJob, launch
    from platform_sdk.record_files import check_digest
    from platform_sdk.records import Question
    from platform_sdk.sampling.pairs import check_policy
    from platform_sdk.tracking import step_run

    run = Path(run_dir)
    given = {"agent": agent, "sampling": sampling, "retrieval": retrieval, "demonstrations": demonstrations}
    job = DemonstrateJob(
        method=method,
        run_dir=run,
        phase=phase,
        model=model_path,
        environment=environment,
        corpus_digest=searched_digest,
        seed=seed,
        **received(given),
    )
    with step_run(run, f"demonstrate-{phase}") as step:
        check_digest(run / "corpus" / "questions.train.jsonl", Question, train_digest)
        check_policy(model_path, model_digest)
        made = launch(job, job_runner(run))
        step.record_digests(policy=model_digest, train=train_digest, selected=made.digest)
        folder = run / phase
        step.seal(made.path, folder / "demonstrations.json", *folder.glob("rollouts.jsonl"))
        step.log_figures(run / phase / "demonstrations.json")
        describe(selected, made.path, digest=made.digest, parents=[model_digest, searched_digest, train_digest])
        log_numbers(figures, made.figures)
    return NamedTuple("Outputs", [("selected_digest", str)])(made.digest)
