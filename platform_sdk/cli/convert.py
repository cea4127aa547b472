"""``hopforge convert``: rollouts that an older hopforge wrote, in the records of this one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from platform_sdk.cli.terminal import say


def register(app: typer.Typer) -> None:
    app.command("convert")(convert)


def convert(
    file: Annotated[Path, typer.Argument(help="A file of rollouts of schema 1, e.g. RUN/warmup/rollouts.jsonl.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The new file; it must not exist yet.")],
) -> None:
    """Convert rollouts of schema 1 to schema 2. The queries of a turn, which schema 1 did not record, stay empty.

    The file itself is left as it is, since a run's manifest vouches for it.
    """
    from platform_sdk.record_conversion import convert_file

    say(f"{convert_file(file, output)} rollouts: {output}")
