"""The repeated step of the toy pipeline."""

from __future__ import annotations

from platform_sdk.execution.step import Finished, StepInputs, StepOutputs


class Inputs(StepInputs):
    phase: str
    iteration: int
    level: float
    digest: str
    old: str = ""


class Outputs(StepOutputs):
    Output: str


def run(inputs: Inputs) -> Finished[Outputs]:
    """Use data."""
    with (inputs.run_dir / "use.txt").open("a") as stream:
        print(inputs.phase, inputs.iteration, inputs.level, inputs.digest, inputs.old, file=stream)
    return Finished(Outputs(Output=f"{inputs.digest}/{inputs.iteration}"), "# Used\n")
