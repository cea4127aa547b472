"""``hopforge export``: a run's trained model, or the chats that a model may learn of its reasoning paths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from platform_sdk.cli.altered import AlteredOption, warn
from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import say
from platform_sdk.errors import UserError


def export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run: its directory, its name in --folder, or its MLflow id; for chats also a folder "
            "with examples.jsonl.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The model directory to write; of chats the JSONL file.")
    ],
    format: Annotated[
        Literal["model", "messages", "sharegpt"],
        typer.Option(help="model: the trained model; messages: chats for TRL, LLaMA-Factory; sharegpt: LLaMA-Factory."),
    ] = "model",
    style: Annotated[
        Literal["standard", "compact"] | None,
        typer.Option(help="Of the chats' instructions; by default the run's agent.prompts, standard without a run."),
    ] = None,
    before: Annotated[bool, typer.Option("--before", help="The model that training began with.")] = False,
    folder: Annotated[Path, typer.Option(help="The folder that holds the run directories.")] = RUNS,
    altered: AlteredOption = False,
) -> None:
    """Write a run's model with its card, or its kept reasoning paths as chats for supervised fine-tuning.

    The model is a directory that transformers and vLLM load; adapters are merged into their base, and of a policy of
    two models there is a directory for each. Of chats, each line is one of a planner or executor.
    """
    from platform_sdk.outputs import check_output
    from platform_sdk.tracking.listing import find_run_dir
    from platform_sdk.tracking.opened import RECIPE, open_run

    if format != "model":
        if before:
            raise UserError("--before is of the model: leave it out, or give --format model")
        from platform_sdk.methods.evipath.export import write_chats

        source = Path(run) if Path(run).exists() else find_run_dir(run, folder)
        if (source / RECIPE).is_file():
            warn(open_run(source, altered=altered, full=True).altered)
        say(f"{write_chats(source, output, format, style)} chats: {output}")
        return
    check_output(output, folders=True)
    if style is not None:
        raise UserError("--style is of chats: leave it out, or give --format messages or sharegpt")
    run_dir = find_run_dir(run, folder)

    from platform_sdk.methods.finished import open_finished
    from platform_sdk.methods.model_export import export_model

    finished = open_finished(run_dir, before=before, altered=altered, full=True)
    warn(finished.opened.altered)
    for written in export_model(finished, output):
        say(f"{written}: a model that transformers and vLLM load")
    say(f"{output / 'README.md'}: its model card")
