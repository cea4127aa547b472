"""Licences of datasets and base models, from published statements; ``unknown`` if there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from platform_sdk.config.struct import Struct
from platform_sdk.lineage.terms import GENERATED, UNKNOWN, canonical

SHIPPED = "hopforge:"
"""Prefix in a recipe of the name of a model that hopforge ships."""
DATASETS = {
    "hotpotqa": "CC-BY-SA-4.0", "2wikimultihopqa": "Apache-2.0", "musique": "CC-BY-4.0", "nq": "CC-BY-SA-3.0",
    "qald10": "MIT", "world": GENERATED,
}  # fmt: skip
"""Licences that the authors of the shipped formats state for their datasets (SPDX ids)."""


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
    if stated := dataset.get("licence"):
        yield Licence(thing=f"dataset {name}", licence=canonical(str(stated)), source="the recipe")
        return
    known = DATASETS.get(name)
    source = "hopforge" if name == "world" else "the dataset's authors, for its official files"
    source = source if known else "no statement"
    yield Licence(thing=f"dataset {name}", licence=known or UNKNOWN, source=source)


def model_licence(name: str, recipes: Iterable[dict[str, Any]]) -> Licence:
    """Return the licence of a shipped model, or the one that the model card in a model's directory states."""
    shipped = f"{SHIPPED}{Path(name).name}"
    if any(recipe["parameters"].get("model") == shipped for recipe in recipes):
        return Licence(thing=f"model {shipped}", licence="Apache-2.0", source="hopforge")
    card = Path(name) / "README.md"
    if not card.is_file():
        return Licence(thing=f"model {name}", licence=UNKNOWN, source="no model card in the directory")
    stated = _stated(card.read_text(encoding="utf-8", errors="replace"))
    return Licence(
        thing=f"model {name}", licence=canonical(stated) if stated else UNKNOWN,
        source=str(card) if stated else f"{card} states none",
    )  # fmt: skip


def _stated(card: str) -> str:
    """Return the licence in a model card's header; for ``license: other``, the name that the card gives it."""
    head = card.split("---")
    try:
        fields = YAML(typ="safe").load(head[1]) if len(head) > 2 and not head[0].strip() else None
    except YAMLError:
        return ""
    if not isinstance(fields, dict):
        return ""
    stated = str(fields.get("license") or "")
    return str(fields.get("license_name") or "") if stated.lower() in ("other", "unknown") else stated
