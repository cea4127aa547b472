"""``hopforge graph``: build, measure, show, extend and export a recipe's knowledge hypergraph."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_sdk.cli.altered import warn
from platform_sdk.cli.application import Application
from platform_sdk.cli.search import JsonOption, RecipeOption, SetOption, WorkdirOption, prepared_run
from platform_sdk.cli.terminal import say
from platform_sdk.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.config.graph import GraphSpec
    from platform_sdk.config.recipe import Recipe
    from platform_sdk.graph.build import BuildResult
    from platform_sdk.graph.graph import Graph

graph = Application(help="Build, measure, show, extend and export a knowledge hypergraph.", no_args_is_help=True)


@graph.command("build")
def build(
    recipe: RecipeOption, overrides: SetOption = None, workdir: WorkdirOption = None, as_json: JsonOption = False
) -> None:
    """Build the graph of the recipe's corpus; a killed build resumes."""
    from platform_sdk.graph.build import build as build_graph

    loaded = _recipe(recipe, overrides)
    started = time.monotonic()
    _print_built(build_graph(prepared_run(loaded, workdir), _spec(loaded)), started, as_json)


@graph.command("add")
def add(
    file: Annotated[Path, typer.Argument(help="Passages (JSONL of id, title, text); triples for a graph of triples.")],
    recipe: RecipeOption,
    overrides: SetOption = None,
    workdir: WorkdirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add passages to the graph; only their chunks are extracted."""
    from platform_sdk.execution.claim import FILE
    from platform_sdk.graph.build import add as add_passages

    loaded = _recipe(recipe, overrides)
    started = time.monotonic()
    run_dir = prepared_run(loaded, workdir)
    if (run_dir / FILE).exists():
        raise UserError(f"{run_dir} contains a run, whose graph must not change; choose another --workdir")
    _print_built(add_passages(run_dir, _spec(loaded), file), started, as_json)


@graph.command("stats")
def stats(
    recipe: RecipeOption, overrides: SetOption = None, workdir: WorkdirOption = None, as_json: JsonOption = False
) -> None:
    """Print the size of the graph, its hubs and the rules of its mentions."""
    from platform_sdk.graph.stats import measure

    figures = measure(_opened(_recipe(recipe, overrides), workdir))
    say(json.dumps(figures) if as_json else "\n".join(f"{name}: {value}" for name, value in figures.items()))


@graph.command("show")
def show(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="An entity's name, alias or id.")],
    recipe: RecipeOption,
    output: Annotated[Path | None, typer.Option("-o", help="Write a page with the neighbourhood drawn.")] = None,
    overrides: SetOption = None,
    workdir: WorkdirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an entity and its hyperedges."""
    from platform_sdk.graph.show import find_entity, neighbourhood, write_page

    opened = _opened(_recipe(recipe, overrides), workdir)
    shown = neighbourhood(opened, find_entity(opened, entity))
    if output is not None:
        write_page(shown, output)
    if as_json:
        say(json.dumps(shown))
    elif output is not None:
        say(str(output))
    else:
        say(f"{shown['name']} ({shown['entity']}; {', '.join(shown['aliases']) or 'no aliases'})")
        for edge in shown["hyperedges"]:
            say(f"  {edge['hyperedge']} [{edge['passage']}] {edge['text']}")
            say("      " + "; ".join(other["name"] for other in edge["entities"]))


@graph.command("export")
def export(
    recipe: RecipeOption,
    output: Annotated[Path, typer.Option("-o", help="The JSONL file to write.")],
    overrides: SetOption = None,
    workdir: WorkdirOption = None,
) -> None:
    """Write the graph as JSONL: entities, then hyperedges, each with the text that is embedded."""
    from platform_sdk.graph.stats import write_export

    write_export(_opened(_recipe(recipe, overrides), workdir), output)
    say(str(output))


def _recipe(path: Path, overrides: list[str] | None) -> Recipe:
    from platform_sdk.config.recipe import load_recipe

    return load_recipe(path, overrides or ())


def _spec(recipe: Recipe) -> GraphSpec:
    """Return the recipe's graph settings, or the defaults if the recipe has none."""
    from platform_sdk.config.graph import GraphSpec

    spec = recipe.settings("graph") if "graph" in recipe.parameters else GraphSpec()
    if not isinstance(spec, GraphSpec):
        raise UserError(f"{recipe.path}: graph: its settings are not those of platform_sdk.config.graph")
    return spec


def _opened(recipe: Recipe, workdir: Path | None) -> Graph:
    from platform_sdk.graph.graph import MANIFEST, Graph, check_extractor
    from platform_sdk.graph.sources import graph_folder
    from platform_sdk.tracking.opened import contains_run, open_run

    run_dir = workdir or Path("runs") / recipe.name
    if contains_run(run_dir):
        warn(open_run(run_dir).altered)
    folder = graph_folder(run_dir)
    if not (folder / MANIFEST).exists():
        option = f" --workdir {workdir}" if workdir else ""
        raise UserError(
            f"{folder}: contains no graph; build it first: hopforge graph build --recipe {recipe.path}{option}"
        )
    opened = Graph.open(folder)
    check_extractor(folder, _spec(recipe))
    return opened


def _print_built(built: BuildResult, started: float, as_json: bool) -> None:
    manifest = built.graph.manifest
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures: dict[str, Any] = {
        "entities": manifest.entities,
        "hyperedges": manifest.hyperedges,
        "mentions": manifest.mentions,
        "chunks": manifest.chunks,
        "extracted": built.extracted,
        "malformed": manifest.malformed,
        "digest": manifest.digest,
        "seconds": round(time.monotonic() - started, 3),
        "peak_mb": round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1),
    }
    say(json.dumps(figures) if as_json else "\n".join(f"{name}: {value}" for name, value in figures.items()))
