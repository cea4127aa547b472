"""The option ``--altered``, which opens runs with altered files, and its warning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from platform_sdk.cli.output import say

AlteredOption = Annotated[
    bool, typer.Option("--altered", help="Also read a run with altered files; every output then has a warning.")
]


def warn(reports: Iterable[str]) -> None:
    """Print the reports of altered files to standard error."""
    for report in reports:
        say(f"warning: {report}", err=True)
