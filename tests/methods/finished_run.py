"""Run directories as finished runs leave them, with the shipped base models in place of trained ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from platform_sdk.config.recipe import load_recipe
from platform_sdk.data.dataset import prepare
from platform_sdk.files import read_model
from platform_sdk.methods.launch import EvaluateStep
from platform_sdk.methods.method import load_method
from platform_sdk.retrieval.index import build_index
from platform_sdk.sampling.models import resolve
from platform_sdk.sampling.pairs import model_files, policy_digest
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.journal import Journal, run_file, step_file
from platform_sdk.tracking.opened import recipe_digest
from platform_sdk.tracking.outcomes import write_json

HOME = Path(__file__).parents[2]
TINY = ["dataset.world.entities=60", "dataset.world.train_questions=4", "dataset.world.eval_questions=6"]
RECIPES = {
    "mygo": ("mygo/world.yaml", []),
    "mygo-text": ("mygo/world-text.yaml", []),
    "arena": ("arena/world.yaml", []),
    "evipath": ("evipath/world.yaml", []),
    "prograph": ("prograph/world.yaml", ["retrieval={method: passages, threads: 1}", "environment=world-text"]),
    "react": ("react/world.yaml", []),
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
            searched_digest=digest, seed=0, evaluation=given["evaluation"],
        )  # fmt: skip
        write_json(step.spec_file, step.model_dump(mode="json"))
    (run_dir / "recipe.json").write_text(json.dumps(loaded.resolved()))
    seal_run(run_dir, status=status)
    return run_dir


def seal_run(run_dir: Path, *, status: str = "FINISHED") -> None:
    """Record a run directory as it is now: its files, the model that it evaluates, and how it ended."""
    (run_dir / manifest.FILE_NAME).unlink(missing_ok=True)
    shutil.rmtree(run_dir / "tracking", ignore_errors=True)
    recipe = json.loads((run_dir / "recipe.json").read_text())
    journal = Journal(run_file(run_dir))
    head = manifest.record(run_dir, "run started", {"recipe": recipe_digest(recipe), "git_commit": "c" * 40}).hash
    journal.append("started", manifest_head=head)
    specs = {path.parent.name: read_model(path, EvaluateStep) for path in sorted(run_dir.glob("eval-*/evaluate-*"))}
    outside = {file for step in specs.values() for file in model_files(step.model)}
    manifest.record(run_dir, "step policy", {}, seals.seal(run_dir, outside))
    kept = [run_dir / name for name in ("corpus", "online", "synthesis") if (run_dir / name).exists()]
    manifest.record(run_dir, "step corpus", {}, seals.seal(run_dir, kept))
    indexed = [*run_dir.glob("index/service.json"), *run_dir.glob("index/*/collections/*/**/data_*")]
    manifest.record(run_dir, "step index", {}, seals.seal(run_dir, indexed))
    for phase, step in specs.items():
        digests = {"policy": policy_digest(step.model), "settings": step.settings_digest}
        shown = [path for path in (run_dir / phase).iterdir() if path.name != "evaluate-step.json"]
        head = manifest.record(run_dir, f"step {phase}", digests, seals.seal(run_dir, shown)).hash
        Journal(step_file(run_dir, phase)).append("ended", status="FINISHED", manifest_head=head)
    steps = [step_file(run_dir, phase) for phase in specs]
    ended = manifest.record(run_dir, f"run ended: {status}", {}, seals.seal(run_dir, steps), journal=journal.path)
    journal.append("ended", status=status, manifest_head=ended.head)
