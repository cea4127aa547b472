"""The option that opens runs with altered files, and the warning that every output then carries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from platform_sdk.cli.output import say

AlteredOption = Annotated[
    bool, typer.Option("--altered", help="Read a run with altered files too; every output then carries a warning.")
]


def warn(reports: Iterable[str]) -> None:
    """Print the reports of altered files to standard error."""
    for report in reports:
        say(f"warning: {report}", err=True)
