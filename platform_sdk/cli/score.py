"""``hopforge score``: rewards of responses from other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from platform_sdk.cli.output import say_json
from platform_sdk.cli.run import SetOption


def score(
    recipe: Annotated[
        Path,
        typer.Option(metavar="RECIPE", help="Recipe of the rewards, e.g. pipelines/arena/world.yaml."),
    ],
    gold: Annotated[
        Path, typer.Option(help="The official questions file, with passages: HotpotQA, 2WikiMultihopQA or MuSiQue.")
    ],
    responses: Annotated[Path, typer.Option(help='JSONL of {"id": …, "response": …}.')],
    overrides: SetOption = None,
) -> None:
    """Print the rewards of responses as JSONL, in their order.

    Each line has id, format, accuracy, relevance, bonus and reward; passages are numbered from 1 in file order.
    """
    from platform_sdk.config.recipe import load_recipe
    from platform_sdk.methods.method import load_method

    loaded = load_recipe(recipe, overrides or ())
    method = load_method(loaded.pipeline.document.method)
    for scored in method.score_responses(loaded.settings("agent"), gold, responses):
        say_json(scored)
