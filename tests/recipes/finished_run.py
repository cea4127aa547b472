"""Run directories as finished runs leave them, with the shipped base models in place of trained ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from platform_sdk.config.recipe import load_recipe
from platform_sdk.data.dataset import prepare
from platform_sdk.recipes.launch import EvaluateStep
from platform_sdk.recipes.method import load_method
from platform_sdk.retrieval.index import build_index
from platform_sdk.sampling.models import resolve
from platform_sdk.sampling.pairs import policy_digest
from platform_sdk.tracking.journal import Journal, run_file, step_file
from platform_sdk.tracking.outcomes import write_json

HOME = Path(__file__).parents[2]
TINY = ["dataset.world.entities=60", "dataset.world.train_questions=4", "dataset.world.eval_questions=6"]
RECIPES = {
    "mygo": ("mygo/world.yaml", []),
    "mygo-text": ("mygo/world-text.yaml", []),
    "arena": ("arena/world.yaml", []),
    "evipath": ("evipath/world.yaml", []),
    "prograph": ("prograph/world.yaml", ["retrieval={method: passages, threads: 1}", "environment=world-text"]),
    "baseline": ("arena-baselines/sft-reasoning-smollm2.yaml", [
        "dataset={format: world, world: {entities: 60, train_questions: 4, eval_questions: 6, hops: [1], context: 4}}",
        "model=hopforge:world-base-arena", "agent.prompts=compact",
    ]),
}  # fmt: skip


def finished_run(folder: Path, name: str, *, status: str = "FINISHED", changes: Sequence[str] = ()) -> Path:
    """Make a run directory of a small world: data, index, evaluations, and the journals of a run that ended."""
    recipe, own = RECIPES[name]
    tiny = [] if name == "baseline" else TINY
    loaded = load_recipe(HOME / "pipelines" / recipe, [*tiny, *own, *changes])
    run_dir = folder / name
    prepared = prepare(loaded.settings("dataset"), None, run_dir)
    given = loaded.parameters
    method = loaded.pipeline.document.method
    digest = prepared.passages
    if load_method(method).searches:
        digest = build_index(run_dir, loaded.settings("retrieval"), given["environment"]).corpus_digest
    model = resolve(given["model"])
    for phase in ("eval-start", "eval-final"):
        step = EvaluateStep(
            method=method, run_dir=run_dir, phase=phase, model=str(model), environment=given["environment"],
            agent=given["agent"], sampling=given["sampling"], retrieval=given.get("retrieval", {}),
            corpus_digest=digest, seed=0, evaluation=given["evaluation"],
        )  # fmt: skip
        write_json(step.spec_file, step.model_dump(mode="json"))
        digests = {"policy": policy_digest(model), "settings": step.settings_digest}
        tags = {f"hopforge.digest.{name}": value for name, value in digests.items()}
        Journal(step_file(run_dir, phase)).append("tags", tags=tags)
    (run_dir / "recipe.json").write_text(json.dumps(loaded.resolved()))
    Journal(run_file(run_dir)).append("ended", status=status)
    return run_dir
