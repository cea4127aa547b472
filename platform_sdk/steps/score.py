"""Selection of a phase's rollouts for training, and its figures."""

from __future__ import annotations

from typing import Any

from platform_sdk.execution.step import Finished, StepOutputs, step_name
from platform_sdk.methods.context import Context
from platform_sdk.run_dir import PhaseDir, RunDir


class Inputs(Context):
    """The method's step that sampled the phase, its settings, and the outputs of sampling."""

    step: str
    phase: str
    settings: dict[str, Any]
    carry: dict[str, Any]
    rollouts_digest: str


class Outputs(StepOutputs):
    selected_digest: str


def run(inputs: Inputs) -> Finished[Outputs]:
    """Check the rewards of a phase's rollouts, and select rollouts for training."""
    from platform_sdk.evaluation.cards import selection_card
    from platform_sdk.files import check_handed_on, read_object
    from platform_sdk.methods.method import load_method
    from platform_sdk.methods.steps import select, step_of
    from platform_sdk.tracking import step_run

    run_dir, phase, rollouts = inputs.run_dir, inputs.phase, inputs.rollouts_digest
    method = load_method(inputs.method)
    own = step_of(method, inputs.step)
    handed_on = own.carry.model_validate(inputs.carry)
    with step_run(run_dir, step_name("score", phase)) as record:
        record.log_inputs(training={f"{phase}/{PhaseDir.rollouts}": rollouts})
        sampled_file = RunDir(run_dir).phase(phase).sample
        sampled = read_object(sampled_file)
        check_handed_on(sampled_file, "digest of the rollouts", sampled.get("digest"), rollouts)
        check_handed_on(sampled_file, "carry", sampled.get("carry"), handed_on.model_dump(mode="json"))
        settings = own.settings.model_validate(inputs.settings)
        scored = select(method, method.context(inputs), inputs.step, phase, settings, handed_on)
        record.record_digests(rollouts=rollouts, selected=scored.digest)
        record.seal(scored.path, RunDir(run_dir).phase(phase).figures)
        record.log_figures(RunDir(run_dir).phase(phase).figures)
        return Finished(
            Outputs(selected_digest=scored.digest),
            selection_card(scored.figures),
            {"digest": scored.digest, "parents": [rollouts]},
        )
