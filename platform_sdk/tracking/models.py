"""Models of a run in MLflow: logged as plain files, registered, and with the scores of their evaluations.

Nothing is pickled. MLflow's transformers flavour loads the model to save it again; this module logs the directory
written by training (safetensors, tokenizer, configuration) unchanged. A run's initial model is logged by name and
digest only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from platform_sdk.tracking.journal import Event, all_events, read, relocated, run_file, step_file
from platform_sdk.tracking.store import WEIGHTS, DeliveryState

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.entities.model_registry import ModelVersion

SCORES = "Scores"
"""Group of the first charts: MLflow sorts groups by name, capitals first."""
DATASET_DIGEST_LENGTH = 36
"""Maximum length of a dataset's digest in MLflow."""
RESERVED_ALIAS = re.compile(r"latest|v\d+", re.IGNORECASE)


class Models:
    """Logged models and registered versions of one run. Every method is idempotent."""

    def __init__(self, client: MlflowClient, state: DeliveryState, run_dir: Path) -> None:
        self._client, self._state, self._run_dir = client, state, run_dir

    def find(self, digest: str) -> LoggedModel | None:
        """Return the model with these weights, and log it if necessary; None if no step has recorded it."""
        event = next((event for event in self._events("base_model", "model") if event["digest"] == digest), None)
        return None if event is None else self._logged(event)

    def read_by(self, run_id: str, model: LoggedModel) -> None:
        """Log that a run read a model."""
        from mlflow.entities import LoggedModelInput

        self._client.log_inputs(run_id, models=[LoggedModelInput(model.model_id)])

    def deliver_base(self, run_id: str, event: Event) -> None:
        """Log the initial model as an input of the step and of the run."""
        model = self._logged(event)
        for reader in {run_id, self._parent}:
            self.read_by(reader, model)

    def deliver_trained(self, run_id: str, event: Event) -> None:
        """Log a trained model as an output of the step and of the run; register it if the event requires it."""
        from mlflow.entities import LoggedModelOutput

        model = self._logged(event)
        for writer in {run_id, self._parent}:
            outputs = self._client.get_run(writer).outputs
            # MLflow refuses an output that it already has.
            if model.model_id not in {known.model_id for known in (outputs.model_outputs if outputs else ())}:
                self._client.log_outputs(writer, [LoggedModelOutput(model.model_id, event.get("iteration", 0))])
        if event["register"]:
            self._register(model, event["digest"])

    def cover(self, step: str, head: str) -> None:
        """Set the manifest's head of a finished step on the models that it trained, and on their versions."""
        for event in read(step_file(self._run_dir, step))[0]:
            if event["event"] == "model":
                self._client.set_logged_model_tags(self._logged(event).model_id, {"manifest_head": head})
                for version in self._versions(event["digest"]):
                    self._client.set_model_version_tag(version.name, version.version, "manifest_head", head)

    def deliver_scores(self, run_id: str, event: Event) -> None:
        """Log the scores of an evaluation: of the step and the run, of the model, and of its registered version."""
        from mlflow.entities import Metric

        def points(**of: Any) -> list[Metric]:
            return [
                Metric(f"{SCORES}/{name}", score["value"], event["time"], event["iteration"], **of)
                for name, score in event["scores"].items()
            ]

        model = self.find(event["model"]) if event["model"] else None
        if model is None:
            self._client.log_batch(run_id, points())
        else:
            of = {"model_id": model.model_id}
            dataset = next((known for known in self._events("dataset") if known["digest"] == event["questions"]), None)
            if dataset is not None:
                of |= {"dataset_name": dataset["name"], "dataset_digest": dataset["digest"][:DATASET_DIGEST_LENGTH]}
            self._client.log_batch(run_id, points(**of))
            for version in self._versions(event["model"]):
                self._annotate(version)
        self._client.log_batch(self._parent, points())

    @property
    def _parent(self) -> str:
        return str(self._state.run_id)

    @property
    def _name(self) -> str:
        return str(read(run_file(self._run_dir))[0][0]["name"])

    @property
    def _recipe(self) -> dict[str, Any]:
        recipe: dict[str, Any] = next(self._events("recipe"))["recipe"]
        return recipe

    def _events(self, *kinds: str) -> Iterator[Event]:
        return (event for event in all_events(self._run_dir, metrics=False) if event["event"] in kinds)

    def _logged(self, event: Event) -> LoggedModel:
        query = f"source_run_id = '{self._parent}' AND tags.`{WEIGHTS}` = '{event['digest']}'"
        found = self._client.search_logged_models([self._state.experiment_id], filter_string=query, max_results=1)
        model = found[0] if found else None
        trained = event["event"] == "model"
        if model is None:
            name = f"{self._recipe['name']}-{_phase(event)}" if trained else Path(event["name"]).name
            model = self._client.create_logged_model(
                self._state.experiment_id,
                re.sub(r"[/:.%\"']", "-", name),  # MLflow allows none of these
                source_run_id=self._parent,
                tags=self._tags(event) if trained else {WEIGHTS: event["digest"], "mlflow.model.isExternal": "true"},
                model_type="policy" if trained else "base model",
            )
        if model.status != "READY":
            if trained:
                _store_files(self._client, model, relocated(self._run_dir, event["path"]))
            model = self._client.finalize_logged_model(model.model_id, "READY")
        return model

    def _tags(self, event: Event) -> dict[str, str]:
        head = self._client.get_run(self._parent).data.tags["manifest_head"]
        return {**event["tags"], WEIGHTS: event["digest"], "manifest_head": head}

    def _register(self, model: LoggedModel, digest: str) -> None:
        from mlflow.exceptions import MlflowException

        name = str(self._recipe["name"])
        try:
            self._client.create_registered_model(
                name,
                description=f"Policies trained by the recipe {name} of the pipeline {self._recipe['pipeline']}, a "
                "version for each model. The alias of a version is the run that ended with this model.",
            )
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        versions = self._versions(digest)
        if not versions:
            versions = [
                self._client.create_model_version(
                    name,
                    source=f"models:/{model.model_id}",
                    run_id=self._parent,
                    tags=dict(model.tags),
                    model_id=model.model_id,
                )
            ]
        for version in versions:
            self._annotate(version)
            self._name_by_run(version)
        known = [{"name": version.name, "version": int(version.version)} for version in versions]
        self._client.set_logged_model_tags(model.model_id, {"mlflow.modelVersions": json.dumps(known)})  # for its page

    def _versions(self, digest: str) -> list[ModelVersion]:
        versions = self._client.search_model_versions(f"name = '{self._recipe['name']}' and run_id = '{self._parent}'")
        return [version for version in versions if version.tags.get(WEIGHTS) == digest]

    def _name_by_run(self, version: ModelVersion) -> None:
        """Set the run's alias to its newest version, i.e. the last trained model."""
        alias = re.sub(r"[^\w-]", "-", self._name)
        if RESERVED_ALIAS.fullmatch(alias):
            alias = f"run-{alias}"
        now = self._client.get_registered_model(version.name).aliases.get(alias, 0)
        if int(version.version) > int(now):
            self._client.set_registered_model_alias(version.name, alias, version.version)

    def _annotate(self, version: ModelVersion) -> None:
        """Set the description of a version, and its tags with all scores recorded so far."""
        digest, recipe = version.tags[WEIGHTS], self._recipe
        phase = next(_phase(event) for event in self._events("model") if event["digest"] == digest)
        base = recipe["parameters"].get("model")
        lines = [
            f"{phase} of the run {self._name}: the policy trained there; recipe `{recipe['name']}`, "
            f"pipeline `{recipe['pipeline']}`{f', base model `{base}`' if base else ''}."
        ]
        for event in self._events("scores"):
            if event["model"] == digest:
                lines += ["", f"Scores of {event['phase']} on {event['n']} questions, with 95 % intervals:", ""]
                for name, score in event["scores"].items():
                    text = f"{score['value']:.3f}"
                    lines.append(f"- {name}: {text}{_interval(score)}")
                    self._client.set_model_version_tag(version.name, version.version, name, text)
        self._client.update_model_version(version.name, version.version, "\n".join(lines))


def _interval(score: dict[str, float | None]) -> str:
    low, high = score["low"], score["high"]
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"


def _phase(event: Event) -> str:
    return Path(event["path"]).parent.name


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
