"""Train an agent, print its scores, and show how it answers a question it has not seen.

    python examples/train_and_ask.py [RECIPE [RUN_DIRECTORY [NAME=VALUE …]]]

The default is the recipe of the quick start: some minutes on two CPU cores. A finished run is not repeated.
"""

import sys
from pathlib import Path

from platform_sdk.config.recipe import load_recipe
from platform_sdk.execution.runs import execute, finished_at, outcome
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout


def main(recipe_path: str = "pipelines/mygo/world.yaml", run_dir: str = "runs/example", *overrides: str) -> None:
    # Train: every problem of the recipe is reported before anything runs.
    recipe, run = load_recipe(Path(recipe_path), overrides), Path(run_dir)
    if not finished_at(recipe, run):
        execute(recipe, run)

    # Inspect the scores on questions that the agent was not trained on.
    for scores in outcome(run).scores:
        metrics = {name: f"{scores['metrics'][name]['value']:.3f}" for name in scores["shown"]}
        print(f"{scores['phase']}: {scores['n']} questions, {metrics}")

    # Read an answer: the dialogue of the first question, turn by turn, with the evidence that was found.
    rollout = next(read_jsonl(run / "eval-final" / "rollouts.jsonl", Rollout))
    print(f"\n{rollout.question.text}\nanswered {rollout.main.answer!r}; correct is {rollout.question.answers[0]!r}")
    for trajectory in rollout.trajectories:
        for turn in trajectory.turns:
            print(f"[{trajectory.role}, {turn.speaker}] {turn.text.strip()}")
            print("".join(f"    found {evidence.id}: {evidence.text}\n" for evidence in turn.evidence), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
