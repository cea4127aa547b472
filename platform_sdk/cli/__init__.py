"""The command ``hopforge``: each module here parses, calls and prints; it imports what it calls when it is called."""

from __future__ import annotations

import logging
import sys

import typer

from platform_sdk.cli import (
    compare,
    convert,
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
    synthesize,
)
from platform_sdk.cli.terminal import say
from platform_sdk.config.errors import UserError
from platform_sdk.display import DisplayFormatter
from platform_sdk.files import storage_error

app = typer.Typer(
    name="hopforge",
    help="Train retrieval-augmented question-answering agents from recipes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for module in (run, runs, remote, follow, gc, graph, synthesize, search, serve, metrics, score, compare, convert):
    module.register(app)


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
