"""Contents that MLflow must have for a run: a delivery of the run's journals to an empty store in memory.

The delivery is the same code that delivers to MLflow, so the expected contents cannot drift from the delivered ones.
"""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass, field
from itertools import count, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from platform_sdk.errors import UserError
from platform_sdk.tracking.adoption import PARENT, given_to_step
from platform_sdk.tracking.delivery import Delivery, last_state_event
from platform_sdk.tracking.journal import RUN, Event, journals, read, relocated, run_file
from platform_sdk.tracking.opened import ENVIRONMENT_FILE
from platform_sdk.tracking.store import WEIGHTS, DeliveryState
from platform_sdk.tracking.traces import traces_of

EXPERIMENT = "0"
OUTER = "run of the pipeline run"


@dataclass
class StoredRun:
    """Contents of one MLflow run. ``artifacts`` maps paths to SHA-256 digests, or to the JSON value of the file."""

    name: str
    start: int
    status: str = "RUNNING"
    end: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, set[tuple[int, int, float]]] = field(default_factory=dict)
    datasets: set[tuple[str, ...]] = field(default_factory=set)
    models_read: set[str] = field(default_factory=set)
    models_written: set[str] = field(default_factory=set)
    artifacts: dict[str, Any] = field(default_factory=dict)


@dataclass
class StoredModel:
    """Contents of a logged model. ``directory`` is the current directory of its files, None for an initial model."""

    model_id: str
    name: str
    tags: dict[str, str]
    model_type: str
    status: str = "PENDING"
    metrics: dict[str, set[tuple[int, int, float]]] = field(default_factory=dict)
    directory: Path | None = None
    artifact_location: str = "memory:"


@dataclass
class StoredVersion:
    """Contents of a version of a registered model; ``run_approval`` is the tag ``approved`` of its run, if read."""

    name: str
    version: str
    model_id: str
    tags: dict[str, str]
    description: str = ""
    aliases: frozenset[str] = frozenset()
    run_approval: str | None = None


class Memory:
    """The part of ``MlflowClient`` that a delivery uses, on dictionaries."""

    def __init__(self) -> None:
        self.runs: dict[str, StoredRun] = {}
        self.models: dict[str, StoredModel] = {}
        self.versions: list[StoredVersion] = []
        self.aliases: dict[str, str] = {}
        self._numbers = count(1)

    def get_run(self, run_id: str) -> Any:
        run = self.runs[run_id]
        outputs = SimpleNamespace(model_outputs=[SimpleNamespace(model_id=id) for id in run.models_written])
        info = SimpleNamespace(experiment_id=EXPERIMENT, run_id=run_id)
        return SimpleNamespace(info=info, data=SimpleNamespace(tags=run.tags), outputs=outputs)

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=EXPERIMENT, tags={})

    def set_experiment_tag(self, experiment_id: str, key: str, value: str) -> None:
        """Do nothing: an experiment belongs to many runs."""

    def search_runs(self, experiments: list[str], query: str, max_results: int) -> list[Any]:
        return []

    def create_run(self, experiment_id: str, start_time: int, tags: dict[str, str], name: str) -> Any:
        run_id = f"run {next(self._numbers)}"
        self.runs[run_id] = StoredRun(name, start_time, tags=dict(tags))
        return self.get_run(run_id)

    def update_run(self, run_id: str, status: str) -> None:
        self.runs[run_id].status = status

    def set_terminated(self, run_id: str, status: str, end_time: int) -> None:
        self.runs[run_id].status, self.runs[run_id].end = status, end_time

    def delete_tag(self, run_id: str, name: str) -> None:
        del self.runs[run_id].tags[name]

    def log_batch(
        self, run_id: str, metrics: list[Any] | None = None, params: list[Any] | None = None,
        tags: list[Any] | None = None,
    ) -> None:  # fmt: skip
        run = self.runs[run_id]
        for metric in metrics or ():
            point = (metric.step, metric.timestamp, comparable(metric.value))
            run.metrics.setdefault(metric.key, set()).add(point)
            if metric.model_id is not None:
                self.models[metric.model_id].metrics.setdefault(metric.key, set()).add(point)
        run.params |= {param.key: param.value for param in params or ()}
        run.tags |= {tag.key: tag.value for tag in tags or ()}

    def log_dict(self, run_id: str, content: Any, name: str) -> None:
        self.runs[run_id].artifacts[name] = json.loads(json.dumps(content))

    def log_inputs(self, run_id: str, datasets: list[Any] | None = None, models: list[Any] | None = None) -> None:
        self.runs[run_id].datasets |= {dataset_key(one) for one in datasets or ()}
        self.runs[run_id].models_read |= {one.model_id for one in models or ()}

    def log_outputs(self, run_id: str, models: list[Any]) -> None:
        self.runs[run_id].models_written |= {one.model_id for one in models}

    def search_logged_models(self, experiments: list[str], filter_string: str, max_results: int) -> list[StoredModel]:
        [weights] = re.findall(r"= '([^']*)'$", filter_string)
        return [model for model in self.models.values() if model.tags.get(WEIGHTS) == weights]

    def create_logged_model(
        self, experiment_id: str, name: str, source_run_id: str, tags: dict[str, str], model_type: str
    ) -> StoredModel:
        model = StoredModel(f"model {next(self._numbers)}", name, dict(tags), model_type)
        self.models[model.model_id] = model
        return model

    def log_model_artifacts(self, model_id: str, directory: str) -> None:
        self.models[model_id].directory = Path(directory)

    def finalize_logged_model(self, model_id: str, status: str) -> StoredModel:
        self.models[model_id].status = status
        return self.models[model_id]

    def set_logged_model_tags(self, model_id: str, tags: dict[str, str]) -> None:
        """Set tags, except the version numbers, which depend on other runs."""
        self.models[model_id].tags |= {name: value for name, value in tags.items() if not name.startswith("mlflow.")}

    def create_registered_model(self, name: str, description: str) -> None:
        """Do nothing: a registered model belongs to many runs."""

    def create_model_version(
        self, name: str, source: str, run_id: str, tags: dict[str, str], model_id: str
    ) -> StoredVersion:
        version = StoredVersion(name, str(len(self.versions) + 1), model_id, dict(tags))
        self.versions.append(version)
        return version

    def search_model_versions(self, query: str) -> list[StoredVersion]:
        return self.versions

    def get_registered_model(self, name: str) -> Any:
        return SimpleNamespace(aliases=self.aliases)

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> None:
        self.aliases[alias] = version

    def set_model_version_tag(self, name: str, version: str, key: str, value: str) -> None:
        self._version(version).tags[key] = value

    def update_model_version(self, name: str, version: str, description: str) -> None:
        self._version(version).description = description

    def _version(self, number: str) -> StoredVersion:
        return next(version for version in self.versions if version.version == number)


