"""``hopforge convert``: official releases in the forms that recipes read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from platform_sdk.cli.terminal import say
from platform_sdk.errors import UserError


class Form(StrEnum):
    """Kinds of files that are converted."""

    WIKIDATA = "wikidata"
    HOTPOTQA = "hotpotqa"
    TWOWIKI = "2wikimultihopqa"


def convert(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="What to convert; it stays as it is.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The new file; it must not exist yet.")],
    source: Annotated[Form, typer.Option("--from", help="What the files are.")],
    entities: Annotated[
        Path | None, typer.Option(metavar="FILE", help="wikidata: ids of the wanted entities, one a line; else all.")
    ] = None,
) -> None:
    """Convert a release's files to those that a recipe's dataset names.

    wikidata: a JSON dump (also .gz, .bz2) to the TSV of dataset.triples.

    hotpotqa: the Wikipedia abstracts (tar.bz2, or unpacked) to the JSONL of dataset.corpus.

    2wikimultihopqa: question files, or para_with_hyperlink.jsonl, to the JSONL of dataset.corpus.
    """
    from platform_sdk.outputs import check_output

    check_output(output)
    if output.exists():
        raise UserError(f"{output}: exists already; name a new file")
    if entities is not None and source is not Form.WIKIDATA:
        raise UserError("--entities is for --from wikidata; leave it out")
    if source is Form.WIKIDATA and len(files) > 1:
        raise UserError(f"--from {source.value} takes one file, not {len(files)}")
    match source:
        case Form.WIKIDATA:
            from platform_sdk.data.wikidata import convert_wikidata
            from platform_sdk.files import read_text

            wanted = frozenset(read_text(entities).split()) if entities else frozenset()
            if entities and not wanted:
                raise UserError(f"{entities}: names no entity; give ids such as Q42, one a line")
            made = f"{convert_wikidata(files[0], output, wanted)} triples"
        case Form.HOTPOTQA | Form.TWOWIKI:
            from platform_sdk.data.releases import convert_release

            made = f"{convert_release(source.value, files, output)} passages"  # type: ignore[arg-type]
    say(f"{made}: {output}")
