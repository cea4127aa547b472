"""Log a model directory to MLflow as plain files, and register it with its source run. Nothing is pickled.

MLflow's own transformers flavour loads the model to save it again; here the directory that training wrote
(safetensors, tokenizer, configuration) is logged as it is.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from platform_sdk.tracking.journal import Event, read, run_file
from platform_sdk.tracking.store import DeliveryState

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

WEIGHTS_TAG = "hopforge.digest.weights"


def deliver_model(client: MlflowClient, state: DeliveryState, run_dir: Path, event: Event) -> None:
    """Log the model of a ``model`` event, once for each run and digest, and register it if it asks for that."""
    recipe = next(said["recipe"] for said in read(run_file(run_dir))[0] if said["event"] == "recipe")
    name = str(recipe["name"])
    manifest_head = client.get_run(str(state.run_id)).data.tags["hopforge.manifest_head"]
    tags = {**event["tags"], WEIGHTS_TAG: event["digest"], "hopforge.manifest_head": manifest_head}
    model = _logged(client, state, name, event, tags)
    if event["register"]:
        _register(client, str(state.run_id), name, model, tags)


def _logged(
    client: MlflowClient, state: DeliveryState, name: str, event: Event, tags: Mapping[str, str]
) -> LoggedModel:
    query = f"source_run_id = '{state.run_id}' AND tags.`{WEIGHTS_TAG}` = '{event['digest']}'"
    found = client.search_logged_models([state.experiment_id], filter_string=query, max_results=1)
    model = found[0] if found else None
    if model is None:
        model = client.create_logged_model(
            state.experiment_id, name, source_run_id=state.run_id, tags=dict(tags), model_type="policy"
        )
    if model.status != "READY":
        _store_files(client, model, Path(event["path"]))
        model = client.finalize_logged_model(model.model_id, "READY")
    return model


def _store_files(client: MlflowClient, model: LoggedModel, directory: Path) -> None:
    target = urlparse(model.artifact_location)
    if target.scheme not in ("", "file"):
        client.log_model_artifacts(model.model_id, str(directory))
        return
    for source in sorted(path for path in directory.rglob("*") if path.is_file()):
        destination = Path(unquote(target.path)) / source.relative_to(directory)
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.unlink(missing_ok=True)
        try:
            os.link(source.resolve(), destination)
        except OSError:  # another file system, or one without links
            shutil.copyfile(source, destination)


def _register(client: MlflowClient, run_id: str, name: str, model: LoggedModel, tags: Mapping[str, Any]) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description="Trained by hopforge; one version for each run's model.")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    versions = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
    if any(version.tags.get(WEIGHTS_TAG) == tags[WEIGHTS_TAG] for version in versions):
        return
    client.create_model_version(
        name,
        source=f"models:/{model.model_id}",
        run_id=run_id,
        tags={key: value if isinstance(value, str) else json.dumps(value) for key, value in tags.items()},
        model_id=model.model_id,
    )
