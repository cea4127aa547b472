"""A toy pipeline of steps of its own (``toysteps``), for tests that compile it and run it."""

from __future__ import annotations

from pathlib import Path

PIPELINE = """\
name: toy
description: A toy
method: mygo
parameters:
  iterations: {type: integer, description: How many, default: 2, minimum: 0}
  overlap: {type: boolean, description: Lag, default: false}
  seed: {type: integer, description: Of everything, default: 1, group: General}
  rate: {type: number, description: A rate, minimum: 0, maximum: 1}
  mode: {type: string, description: What happens, choices: [well, slow, user-error, bug, killed], default: well}
  spec:
    type: struct
    description: Settings
    schema: platform_sdk.config.training:TrainSpec
    default: {batch_size: 3}
form: {training: {batch: spec.batch_size, normalization: spec.normalization}, run: {seed: seed, rate: rate, mode: mode}}
steps:
  - id: make
    component: tests.kubeflow.toysteps.make
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
          component: tests.kubeflow.toysteps.use
          inputs:
            run_dir: ${run.dir}
            phase: iteration-${iteration}
            iteration: ${iteration}
            level: ${steps.make.outputs.level}
            digest: ${carry.digest}
            old: ${carry.old}
  - id: last
    component: tests.kubeflow.toysteps.use
    inputs: {run_dir: "${run.dir}", phase: last, iteration: 9, level: 1, digest: "${carry.digest}"}
"""

RECIPE = """\
pipeline: toy
name: small
parameters:
  rate: 0.5
"""


def write_toy(folder: Path, *, pipeline: str = PIPELINE, recipe: str = RECIPE) -> Path:
    """Write the toy's pipeline and recipe under ``folder``; return the recipe's path."""
    home = folder / "pipelines" / "toy"
    home.mkdir(parents=True, exist_ok=True)
    (home / "pipeline.yaml").write_text(pipeline)
    (home / "small.yaml").write_text(recipe)
    return home / "small.yaml"
