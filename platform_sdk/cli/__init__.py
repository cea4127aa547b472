"""The command ``hopforge``: each module here parses, calls and prints; it imports what it calls when it is called."""

from __future__ import annotations

import logging
import sys
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
for title, modules in {
    "Recipes and runs": (run, evaluate, runs, ask, compare, study, export),
    "Clusters": (remote, follow, gc),
    "Data and retrieval": (search, graph, synthesize, serve),
    "Scores and records": (metrics, score, convert),
}.items():
    for module in modules:
        module.register(app.group(title))


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
