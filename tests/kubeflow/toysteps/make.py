"""The first step of the toy pipeline."""

from __future__ import annotations

from typing import Any

from platform_sdk.execution.step import Finished, StepInputs, StepOutputs

SHOWS = ("metrics",)


class Inputs(StepInputs):
    seed: int
    rate: float
    mode: str
    spec: dict[str, Any]


class Outputs(StepOutputs):
    digest: str
    level: float


def run(inputs: Inputs) -> Finished[Outputs]:
    """Make data, or fail as ``mode`` says."""
    import os
    import sys
    import time

    from platform_sdk.config.errors import UserError

    if inputs.mode == "user-error":
        raise UserError("the data are wrong;\nmend them")
    if inputs.mode == "bug":
        raise ZeroDivisionError("a bug")
    if inputs.mode == "killed":
        os.kill(os.getpid(), 9)
    if inputs.mode == "leaves-a-process" and os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    print("making data", file=sys.stderr)
    with (inputs.run_dir / "make.txt").open("a") as stream:
        print(repr((inputs.seed, inputs.rate, inputs.spec)), file=stream, flush=True)
    if inputs.mode == "slow" and not (inputs.run_dir / "pid").exists():
        (inputs.run_dir / "pid").write_text(str(os.getpid()))
        time.sleep(60)
    outputs = Outputs(digest=f"d{inputs.seed}", level=inputs.rate)
    return Finished(outputs, "# Made\n", {"digest": outputs.digest}, {"rate": inputs.rate})
