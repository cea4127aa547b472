"""Upload of all pipelines to the UI, with a version for every recipe; the recipe's values are the form's defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.pipeline import home
from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.config.source import load_source, suggestion
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.versions import CompiledPipeline, compile_for, put


@dataclass(frozen=True)
class UploadedPipeline:
    """A recipe as a version in the UI; ``new`` if it was uploaded now."""

    pipeline: str
    recipe: str
    version: str
    version_url: str
    new: bool


def recipes_of(
    pipelines: Iterable[str] = (), *, overrides: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> dict[str, list[Recipe]]:
    """Return the shipped recipes by their pipeline's name.

    Args:
        pipelines: names of the pipelines; empty for all.
        overrides: values for every recipe; see ``load_recipe``.
        variables: the cluster's environment; this machine's environment is not used.

    Raises:
        UserError: there is no such pipeline, or a recipe has problems.
    """
    folder = home() / "pipelines"
    found: dict[str, list[Recipe]] = {path.parent.name: [] for path in sorted(folder.glob("*/pipeline.yaml"))}
    wanted = list(pipelines) or list(found)
    for name in wanted:
        if name not in found:
            raise UserError(f"there is no pipeline {name!r}; {suggestion(name, found)}", code="recipe.unknown-pipeline")
    for path in sorted(folder.glob("*/*.yaml")):
        if path.name != "pipeline.yaml" and load_source(path).data.get("pipeline") in wanted:
            recipe = load_recipe(path, overrides, variables or {})
            found[recipe.pipeline.name].append(recipe)
    return {name: found[name] for name in wanted}


def upload(
    server: Server, recipes: Iterable[Recipe], cluster: ClusterSpec, *, namespace: str | None
) -> Iterator[UploadedPipeline]:
    """Upload missing versions. All recipes are compiled before the first upload.

    Args:
        namespace: the pipelines' namespace; None for shared pipelines.

    Raises:
        UserError: a pipeline is too large; the server cannot be reached or refuses.
    """
    compiled: list[CompiledPipeline] = [compile_for(recipe, cluster) for recipe in recipes]
    for one in compiled:
        version = put(server, one, namespace)
        yield UploadedPipeline(
            pipeline=one.recipe.pipeline.name,
            recipe=one.recipe.name,
            version=version.name,
            version_url=server.link("pipelines", "details", version.pipeline_id, "version", version.version_id),
            new=version.new,
        )
