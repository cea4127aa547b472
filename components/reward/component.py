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
        method: Whose rewards: a shipped method's name, or the dotted name of a method's module.
        phase: The phase that sampled, e.g. online.
        environment: What the agent is given or searches in.
        agent: The agent's settings, rewards among them.
        sampling: Engine and distribution.
        retrieval: Encoder and index, if the environment has one.
        searched_digest: Digest of the passages; a mismatch stops the run.
        policy_digest: Digest of the policy that came out of the phase.
        seed: The run's.
        metrics: The mean of each reward.
    """
    from pathlib import Path

    from platform_sdk.kubeflow.component import log_numbers, received
    from platform_sdk.recipes.method import load_method
    from platform_sdk.recipes.steps import rescore
    from platform_sdk.tracking import step_run

    run, loaded = Path(run_dir), load_method(method)
    structs = (received(struct) for struct in (agent, sampling, retrieval))
    context = loaded.context(run, environment, *structs, searched_digest, seed)
    with step_run(run, f"reward-{phase}") as step:
        step.log_inputs(retrieval={"index": searched_digest})
        means = rescore(loaded, context, phase)
        step.record_digests(policy=policy_digest, searched=searched_digest)
        step.log_metrics({f"reward/{name}": value for name, value in means.items()})
        log_numbers(metrics, means)
