"""Pipelines and their versions on the server: one pipeline for each ``pipeline.yaml``, one version for each content.

A version is named by its recipe and the digest of its intermediate representation, so equal content is uploaded once
and can be recognised.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import Recipe
from platform_sdk.kubeflow.compile import PipelineIr, compile_recipe, write_ir
from platform_sdk.kubeflow.limits import VERSION_NAME
from platform_sdk.kubeflow.remote.connection import Server

MAX_BYTES = 1_400_000
"""Maximum size of the intermediate representation: it becomes a Workflow, and Kubernetes stores objects of at most
1.5 MiB.
"""
PAGE = 100


@dataclass(frozen=True)
class CompiledPipeline:
    """A recipe's pipeline for a cluster; ``digest`` is the SHA-256 (hex) of its canonical representation."""

    recipe: Recipe
    pipeline: PipelineIr
    digest: str
    service_account: str | None = None

    @property
    def version(self) -> str:
        """Return the version's name."""
        return f"{self.recipe.name[: VERSION_NAME - 17]}-{self.digest[:16]}"

    @property
    def description(self) -> str:
        """Return the version's full description, with the service account, which the form cannot set."""
        text = self.recipe.description or self.recipe.pipeline.document.description
        account = f" Start runs with the service account {self.service_account}." if self.service_account else ""
        return f"{text}{account} (IR sha256 {self.digest})"


@dataclass(frozen=True)
class Version:
    """A pipeline's version on the server; ``new`` if it was uploaded now."""

    pipeline_id: str
    version_id: str
    name: str
    new: bool


def compile_for(recipe: Recipe, cluster: ClusterSpec) -> CompiledPipeline:
    """Compile a recipe for a cluster.

    Raises:
        UserError: a component cannot be loaded; the pipeline is too large for Kubernetes.
    """
    pipeline = compile_recipe(recipe, cluster)
    canonical = json.dumps([pipeline.specification, pipeline.platform], sort_keys=True, separators=(",", ":")).encode()
    if len(canonical) > MAX_BYTES:
        raise UserError(
            f"{recipe.path}: the compiled pipeline has {len(canonical):,} bytes in "
            f"{len(pipeline.specification['deploymentSpec']['executors'])} steps, and Kubernetes accepts at most "
            f"{MAX_BYTES:,}; give the pipeline fewer steps, or put steps into a group"
        )
    return CompiledPipeline(recipe, pipeline, hashlib.sha256(canonical).hexdigest(), cluster.service_account)


def put(server: Server, compiled: CompiledPipeline, namespace: str | None) -> Version:
    """Upload a version unless it exists; create its pipeline first if needed.

    Args:
        namespace: the pipeline's namespace; None for a shared pipeline.
    """
    document = compiled.recipe.pipeline.document
    pipelines = server.api.pipelines

    def make_pipeline() -> Any:
        import kfp_server_api

        body = kfp_server_api.V2beta1Pipeline(
            display_name=document.name, description=document.description, namespace=namespace
        )
        return server.once(pipelines.pipeline_service_create_pipeline, body)

    pipeline, _ = server.ensure(lambda: _named(server, document.name, namespace), make_pipeline)

    def find_version() -> Any | None:
        known = listed(
            server, pipelines.pipeline_service_list_pipeline_versions, "pipeline_versions", pipeline.pipeline_id,
            filter=equals(compiled.version),
        )  # fmt: skip
        return next((one for one in known if one.display_name == compiled.version), None)

    with tempfile.TemporaryDirectory(prefix="hopforge-upload-") as folder:
        path = Path(folder) / "pipeline.yaml"
        write_ir(compiled.pipeline, path)

        def make_version() -> Any:
            return server.once(
                server.api.pipeline_uploads.upload_pipeline_version,
                str(path),
                name=compiled.version,
                pipelineid=pipeline.pipeline_id,
                description=compiled.description,
            )

        version, new = server.ensure(find_version, make_version)
    return Version(pipeline.pipeline_id, version.pipeline_version_id, compiled.version, new)


def _named(server: Server, name: str, namespace: str | None) -> Any | None:
    """Return the pipeline of that name in the namespace; the server's list also has shared pipelines."""
    method = server.api.pipelines.pipeline_service_list_pipelines
    for found in listed(server, method, "pipelines", namespace=namespace or "", filter=equals(name)):
        if found.display_name == name and (found.namespace or None) == (namespace or None):
            return found
    return None


def listed(server: Server, method: Callable[..., Any], field: str, *arguments: Any, **options: Any) -> Iterator[Any]:
    """Yield all items of a list method, page by page."""
    token = ""
    while True:
        page = server.ask(method, *arguments, page_size=PAGE, page_token=token, **options)
        yield from getattr(page, field) or ()
        token = page.next_page_token or ""
        if not token:
            return


def equals(name: str) -> str:
    """Return a filter of the server by display name."""
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})
