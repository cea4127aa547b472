"""Train with GRPO on given dialogues and print the figures: a script of its own, for one process or for torchrun."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers import set_seed

from platform_sdk.config.online import OnlineSpec
from platform_sdk.training.arguments import set_steps, training_arguments
from platform_sdk.training.batches import plan
from platform_sdk.training.examples import Example
from platform_sdk.training.objectives import GroupRelative
from platform_sdk.training.policy import load_policy
from platform_sdk.training.reference import reference_for
from platform_sdk.training.run import StepFigures, step_figures
from platform_sdk.training.trainer import PlannedSteps, PolicyTrainer


def run(model: Path, examples: list[Example], spec: OnlineSpec, folder: Path) -> list[StepFigures]:
    """Steps of nine examples each; the trained model is left in ``folder``."""
    args = training_arguments(spec, folder, 3, "cpu")
    steps = plan(
        examples, batch_size=9, micro_batch_tokens=spec.micro_batch_tokens, epochs=1, seed=3, processes=args.world_size
    )
    set_steps(args, spec, len(steps))
    args.save_strategy = "no"
    set_seed(3)  # an adapter's weights are drawn
    policy = load_policy(model, spec, attention="packed")
    trainer = PolicyTrainer(
        policy,
        args,
        source=PlannedSteps(steps, examples, args.process_index),
        objective=GroupRelative.of(spec),
        reference=reference_for(model, policy, spec, "cpu"),
    )
    trainer.train()
    trainer.save_model(str(folder))
    return list(step_figures(trainer))


def main() -> None:
    model, folder, examples = map(Path, sys.argv[1:4])
    spec = OnlineSpec.model_validate_json(sys.argv[4])
    curve = run(
        model,
        [
            Example(*(tuple(v) if isinstance(v, list) else v for v in fields))
            for fields in json.loads(examples.read_text())
        ],
        spec,
        folder,
    )
    (folder / "curve.json").write_text(json.dumps([figures.model_dump() for figures in curve]))


if __name__ == "__main__":
    main()
