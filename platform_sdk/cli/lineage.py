"""``hopforge lineage``: the origins or uses of a run, model, dataset, file or digest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.output import say, text_argument
from platform_sdk.cli.runs import RUNS
from platform_sdk.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.lineage.graph import Graph


def lineage(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN | MODEL | DATASET | FILE | DIGEST",
            help="A run (name in --folder, or directory), a registered model (name@alias, name/3), the path of a "
            "dataset's file or of a file in a run directory, or the beginning of a digest.",
        ),
    ],
    up: Annotated[bool, typer.Option("--up/--down", help="Show origins, or everything made from it.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
) -> None:
    """Show the origins of a run, model, dataset, file or digest, or with --down everything made from it.

    The graph follows from the manifests of all runs in a folder, by digests: dataset file, questions and corpus, graph,
    index, rollouts, selection, model, scores, report. If the base model of a run is the output of another run, the
    lineage continues there. A file of which runs recorded several versions is shown in all versions.
    """
    from platform_sdk.lineage.graph import read_graph
    from platform_sdk.lineage.targets import find_targets
    from platform_sdk.lineage.text import lines, trees
    from platform_sdk.lineage.text import mermaid as flowchart

    target = text_argument(target, "the target")
    if as_json and mermaid:
        raise UserError("--json and --mermaid exclude each other; leave one out")
    graph = read_graph(folder)
    starts = find_targets(target, graph, folder, down=not up)
    part = graph.reachable(starts, down=not up)
    if as_json:
        typer.echo(json.dumps(_content(target, starts, part, up=up), indent=1))
    elif mermaid:
        say(flowchart(part))
    else:
        for branch in trees(part, starts, down=not up):
            for line in lines(branch):
                say(line)


def _content(target: str, starts: list[str], graph: Graph, *, up: bool) -> dict[str, object]:
    return {
        "target": target,
        "direction": "up" if up else "down",
        "starts": starts,
        "nodes": [node.model_dump() for node in graph.nodes.values()],
        "edges": [edge.model_dump() for edge in graph.edges],
    }
