"""A phase's rollouts scored again."""

from kfp import dsl

from platform_sdk.kubeflow.component import LAUNCHER_IMAGE


@dsl.component(base_image=LAUNCHER_IMAGE, install_kfp_package=False)
def reward(
    run_dir: str,
    method: str,
    phase: str,
    environment: str,
    agent: dict,
    sampling: dict,
    retrieval: dict,
    searched_digest: str,
    policy_digest: str,
    seed: int,
    metrics: dsl.Output[dsl.Metrics],
):
    """Score a phase's rollouts again from their texts; rewards that differ from the recorded ones stop the run.

    Args:
        run_dir: The run directory.
        method: Whose rewards (a room of platform_sdk.recipes).
        phase: The phase that sampled, as online.
        environment: What the agent is given or searches in.
        agent: The agent's settings, rewards among them.
        sampling: Engine and distribution.
        retrieval: Encoder and index, if the environment has one.
        searched_digest: Digest of the passages; a mismatch stops the run.
        policy_digest: Digest of the policy that came out of the phase.
        seed: The run's.
        metrics: The mean of each reward.
    """
    import importlib
    from pathlib import Path

    from platform_sdk.kubeflow.component import log_numbers, received
    from platform_sdk.tracking import step_run

    steps = importlib.import_module(f"platform_sdk.recipes.{method}.steps")
    run = Path(run_dir)
    structs = (received(struct) for struct in (agent, sampling, retrieval))
    setting = steps.Setting.read(run, environment, *structs, searched_digest, seed)
    with step_run(run, f"reward-{phase}") as step:
        means = steps.rescore(setting, phase)
        step.record_digests(policy=policy_digest, searched=searched_digest)
        step.log_metrics({f"reward/{name}": value for name, value in means.items()})
        log_numbers(metrics, means)
