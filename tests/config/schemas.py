"""The JSON Schemas beside the shipped pipelines, which their recipes name in the first line.

``python -m tests.config.schemas`` (or ``make schemas``) rewrites them after a change of settings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from platform_sdk.config.pipeline import load_pipeline
from platform_sdk.config.schema import pipeline_schema, recipe_schema

PIPELINES = Path(__file__).parents[2] / "pipelines"


def generated() -> dict[Path, dict[str, Any]]:
    """Return the schemas by the files that hold them."""
    recipes = {
        path.with_name("recipe.schema.json"): recipe_schema(load_pipeline(path))
        for path in sorted(PIPELINES.glob("*/pipeline.yaml"))
    }
    return {PIPELINES / "pipeline.schema.json": pipeline_schema(), **recipes}


if __name__ == "__main__":
    for file, schema in generated().items():
        file.write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")
