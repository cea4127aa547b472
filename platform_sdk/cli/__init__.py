"""The command ``hopforge``: each module here parses, calls and prints; it imports what it calls when it is called."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from platform_sdk.cli import (
    ask,
    compare,
    convert,
    evaluate,
    export,
    follow,
    gc,
    graph,
    metrics,
    remote,
    run,
    runs,
    score,
    search,
    serve,
    study,
    synthesize,
)
from platform_sdk.cli.application import Application
from platform_sdk.cli.terminal import say
from platform_sdk.config.errors import UserError
from platform_sdk.display import DisplayFormatter
from platform_sdk.files import storage_error

app = Application(name="hopforge", no_args_is_help=True, pretty_exceptions_enable=False)
COMMANDS: dict[str, dict[str, typer.Typer | Callable[..., None]]] = {
    "Recipes and runs": {
        "run": run.run, "compile": run.compile_, "validate": run.validate, "schema": run.schema,
        "evaluate": evaluate.evaluate, "runs": runs.runs, "report": runs.report, "ask": ask.ask,
        "compare": compare.compare, "study": study.study, "export": export.export,
    },
    "Clusters": {
        "submit": remote.submit, "upload": remote.upload, "watch": follow.watch, "logs": follow.logs,
        "cancel": follow.cancel, "gc": gc.gc,
    },
    "Data and retrieval": {
        "search": search.search, "recall": search.recall, "graph": graph.graph, "synthesize": synthesize.synthesize,
        "serve": serve.serve,
    },
    "Scores and records": {"metrics": metrics.metrics, "score": score.score, "convert": convert.convert},
}  # fmt: skip
for heading, commands in COMMANDS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=heading)
        else:
            app.command(name, rich_help_panel=heading)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"hopforge {version('hopforge')}")
        raise typer.Exit


@app.callback()
def hopforge(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train retrieval-augmented question-answering agents from recipes."""


def main() -> None:
    """Run the command line. Errors that are meant for people are printed without a traceback; the exit status is 2."""
    if logging.lastResort is not None:  # what writes warnings where nothing else is configured
        logging.lastResort.setFormatter(DisplayFormatter())
    try:
        app()
    except Exception as error:
        told = error if isinstance(error, UserError) else storage_error(error)
        if told is None:
            raise
        say("\n".join([f"error: {told}", *getattr(error, "__notes__", [])]), err=True)
        sys.exit(2)
