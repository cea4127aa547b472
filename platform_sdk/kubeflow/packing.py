"""Input of the step ``begin``: a recipe with its pipeline and cluster, as text that Argo can store."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.recipe import Recipe

SUBMITTED_BY = "submitted_by"
"""Input of a compiled pipeline with the name of the person who starts the run."""


def begun_with(recipe: Recipe, cluster: ClusterSpec | None = None) -> dict[str, Any]:
    """Return the input of ``begin_run``: the pipeline's document, the recipe's name and values, and the cluster."""
    place = None if cluster is None else cluster.model_dump(mode="json")
    return {"document": recipe.pipeline.source.data, "cluster": place, **recipe.resolved()}


def packed(content: Mapping[str, Any]) -> str:
    """Return plain data as compressed text, since Argo stores an input of a step eight times, repeatedly quoted."""
    return base64.b64encode(zlib.compress(json.dumps(content).encode(), 9)).decode()


def unpacked(text: str) -> dict[str, Any]:
    """Return the data of a text from ``packed``."""
    content: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    return content
