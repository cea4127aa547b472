"""``hopforge audit``: origin, scores, verification, overlap and licences of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.output import say, say_json, text_argument
from platform_sdk.cli.runs import RUNS

if TYPE_CHECKING:
    from platform_sdk.lineage.audit import Audit

SHOWN = 5
"""Most pairs of each kind that the terminal shows."""


def audit(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN | MODEL",
            help="A run (its last trained model), a registered model (name@alias, name/3), or the path or digest of a "
            "model that a run trained.",
        ),
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write an HTML page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    licence: Annotated[
        str,
        typer.Option(metavar="ID", help="Licence under which the model is offered, e.g. Apache-2.0; shows conflicts."),
    ] = "",
    approvers: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Check signatures of approvals with the public keys NAME.pem in this folder."),
    ] = None,
    encoder: Annotated[bool, typer.Option(help="Also search near questions by the shipped sentence encoder.")] = True,
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
) -> None:
    """Audit a model: licences with conflicts; approvals; who, when, from what, how; scores; verification; overlap.

    Every run in the model's lineage is verified, which reads all its files. The overlap compares the questions that
    the model was evaluated on with all training questions in its lineage. The exit status is that of verify.
    """
    from platform_sdk.lineage.audit import audit_model
    from platform_sdk.lineage.audit_page import build_audit
    from platform_sdk.lineage.graph import read_graph
    from platform_sdk.lineage.targets import find_targets
    from platform_sdk.outputs import check_output, write_output
    from platform_sdk.tracking.findings import exit_status
    from platform_sdk.tracking.log.approvers import Approvers

    target = text_argument(target, "the target")
    if output is not None:
        check_output(output)
    graph = read_graph(folder)
    starts = find_targets(target, graph, folder, down=False)
    encode = None
    if encoder:
        from platform_sdk.retrieval.load import shipped_encoder

        encode = shipped_encoder()
    result = audit_model(
        target.rstrip("/"), starts, graph, folder, licence=text_argument(licence, "--licence") if licence else "",
        approvers=None if approvers is None else Approvers(approvers), encode=encode,
    )  # fmt: skip
    if output is not None:
        write_output(output, build_audit(result, graph))
    if as_json:
        say_json(result, indent=1)
    else:
        _print(result)
    raise typer.Exit(exit_status(result.verifications))


def _print(found: Audit) -> None:
    from platform_sdk.lineage.audit_text import headlines, overlap_lines

    for line in headlines(found):
        say(line)
    for score in found.scores:
        interval = "" if score.low is None or score.high is None else f" ({score.low:.4g} to {score.high:.4g})"
        say(f"score: {score.phase} {score.metric} {score.value:.4g}{interval}, {score.questions} questions")
    if found.overlap is not None:
        for line in overlap_lines(found.overlap, SHOWN):
            say(line)
    for path in found.unread:
        say(f"not read, since it is missing: {path}", err=True)
