"""A policy trained on the selected rollouts of a phase."""

from typing import NamedTuple

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def train(
    run_dir: str,
    phase: str,
    iteration: int,
    model_path: str,
    model_digest: str,
    selected_digest: str,
    training: dict,
    seed: int,
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> NamedTuple("Outputs", [("model_path", str), ("model_digest", str)]):
    """Train a policy on the selected rollouts of a phase; a killed step resumes from its last checkpoint.

    Several processes, where `training` or the machine's GPUs ask for them, are this one's children; on a cluster they
    are a job with GPUs, and this one waits for it.

    Args:
        run_dir: The run directory.
        phase: The phase whose selected rollouts are learned from.
        iteration: The number of the round from 1; 0 for one that stands alone.
        model_path: The policy to start from.
        model_digest: Digest of its weights.
        selected_digest: Digest of the selected rollouts; empty where nothing was to be sampled.
        training: Optimiser, batches, precision (platform_sdk.config.training).
        seed: Of the order of the examples.
        model: Where the trained policy is, and the digest of its weights.
        metrics: Loss, tokens and seconds.
    """
    from contextlib import ExitStack
    from pathlib import Path

    from platform_sdk.config.training import TrainSpec
    from platform_sdk.kubeflow.component import describe, describe_skipped, log_numbers, received
    from platform_sdk.kubeflow.training_job.here import job_runner
    from platform_sdk.record_files import check_digest
    from platform_sdk.records import Rollout
    from platform_sdk.sampling.pairs import check_policy, models_of
    from platform_sdk.tracking import step_run
    from platform_sdk.tracking.following import following
    from platform_sdk.training.launch import TrainStep, launch_training

    run = Path(run_dir)
    if not selected_digest:
        describe_skipped(f"{phase}: nothing was to be sampled", run, model)
        return model_path, model_digest
    spec = TrainSpec.model_validate(received(training))
    selected = run / phase / "selected.jsonl"
    with step_run(run, f"train-{phase}") as step:
        check_digest(selected, Rollout, selected_digest)
        check_policy(model_path, model_digest)
        step.log_inputs(model=model_digest, training={f"{phase}/selected.jsonl": selected_digest})
        arguments = TrainStep(run_dir=run, phase=phase, model=model_path, selected=selected, seed=seed, spec=spec)
        with ExitStack() as curves:
            for trained in [f"{phase}/{role}" for role in models_of(model_path)] or [phase]:
                curves.enter_context(following(step, run / trained / "steps.jsonl", axis="step", phase=trained))
            result = launch_training(arguments, job_runner(run))
        # Of a pair, each model has a folder of its own too.
        step.seal(Path(result.model), *(run / phase).glob("*/model"))
        step.seal(*(run / phase).glob("**/train.json"), *(run / phase).glob("**/steps.jsonl"))
        step.log_figures(run / phase / "train.json", iteration=iteration)
        parents = {"parent_weights": model_digest, "selected": selected_digest}
        step.record_digests(**parents)
        if result.skipped is None:
            step.log_model(Path(result.model), digest=result.weights, iteration=iteration, tags=parents)
        describe(model, Path(result.model), digest=result.weights, parents=[model_digest, selected_digest])
        log_numbers(metrics, result.model_dump())
    return str(Path(result.model).resolve()), result.weights
