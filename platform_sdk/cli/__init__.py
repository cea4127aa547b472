"""The command ``hopforge``. A command's module is imported when the command is called."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from gc import freeze
from typing import Annotated

import typer

from platform_sdk.cli.application import Application
from platform_sdk.cli.output import close_streams, open_streams, say
from platform_sdk.config.errors import UserError
from platform_sdk.display import DisplayFormatter
from platform_sdk.files import storage_error

COMMANDS = {
    "Recipes and runs": {
        "run": "run:run", "plan": "plan:plan", "compile": "run:compile_", "validate": "run:validate",
        "schema": "run:schema",
        "evaluate": "evaluate:evaluate", "runs": "runs:runs", "report": "runs:report", "ask": "ask:ask",
        "program": "program:program",
        "compare": "compare:compare", "export": "export:export", "study": "study:study",
        "verify": "verify:verify", "lineage": "lineage:lineage", "audit": "audit:audit", "explain": "explain:explain",
        "reproduce": "reproduce:reproduce", "log": "log:log", "approve": "approve:approve",
        "remove": "remove:remove",
    },
    "Clusters": {
        "submit": "remote:submit", "upload": "remote:upload", "watch": "follow:watch", "logs": "follow:logs",
        "cancel": "follow:cancel", "gc": "gc:gc", "teams": "teams:teams",
    },
    "Data and retrieval": {
        "search": "search:search", "recall": "search:recall", "synthesize": "synthesize:synthesize",
        "graph": "graph:graph", "serve": "serve:serve",
    },
    "Scores and records": {"metrics": "metrics:metrics", "score": "score:score", "convert": "convert:convert"},
}  # fmt: skip
"""Commands by heading in the help: the module in this package, and the function or application in it."""

app = Application(COMMANDS, package=__name__, name="hopforge", no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

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
    """Run the command line. A ``UserError`` is printed without a traceback; the exit status is 2."""
    # pydantic searches all installed packages for its plugins; hopforge needs none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    # A fifth of a short command's time is Python's search for cycles among objects that end with the process anyway.
    atexit.register(freeze)
    open_streams()
    if logging.lastResort is not None:  # handler of warnings if logging is not configured
        logging.lastResort.setFormatter(DisplayFormatter())
    try:
        try:
            app()
        finally:
            close_streams()
    except Exception as error:
        shown = error if isinstance(error, UserError) else storage_error(error)
        if shown is None:
            raise
        say("\n".join([f"error: {shown}", *getattr(error, "__notes__", [])]), err=True)
        sys.exit(2)
