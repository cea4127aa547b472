"""``hopforge lineage``: the origins or uses of a run, model, dataset, file or digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.output import say, say_json, text_argument
from platform_sdk.cli.runs import RUNS
from platform_sdk.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.lineage.graph import Graph


def lineage(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN | MODEL | DATASET | FILE | DIGEST",
            help="A run (name in --folder, or directory), a registered model (name@alias, name/3), the path of a "
            "dataset's file or of a file in a run directory, or the beginning of a digest.",
        ),
    ] = None,
    up: Annotated[bool, typer.Option("--up", help="Show origins (default).")] = False,
    down: Annotated[bool, typer.Option("--down", help="Show everything made from it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page.")] = None,
    openlineage: Annotated[
        bool,
        typer.Option(
            "--openlineage",
            help="Send OpenLineage events to the server in OPENLINEAGE_URL or openlineage.yml; print them "
            "without such a configuration.",
        ),
    ] = False,
    question: Annotated[
        str | None, typer.Option(metavar="TEXT_OR_ID", help="Instead: models trained or evaluated on a question.")
    ] = None,
    passage: Annotated[str | None, typer.Option(metavar="ID", help="Instead: models that saw a passage.")] = None,
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
) -> None:
    """Show the origins of a run, model, dataset, file or digest, or with --down everything made from it.

    The graph follows from the manifests of all runs in a folder, by digests: dataset file, questions and corpus, graph,
    index, rollouts, selection, model, scores, report. If the base model of a run is the output of another run, the
    lineage continues there. If runs recorded several versions of a file, all are shown.

    --question and --passage take no target. They search the rollouts of all runs and list the models that learned from
    a rollout of the question or with the passage, that sampled it in training, and that were evaluated on it.
    """
    from platform_sdk.lineage.graph import read_graph
    from platform_sdk.lineage.page import build_page
    from platform_sdk.lineage.targets import find_targets
    from platform_sdk.lineage.text import lines, trees
    from platform_sdk.lineage.text import mermaid as flowchart
    from platform_sdk.outputs import check_output, write_output

    if sum(one is not None for one in (target, question, passage)) != 1:
        raise UserError("lineage: needs a run, model, dataset, file or digest, or one of --question and --passage")
    if up and down:
        raise UserError("--up and --down exclude each other; leave one out")
    if as_json + mermaid + openlineage > 1:
        raise UserError("--json, --mermaid and --openlineage exclude each other; leave one out")
    if question == "" or passage == "":
        raise UserError("--question and --passage need a text or an id, not an empty argument")
    if target is None and (mermaid or openlineage or html is not None or down):
        raise UserError("--question and --passage have no --down, --mermaid, --openlineage, --html; leave them out")
    if target is None:
        _print_uses(folder, question or "", passage or "", as_json=as_json)
        return
    target = text_argument(target, "the target")
    if html is not None:
        check_output(html)
    graph = read_graph(folder)
    starts = find_targets(target, graph, folder, down=down)
    part = graph.reachable(starts, down=down)
    found = trees(part, starts, down=down)
    if html is not None:
        write_output(html, build_page(target, found, down=down))
    if as_json:
        say_json(_content(target, starts, part, down=down), indent=1)
    elif mermaid:
        say(flowchart(part))
    elif openlineage:
        from platform_sdk.lineage.openlineage_events import events_of, send_events

        events = events_of(part, folder)
        printed = 0
        for line in send_events(events):
            typer.echo(line)
            printed += 1
        if not printed:
            say(f"{len(events)} OpenLineage events sent")
    else:
        for tree in found:
            for line in lines(tree):
                say(line)


def _print_uses(folder: Path, question: str, passage: str, *, as_json: bool) -> None:
    from platform_sdk.lineage.graph import read_graph
    from platform_sdk.lineage.uses import find_uses

    graph = read_graph(folder)
    found = find_uses(folder, graph, question=text_argument(question, "--question"), passage=passage)
    if as_json:
        say_json(found, indent=1)
        return
    for use in found.uses:
        say(f"{use.relation}: {graph.nodes[use.model]} ({use.run}: {use.step}, {use.records} rollouts in {use.file})")
        for text in use.questions:
            say(f"  {text}")
        for model in use.successors:
            say(f"  then trained further into {graph.nodes[model]}")
    if not found.uses:
        say(f"no rollout in {folder} has it")
    for path in found.unread:
        say(f"not searched, since it is missing: {path}", err=True)


def _content(target: str, starts: list[str], graph: Graph, *, down: bool) -> dict[str, object]:
    return {
        "target": target,
        "direction": "down" if down else "up",
        "starts": starts,
        "nodes": [node.model_dump() for node in graph.nodes.values()],
        "edges": [edge.model_dump() for edge in graph.edges],
    }
