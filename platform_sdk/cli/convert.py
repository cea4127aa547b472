"""``hopforge convert``: conversion of official releases to the formats of recipes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from platform_sdk.cli.terminal import say
from platform_sdk.errors import UserError


class Form(StrEnum):
    """Formats of input files."""

    WIKIDATA = "wikidata"
    HOTPOTQA = "hotpotqa"
    TWOWIKI = "2wikimultihopqa"


def convert(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files to convert; they are not changed.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The new file; it must not exist yet.")],
    source: Annotated[Form, typer.Option("--from", help="Format of the files.")],
    entities: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="wikidata: ids of the wanted entities, one per line (default: all)."),
    ] = None,
) -> None:
    """Convert a release's files to the files of a recipe's dataset.

    wikidata: a JSON dump (also .gz, .bz2) to the TSV of dataset.triples.

    hotpotqa: the Wikipedia abstracts (tar.bz2, or unpacked) to the JSONL of dataset.corpus.

    2wikimultihopqa: question files, or para_with_hyperlink.jsonl, to the JSONL of dataset.corpus.
    """
    from platform_sdk.outputs import check_output

    check_output(output)
    if output.exists():
        raise UserError(f"{output}: exists already; name a new file")
    if entities is not None and source is not Form.WIKIDATA:
        raise UserError("--entities is for --from wikidata; remove it")
    if source is Form.WIKIDATA and len(files) > 1:
        raise UserError(f"--from {source.value} takes one file, not {len(files)}")
    match source:
        case Form.WIKIDATA:
            from platform_sdk.data.wikidata import convert_wikidata
            from platform_sdk.files import read_text

            wanted = frozenset(read_text(entities).split()) if entities else frozenset()
            if entities and not wanted:
                raise UserError(f"{entities}: contains no entity; add ids such as Q42, one per line")
            made = f"{convert_wikidata(files[0], output, wanted)} triples"
        case Form.HOTPOTQA | Form.TWOWIKI:
            from platform_sdk.data.releases import convert_release

            made = f"{convert_release(source.value, files, output)} passages"  # type: ignore[arg-type]
    say(f"{made}: {output}")
