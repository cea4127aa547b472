"""Licences of datasets and base models, from published statements; ``unknown`` if there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from platform_sdk.config.struct import Struct
from platform_sdk.data.licences import DATASETS, MODELS, SHIPPED, card_licence
from platform_sdk.data.licences import UNKNOWN as UNKNOWN


class Licence(Struct):
    """Licence of a dataset or a base model; ``source`` names the statement."""

    thing: str
    licence: str
    source: str


def dataset_licences(dataset: dict[str, Any]) -> Iterator[Licence]:
    """Yield the licences of a recipe's dataset, one for each part of a mixture."""
    if dataset.get("format") == "mixed":
        for part in dataset.get("mixture", ()):
            yield from dataset_licences(part)
        return
    name = str(dataset.get("format", UNKNOWN))
    if dataset.get("licence"):
        yield Licence(thing=f"dataset {name}", licence=str(dataset["licence"]), source="the recipe")
        return
    known = DATASETS.get(name)
    source = "hopforge" if name == "world" else "the dataset's authors, for its official files"
    source = source if known else "no statement"
    yield Licence(thing=f"dataset {name}", licence=known or UNKNOWN, source=source)


def model_licence(name: str, recipes: Iterable[dict[str, Any]]) -> Licence:
    """Return the licence of a shipped model, or the one that the model card in a model's directory states."""
    shipped = f"{SHIPPED}{Path(name).name}"
    if any(recipe["parameters"].get("model") == shipped for recipe in recipes):
        return Licence(thing=f"model {shipped}", licence=MODELS, source="hopforge")
    licence, source = card_licence(Path(name))
    return Licence(thing=f"model {name}", licence=licence, source=source)
