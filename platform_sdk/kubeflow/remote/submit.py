"""Start of a recipe as a run on a cluster."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import Recipe, load_recipe
from platform_sdk.config.source import ConfigError
from platform_sdk.kubeflow.compile import form_values
from platform_sdk.kubeflow.limits import shortened
from platform_sdk.kubeflow.packing import SUBMITTED_BY
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.creation import create_run
from platform_sdk.kubeflow.remote.runs import SYSTEM_NAMESPACE
from platform_sdk.kubeflow.remote.versions import compile_for, equals, listed, put
from platform_sdk.kubeflow.remote.workflows import Workflows
from platform_sdk.tracking.provenance import user_name


@dataclass(frozen=True)
class SubmittedRun:
    """A started run, its URL, and its version."""

    run_id: str
    run: str
    run_url: str
    experiment_id: str
    experiment: str
    experiment_url: str
    pipeline_id: str
    version_id: str
    version: str
    version_url: str
    digest: str
    uploaded: bool


def submit(
    server: Server,
    path: Path,
    overrides: Sequence[str],
    cluster: ClusterSpec,
    *,
    namespace: str | None,
    experiment: str | None = None,
    now: datetime | None = None,
    connection: Any = None,
) -> SubmittedRun:
    """Start a recipe as a run.

    Values of ``overrides`` that belong to the pipeline's form become arguments of the run; such runs share a version.
    Any other value gives another version.
    Repeating an interrupted call uploads nothing twice, but starts another run.

    Args:
        namespace: namespace of the run on a multi-user server.
        experiment: name of the experiment, created if it does not exist; by default the pipeline's name.
        connection: connection to the cluster, used to look for the Workflow after an unclear response; see
            ``ClusterApi``.

    Raises:
        UserError: the recipe has problems; the server cannot be reached or refuses.
    """
    import kfp_server_api

    recipe = load_recipe(path, overrides, cluster.environment)
    namespace = server.namespace(namespace)
    compiled = compile_for(_without_form(path, overrides, recipe, cluster), cluster)
    name = experiment or recipe.pipeline.name
    experiment_id = _experiment(server, name, namespace)
    version = put(server, compiled, namespace)
    started = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
    run = f"{recipe.name}-{started}-{secrets.token_hex(2)}"
    body = kfp_server_api.V2beta1Run(
        experiment_id=experiment_id,
        display_name=run,
        description=shortened(recipe.description) or None,
        service_account=cluster.service_account,
        pipeline_version_reference=kfp_server_api.V2beta1PipelineVersionReference(
            pipeline_id=version.pipeline_id, pipeline_version_id=version.version_id
        ),
        runtime_config=kfp_server_api.V2beta1RuntimeConfig(
            parameters=form_values(recipe) | {SUBMITTED_BY: user_name()}
        ),
        # The MLflow experiment in which Pipelines' MLflow plugin, if enabled, creates the runs that ours adopt.
        plugins_input={
            "mlflow": {"experiment_name": cluster.environment.get("MLFLOW_EXPERIMENT_NAME", recipe.pipeline.name)}
        },
    )
    run_id = create_run(server, body, lambda: Workflows(namespace or SYSTEM_NAMESPACE, connection)).run_id
    return SubmittedRun(
        run_id=run_id,
        run=run,
        run_url=server.link("runs", "details", run_id),
        experiment_id=experiment_id,
        experiment=name,
        experiment_url=server.link("experiments", "details", experiment_id),
        pipeline_id=version.pipeline_id,
        version_id=version.version_id,
        version=version.name,
        version_url=server.link("pipelines", "details", version.pipeline_id, "version", version.version_id),
        digest=compiled.digest,
        uploaded=version.new,
    )


def _without_form(path: Path, overrides: Sequence[str], recipe: Recipe, cluster: ClusterSpec) -> Recipe:
    """Return the recipe whose values become the version's defaults: the file's, if that is a complete recipe."""
    filled = {".".join(field.path) for field in recipe.form}
    rest = [override for override in overrides if override.partition("=")[0] not in filled]
    try:
        return load_recipe(path, rest, cluster.environment)
    except ConfigError:
        return recipe  # the file alone is incomplete, so the version has the overridden values


def _experiment(server: Server, name: str, namespace: str | None) -> str:
    import kfp_server_api

    experiments = server.api.experiments

    def find() -> Any | None:
        method = experiments.experiment_service_list_experiments
        known = listed(server, method, "experiments", namespace=namespace or "", filter=equals(name))
        return next((one for one in known if one.display_name == name), None)

    def make() -> Any:
        body = kfp_server_api.V2beta1Experiment(display_name=name, namespace=namespace)
        return server.once(experiments.experiment_service_create_experiment, body)

    found, _ = server.ensure(find, make)
    if found.storage_state == "ARCHIVED":
        raise UserError(f"the experiment {name!r} is archived; restore it, or choose another --experiment")
    return str(found.experiment_id)
