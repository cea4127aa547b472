"""Check of rewards by scoring a phase's rollouts again."""

from __future__ import annotations

from platform_sdk.execution.step import Finished, StepOutputs, step_name
from platform_sdk.methods.context import Context


class Inputs(Context):
    """The sampled phase, e.g. online, and the digest of the resulting policy."""

    phase: str
    policy_digest: str


class Outputs(StepOutputs):
    """No outputs: the step only stops the run if rewards differ."""


def run(inputs: Inputs) -> Finished[Outputs]:
    """Score a phase's rollouts again from their texts; a reward that differs from the record stops the run."""
    from platform_sdk.evaluation.cards import rewards_card
    from platform_sdk.methods.method import load_method
    from platform_sdk.methods.steps import rescore
    from platform_sdk.tracking import step_run

    method = load_method(inputs.method)
    context = method.context(inputs)
    with step_run(inputs.run_dir, step_name("reward", inputs.phase)) as step:
        step.log_inputs(retrieval={"index": inputs.searched_digest})
        means = rescore(method, context, inputs.phase)
        step.record_digests(policy=inputs.policy_digest, searched=inputs.searched_digest)
        step.log_metrics({f"reward/{name}": value for name, value in means.items()})
        return Finished(Outputs(), rewards_card(inputs.phase, means))