def comparable(value: float) -> float:
    """Return a metric's value for comparison: one object for every NaN, and infinity as MLflow stores it."""
    return math.nan if math.isnan(value) else min(max(value, -sys.float_info.max), sys.float_info.max)


def dataset_key(used: Any) -> tuple[str, ...]:
    """Return the compared content of a dataset input.

    MLflow stores a dataset once in an experiment, with the source and profile of the run that logged it first, so these
    are not compared. The full digest is a tag of the input.
    """
    dataset, tags = used.dataset, sorted(f"{tag.key}={tag.value}" for tag in used.tags)
    return (dataset.name, dataset.digest, *tags)


def first_start(run_dir: Path) -> Event:
    """Return the event of a run's first start.

    Raises:
        UserError: the journal has none.
    """
    for event in read(run_file(run_dir))[0]:
        if event["event"] == "started":
            return event
    raise UserError(f"{run_file(run_dir)}: does not record the start of a run")


def directories(run_dir: Path, state: DeliveryState) -> list[Path]:
    """Return the directories from which a run may have been delivered: it may have been moved or copied since."""
    described = [Path(event["path"]) for event in read(run_file(run_dir))[0] if event["event"] == "artifact"]
    begun = [path.parent.parent for path in described if path.name == ENVIRONMENT_FILE]
    store = state.ended_in.removeprefix("sqlite:///") if state.ended_in.startswith("sqlite:///") else ""
    delivered = [Path(store).parent / run_dir.name] if store else []
    return list(dict.fromkeys([*begun[-1:], run_dir, *delivered]))


class Replay(Delivery):
    """Delivery of all events of a run to ``Memory``, in the order of their times.

    Args:
        recorded_dir: The run directory at the time of the delivery to MLflow.
    """

    client: Any

    def __init__(self, run_dir: Path, recorded_dir: Path) -> None:
        self.run_dir, self.recorded_dir = run_dir, recorded_dir
        self.state = DeliveryState()
        self.client = Memory()
        self.ended = False
        self._rollouts_of: dict[tuple[Path, str], Event] = {}
        started = first_start(run_dir)
        self.token = f"{started['time']}:{recorded_dir}"
        given = started["adopt"]
        if given:
            self.client.runs[given] = StoredRun(started["name"], started["time"])
        if given and started.get("in_step"):
            self.client.runs[given].tags[PARENT] = OUTER
            self.client.runs[OUTER] = StoredRun(started["name"], started["time"])
        steps = (given_to_step(path) for key, path in journals(run_dir).items() if key != RUN)
        self.given = {step for step in steps if step is not None}
        self.client.runs |= {step: StoredRun("", started["time"]) for step in self.given}
        for key, batch in groupby(self._in_order(), key=lambda item: item[0]):
            events = [event for _, event in batch]
            if key == RUN:
                self._parent(events)
            else:
                self._step(key.removeprefix("steps/"), events)
        if self.asked_to_end:
            self._end(self._run_id, last_state_event(run_dir), adopted=self.state.adopted)

    @property
    def traces(self) -> list[tuple[Path, str, Event]]:
        """Files of rollouts whose traces MLflow must have, each with the step's run and its last event."""
        return [(path, run_id, event) for (path, run_id), event in self._rollouts_of.items()]

    def trace_pairs(self, path: Path, run_id: str, event: Event, real_run: str, experiment: str) -> list[Any]:
        """Return the traces of a rollout file and their spans, for a step's run in the real store."""
        state = self.state.model_copy(update={"experiment_id": experiment})
        return list(traces_of(path, state, self.token, real_run, event))

    def _in_order(self) -> list[tuple[str, Event]]:
        """Return the events of all journals with the journals' names."""
        items: list[tuple[int, bool, str, Event]] = []
        start = int(first_start(self.run_dir)["time"])
        for key, path in journals(self.run_dir).items():
            latest = 0 if key == RUN else start  # clocks of machines differ
            for event in read(path)[0]:
                latest = max(latest, int(event["time"]))  # a clock may have been set back
                items.append((latest, key != RUN, key, event))
        return [(key, event) for _, _, key, event in sorted(items, key=lambda item: item[:2])]

    def _save(self) -> None:
        """Record nothing."""

    def _artifact(self, run_id: str, event: Event) -> None:
        name = Path(event["folder"], Path(event["path"]).name).as_posix()
        self.client.runs[run_id].artifacts[name] = event["digest"]

    def _rollouts(self, run_id: str, event: Event) -> None:
        # A step that runs again with a newer hopforge may send its rollouts again, which replaces their traces.
        self._rollouts_of[relocated(self.run_dir, event["path"]), run_id] = event
