"""components/retriever describes the service as it is, as the other components' READMEs do."""

from __future__ import annotations

import re
from pathlib import Path

from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.service import CollectionSpec, ServiceSpec
from platform_sdk.retrieval.service.app import create_app
from platform_sdk.retrieval.service.metrics import Metrics

ROOT = Path(__file__).parents[3]
COMPONENT = ROOT / "components/retriever"


def test_service_readme_names_every_input_and_endpoint() -> None:
    readme = (COMPONENT / "README.md").read_text()
    for name in (*ServiceSpec.model_fields, *CollectionSpec.model_fields):
        assert f"`{name}`" in readme, name
    app = create_app(read_as(ServiceSpec, COMPONENT / "service.yaml"), None, Metrics())
    served = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    documents = {("GET", "/openapi.json"), ("GET", "/metrics")}
    assert set(re.findall(r"`(GET|POST) (/[\w./]+)`", readme)) == served | documents


def test_service_example_matches_shipped_recipes() -> None:
    example = read_as(ServiceSpec, COMPONENT / "service.yaml")
    recipes = [load_recipe(ROOT / "pipelines/mygo" / name) for name in ("world.yaml", "hotpotqa-smollm2.yaml")]
    for collection, recipe in zip(example.collections, recipes, strict=True):
        assert collection.run_dir == Path("runs") / recipe.name
        assert collection.environment == recipe.parameters["environment"]
