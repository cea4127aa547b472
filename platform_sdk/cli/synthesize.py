"""``hopforge synthesize``: synthesis of reasoning paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.cli.output import say_json
from platform_sdk.cli.search import JsonOption, RecipeOption, SetOption, WorkdirOption, prepared_run
from platform_sdk.cli.terminal import say
from platform_sdk.errors import UserError
from platform_sdk.run_dir import PhaseDir

if TYPE_CHECKING:
    from platform_sdk.config.recipe import Recipe
    from platform_sdk.methods.launch import SampleStep

PHASE = "synthesis"


def synthesize(
    recipe: RecipeOption, overrides: SetOption = None, workdir: WorkdirOption = None, as_json: JsonOption = False
) -> None:
    """Synthesise the reasoning paths of a recipe's training questions; a killed synthesis resumes.

    Accepted paths are in RUN/synthesis/examples.jsonl, rejected paths with their reasons in rejected.jsonl.
    """
    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.files import read_object
    from platform_sdk.methods.evipath.records import Example
    from platform_sdk.methods.evipath.synthesis import DRAFTS, EXAMPLES, write_outcome
    from platform_sdk.methods.launch import launch
    from platform_sdk.record_files import check_digest, read_log

    loaded = load_recipe(recipe, overrides or ())
    if "synthesis" not in loaded.parameters:
        method = loaded.pipeline.document.method
        raise UserError(f"{loaded.path}: method {method} has no synthesis; choose a recipe of the pipeline evipath")
    step = _step(loaded, prepared_run(loaded, workdir))
    carry = launch(step).carry
    if not (step.folder / EXAMPLES).is_file():  # removed after the step ended; restored from the drafts
        write_outcome(step.folder, list(read_log(step.folder / DRAFTS, Example)))
    check_digest(step.folder / EXAMPLES, Example, carry["examples"])
    figures = read_object(PhaseDir(step.folder).sample)["figures"]
    content = {**figures, "digest": carry["examples"], "folder": str(step.folder)}
    if as_json:
        say_json(content)
        return
    say("\n".join(f"{name}: {value}" for name, value in content.items()))


def _step(recipe: Recipe, run_dir: Path) -> SampleStep:
    """Return the step ``synthesize`` of the recipe's pipeline."""
    from platform_sdk.agents.planner_messages import medium_of
    from platform_sdk.data.dataset import read_corpus, read_triples
    from platform_sdk.methods.launch import SampleStep

    parameters = recipe.parameters
    graph = medium_of(parameters["environment"]) == "kg"
    searched = read_triples(run_dir) if graph else read_corpus(run_dir)
    structs = {name: recipe.settings(name).model_dump(mode="json") for name in ("agent", "retrieval")}
    return SampleStep(
        method=recipe.pipeline.document.method,
        run_dir=run_dir,
        phase=PHASE,
        model=parameters["teacher_model"],
        environment=parameters["environment"],
        sampling=recipe.settings("teaching").model_dump(mode="json"),
        searched_digest=searched.digest,
        seed=parameters["seed"],
        step=parameters["teacher"],
        iteration=0,
        settings=recipe.settings("synthesis").model_dump(mode="json"),
        carry={},
        **structs,
    )
