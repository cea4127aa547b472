"""A toy pipeline of real components, for tests that compile it and run it."""

from __future__ import annotations

from pathlib import Path

MAKE = '''
from typing import NamedTuple

from kfp import dsl


@dsl.component(base_image="none", install_kfp_package=False)
def make(
    run_dir: str, seed: int, rate: float, mode: str, spec: dict, data: dsl.Output[dsl.Dataset]
) -> NamedTuple("Outputs", [("digest", str), ("level", float)]):
    """Make data.

    Args:
        seed: Of everything.
    """
    import time
    from pathlib import Path
    from typing import NamedTuple

    from platform_sdk.config.errors import UserError

    if mode == "user-error":
        raise UserError("the data are wrong;\\nmend them")
    if mode == "bug":
        raise ZeroDivisionError("a bug")
    with Path(run_dir, "make.txt").open("a") as stream:
        print(repr((seed, rate, spec)), file=stream, flush=True)
    if mode == "slow":
        import os

        Path(run_dir, "pid").write_text(str(os.getpid()))
        time.sleep(60)
    Path(data.path).write_text("data")
    data.metadata["digest"] = f"d{seed}"
    return NamedTuple("Outputs", [("digest", str), ("level", float)])(f"d{seed}", rate)
'''

USE = '''
from kfp import dsl


@dsl.component(base_image="none", install_kfp_package=False)
def use(run_dir: str, phase: str, iteration: int, level: float, digest: str, old: str = "") -> str:
    """Use data."""
    from pathlib import Path

    with Path(run_dir, "use.txt").open("a") as stream:
        print(phase, iteration, level, digest, old, file=stream)
    return f"{digest}/{iteration}"
'''

PIPELINE = """\
name: toy
description: A toy
method: mygo
parameters:
  iterations: {type: integer, description: How many, default: 2, minimum: 0}
  overlap: {type: boolean, description: Lag, default: false}
  seed: {type: integer, description: Of everything, default: 1, group: General}
  rate: {type: number, description: A rate, minimum: 0, maximum: 1}
  mode: {type: string, description: What happens, choices: [well, slow, user-error, bug], default: well}
  spec:
    type: struct
    description: Settings
    schema: platform_sdk.config.training:TrainSpec
    default: {batch_size: 3}
form: [seed, rate, mode, spec.batch_size, spec.normalization]
steps:
  - id: make
    component: make
    inputs:
      run_dir: ${run.dir}
      seed: ${parameters.seed}
      rate: ${parameters.rate}
      mode: ${parameters.mode}
      spec: ${parameters.spec}
  - repeat:
      count: ${parameters.iterations}
      carry:
        digest: {initial: "${steps.make.outputs.digest}", next: "${steps.use.outputs.Output}"}
        old:
          initial: ${steps.make.outputs.digest}
          next: ${steps.use.outputs.Output}
          lag: ${parameters.overlap}
      steps:
        - id: use
          component: use
          inputs:
            run_dir: ${run.dir}
            phase: iteration-${iteration}
            iteration: ${iteration}
            level: ${steps.make.outputs.level}
            digest: ${carry.digest}
            old: ${carry.old}
  - id: last
    component: use
    inputs: {run_dir: "${run.dir}", phase: last, iteration: 9, level: 1, digest: "${carry.digest}"}
"""

RECIPE = """\
pipeline: toy
name: small
parameters:
  rate: 0.5
"""


def write_toy(folder: Path, *, pipeline: str = PIPELINE, recipe: str = RECIPE) -> Path:
    """Write the toy's components, pipeline and recipe under ``folder``; return the recipe's path."""
    for name, code in (("make", MAKE), ("use", USE)):
        path = folder / "components" / name / "component.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    home = folder / "pipelines" / "toy"
    home.mkdir(parents=True, exist_ok=True)
    (home / "pipeline.yaml").write_text(pipeline)
    (home / "small.yaml").write_text(recipe)
    return home / "small.yaml"
