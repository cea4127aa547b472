"""Validate rendered objects by the schemas of Kubernetes, and of projects whose schemas are at hand."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("HOPFORGE_CRDS") or ROOT / "../shared/crds")

# kubernetes_validate reads megabytes of definitions again for every object.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)


def check_builtin(item: dict[str, Any]) -> None:
    """Fail unless ``item``, of a kind that is Kubernetes' own, is what the API server would take."""
    kubernetes_validate.validate(item, "1.32", strict=True)


def check(item: dict[str, Any]) -> None:
    """Fail unless ``item`` is what the API server would take under strict validation; skip without the schemas."""
    group, version = item["apiVersion"].split("/")
    kind = item["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    path = FOLDER / f"{group}_{plural}.yaml"
    if not path.is_file():
        pytest.skip(f"the schema {path.name} is not at hand (HOPFORGE_CRDS names their folder)")
    [schema] = [v["schema"]["openAPIV3Schema"] for v in _definition(path)["versions"] if v["name"] == version]
    jsonschema.Draft7Validator(schema).validate(item)
    assert list(_unknown(item, schema, "")) == []
    assert list(_duplicates(item, schema, "")) == []


@cache
def _definition(path: Path) -> dict[str, Any]:
    return dict(YAML(typ="safe").load(path)["spec"])


def _unknown(value: Any, schema: dict[str, Any], path: str) -> Any:
    """The fields that the schema does not know: a plain create would drop them silently."""
    if path in (".metadata", ".apiVersion", ".kind") or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, dict):
        extra = schema.get("additionalProperties")
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key, extra if isinstance(extra, dict) else None)
            if known is None:
                yield f"{path}.{key}"
            else:
                yield from _unknown(inner, known, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _unknown(inner, schema.get("items", {}), f"{path}[]")


def _duplicates(value: Any, schema: dict[str, Any], path: str) -> Any:
    """The entries of a list whose keys another entry has: the API server refuses them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _duplicates(inner, schema.get("properties", {}).get(key, {}), f"{path}.{key}")
    elif isinstance(value, list):
        keys = schema.get("x-kubernetes-list-map-keys", ())
        entries = [tuple(inner.get(key) for key in keys) for inner in value] if keys else []
        for number, (entry, inner) in enumerate(zip(entries or value, value, strict=True)):
            if entries and entry in entries[:number]:
                yield f"{path}[{number}]"
            yield from _duplicates(inner, schema.get("items", {}), f"{path}[]")
