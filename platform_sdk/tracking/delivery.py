"""Deliver the journal of a run directory to MLflow. Only this module, ``models`` and ``traces`` import mlflow.

Delivery can stop anywhere and be repeated: ``tracking/mlflow.json`` records the MLflow ids and the delivered offset of
each journal, metrics have the journal's times (MLflow deduplicates equal points), and nested runs, model versions and
traces are looked up before they are created.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_sdk.config.errors import UserError
from platform_sdk.files import read_model, write_text
from platform_sdk.run_dir import RunDir
from platform_sdk.tracking.adoption import PARENT, adopted_run, given_to_step
from platform_sdk.tracking.inputs import deliver_dataset, deliver_inputs
from platform_sdk.tracking.journal import (
    DIGEST,
    FOLDER,
    RUN,
    STATE_EVENTS,
    Event,
    all_events,
    end_at,
    journals,
    read,
    relocated,
    run_file,
    step_file,
)
from platform_sdk.tracking.manifest import FILE_NAME as MANIFEST
from platform_sdk.tracking.models import Models
from platform_sdk.tracking.params import PARAM_LENGTH, clip, mlflow_name, mlflow_names, recipe_params
from platform_sdk.tracking.store import (
    LOCK_FILE,
    STATE_FILE,
    DeliveryState,
    artifact_location,
    made_by_one,
    store_uri,
    stored_in,
)
from platform_sdk.tracking.store_errors import store_errors
from platform_sdk.tracking.traces import deliver_rollouts

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

TAG_LENGTH = 5000
STEP = "hopforge.step"
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
"""Kind of the experiment: model training. The UI of MLflow 3.17 ignores it and has its own switch."""
BATCH = {"metrics": 1000, "params": 100, "tags": 100}

logger = logging.getLogger(__name__)


def deliver(run_dir: Path) -> None:
    """Deliver everything recorded so far.

    Raises:
        UserError: the store refused or could not be reached; undelivered events stay in the journal.
    """
    with _only_one(run_dir):
        Delivery(run_dir).advance()


def follow(run_dir: Path, owner_lives: Callable[[], bool], pause: Callable[[], None]) -> None:
    """Deliver events until the run ends, or until its owner dies, which marks the run KILLED."""
    with _only_one(run_dir):
        delivery: Delivery | None = None
        while True:
            alive = owner_lives()
            try:
                delivery = delivery or Delivery(run_dir)
                delivery.advance()
            except (UserError, OSError) as error:
                # Retry while the store is unavailable or the disk is full; the journal keeps the events.
                if not alive or last_state_event(run_dir)["event"] == "ended":
                    raise
                logger.warning("%s; trying again", error)
            if delivery is not None and delivery.ended:
                return
            if delivery is not None and not alive:
                delivery.mark_killed()
                return
            pause()


def last_state_event(run_dir: Path) -> Event:
    """Return a run's last start or end.

    Raises:
        UserError: the journal has none.
    """
    states = [event for event in read(run_file(run_dir))[0] if event["event"] in STATE_EVENTS]
    if not states:
        raise UserError(f"{run_dir}: no run was started in this directory")
    return states[-1]


def _ends_line(path: Path, offset: int) -> bool:
    """Return True if a line ends at ``offset``; False if the file was truncated since."""
    with path.open("rb") as stream:
        stream.seek(max(offset - 1, 0))
        return offset == 0 or stream.read(1) == b"\n"


class Delivery:
    """Delivery of one run directory to MLflow. ``ended`` is True once the end of the run is recorded."""

    def __init__(self, run_dir: Path) -> None:
        import mlflow

        self.run_dir = run_dir
        self._state_path = run_dir / FOLDER / STATE_FILE
        self.state = DeliveryState()
        if self._state_path.is_file():
            self.state = self._restored()
        self._uri = store_uri(run_dir)
        with store_errors(self._uri), made_by_one(self._uri):
            # The registry resolves a logged model through the process-wide store, not the client's store.
            mlflow.set_tracking_uri(self._uri)
            self.client: MlflowClient = mlflow.MlflowClient()
            self._forget_unknown_run()
        starts = [event for event in read(run_file(run_dir))[0] if event["event"] == "started"]
        if not starts:
            raise UserError(f"{run_dir}: no run was started in this directory")
        self.recorded_dir = run_dir
        self.token = f"{starts[0]['time']}:{run_dir}"
        self.ended = False

    def _forget_unknown_run(self) -> None:
        """Start a new delivery if the store does not have the run: the id was damaged, or the store changed."""
        from mlflow.exceptions import MlflowException

        if self.state.run_id is None:
            return
        try:
            self.client.get_run(self.state.run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            logger.warning("%s: the MLflow store has no such run; everything is delivered again", self._state_path)
            self.state = DeliveryState()

    def _restored(self) -> DeliveryState:
        """Return the record of earlier deliveries; after damage everything is delivered again."""
        try:
            state = read_model(self._state_path, DeliveryState)
            if state.sha256 is not None and state.sha256 != state.digest():
                raise UserError(f"{self._state_path}: was altered after it was written")
        except UserError as error:
            logger.warning("%s; everything is delivered again", error)
            return DeliveryState()
        paths = journals(self.run_dir)
        for key, offset in list(state.offsets.items()):
            path = paths.get(key)
            if path is None or not path.is_file() or not _ends_line(path, offset):
                logger.warning("%s: journal %s was cut or removed; it is delivered from its start", self.run_dir, key)
                del state.offsets[key]
        return state

    def advance(self) -> None:
        """Deliver new events of the run's journal, then of its steps' journals."""
        with store_errors(self._uri):
            steps = journals(self.run_dir)
            self._advance_file(steps.pop(RUN), RUN, self._parent)
            for key, path in sorted(steps.items(), key=self._waiting_since):
                self._advance_file(path, key, partial(self._step, key.removeprefix("steps/")))
            # The end of the run may be recorded before all events are delivered; it is delivered last.
            if self.asked_to_end and end_at(self.run_dir, self.state.offsets):
                self._end(self._run_id, last_state_event(self.run_dir), adopted=self.state.adopted)
                self.client.log_artifact(self._run_id, str(self.run_dir / MANIFEST))
                self.state.ended_in = stored_in(self.run_dir)
                self._save()
                self.ended = True

    @property
    def asked_to_end(self) -> bool:
        """Return whether the run has recorded its end, delivered or not."""
        return bool(last_state_event(self.run_dir)["event"] == "ended")

    def mark_killed(self) -> None:
        """Record that the process of the run died."""
        if self.state.run_id and not self.state.adopted:
            with store_errors(self._uri):
                self.client.set_terminated(self.state.run_id, status="KILLED")

    def _waiting_since(self, journal: tuple[str, Path]) -> int:
        """Return the time of the first undelivered event of a step; 0 if there is none.

        Steps are delivered in their order: the last one determines the run's tags and registered model.
        """
        key, path = journal
        events, _ = read(path, self.state.offsets.get(key, 0))
        return int(events[0]["time"]) if events else 0

    def _advance_file(self, path: Path, key: str, handle: Callable[[list[Event]], None]) -> None:
        events, offset = read(path, self.state.offsets.get(key, 0))
        if not events:
            return
        handle(events)
        self.state.offsets[key] = offset
        self._save()

    def _save(self) -> None:
        self.state.sha256 = self.state.digest()
        write_text(self._state_path, self.state.model_dump_json(indent=1))

    def _parent(self, events: list[Event]) -> None:
        for event in events:
            if event["event"] == "started":
                self._start_parent(event)
            elif event["event"] == "recipe":
                self.client.log_dict(self._run_id, event["recipe"], RunDir.recipe)
                self._batch(self._run_id, params=recipe_params(event["recipe"]))
        self._common(self._run_id, events)

    def _start_parent(self, event: Event) -> None:
        tags = {"hopforge.run_dir": str(self.recorded_dir), "manifest_head": event["manifest_head"]}
        if self.state.run_id is None:
            if event["adopt"]:
                given = self.client.get_run(event["adopt"])
                self.state.experiment_id = given.info.experiment_id
                self.state.run_id, self.state.adopted = adopted_run(event, given.data.tags), True
            else:
                self.state.experiment_id = self._experiment(event["experiment"])
                self.state.run_id = self._find_or_create(
                    {"hopforge.run": self.token}, name=event["name"], start_time=event["time"]
                )
            self._save()
        elif not self.state.adopted:
            self.client.update_run(self._run_id, status="RUNNING")
        self._batch(self._run_id, tags=tags)

    def _step(self, name: str, events: list[Event]) -> None:
        given = given_to_step(step_file(self.run_dir, name))
        if name not in self.state.steps:
            if given is None:
                identity = {STEP: name, PARENT: self._run_id}
                self.state.steps[name] = self._find_or_create(identity, name=name, start_time=events[0]["time"])
            else:
                self.state.steps[name] = given
                self._batch(given, tags={STEP: name})
            self._save()
        run_id = self.state.steps[name]
        self._common(run_id, events)
        for event in events:
            if event["event"] == "started" and given is None:
                self.client.update_run(run_id, status="RUNNING")
            elif event["event"] == "ended":
                self._end(run_id, event, adopted=given is not None)
                if "manifest_head" in event:
                    Models(self.client, self.state, self.run_dir).cover(name, event["manifest_head"])

    def _common(self, run_id: str, events: list[Event]) -> None:
        """Deliver events common to runs and steps; figures of a step are also figures of the run."""
        models = Models(self.client, self.state, self.run_dir)
        for event in events:
            if event["event"] == "scores":  # before other metrics: the UI lists metrics in the order of delivery
                models.deliver_scores(run_id, event)
        figures = [event for event in events if event["event"] == "metrics"]
        params = {k: v for event in events if event["event"] == "params" for k, v in event["params"].items()}
        tags = {k: v for event in events if event["event"] == "tags" for k, v in event["tags"].items()}
        self._batch(run_id, metrics=_points(figures), params=params, tags=_legible(tags))
        if run_id != self._run_id:
            of_run = [event for event in figures if not event.get("step_only")]
            shared = {k: v for event in events if event.get("of_run") for k, v in event["tags"].items()}
            of_all = _legible(self._latest(tags), DIGEST) | _legible(shared)
            self._batch(self._run_id, metrics=_points(of_run), tags=of_all)
        for event in events:
            if event["event"] == "artifact":
                self._artifact(run_id, event)
            elif event["event"] == "dataset":
                deliver_dataset(self.client, {run_id, self._run_id}, event)
            elif event["event"] == "inputs":
                deliver_inputs(self.client, models, self.run_dir, run_id, event, self.recorded_dir)
            elif event["event"] == "base_model":
                models.deliver_base(run_id, event)
            elif event["event"] == "model":
                models.deliver_trained(run_id, event)
            elif event["event"] == "note":
                notes = [noted for noted in all_events(self.run_dir, metrics=False) if noted["event"] == "note"]
                self._batch(self._run_id, tags={"mlflow.note.content": notes[-1]["text"]})
            elif event["event"] == "rollouts":
                self._rollouts(run_id, event)

    def _latest(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Return the digests among these tags, each with its latest value: parallel steps may set the same tag."""
        names = {name for name in tags if name.startswith(DIGEST)}
        events = all_events(self.run_dir, metrics=False) if names else []
        events = [event for event in events if event["event"] == "tags"]
        return {name: value for event in events for name, value in event["tags"].items() if name in names}

    def _rollouts(self, run_id: str, event: Event) -> None:
        deliver_rollouts(self.client, self.state, self.token, run_id, event, self.run_dir)

    def _artifact(self, run_id: str, event: Event) -> None:
        path = relocated(self.run_dir, event["path"])
        if not path.is_file():
            logger.warning("%s is missing: it was to be logged as an artifact", path)
            return
        self.client.log_artifact(run_id, str(path), event["folder"] or None)

    def _end(self, run_id: str, event: Event, *, adopted: bool = False) -> None:
        if "error" in event:
            self._batch(run_id, tags={"error": event["error"]})
        elif "error" in self.client.get_run(run_id).data.tags:  # error of an earlier start, which succeeded now
            self.client.delete_tag(run_id, "error")
        if "manifest_head" in event:
            self._batch(self._run_id, tags={"manifest_head": event["manifest_head"]})
        if not adopted:  # an adopted run is ended by its creator
            self.client.set_terminated(run_id, status=event["status"], end_time=event["time"])

    def _batch(
        self,
        run_id: str,
        *,
        metrics: list[Any] | None = None,
        params: dict[str, str] | None = None,
        tags: dict[str, str] | None = None,
    ) -> None:
        from mlflow.entities import Param, RunTag

        parts: dict[str, list[Any]] = {
            "metrics": metrics or [],
            "params": [Param(name, clip(value, PARAM_LENGTH)) for name, value in mlflow_names(params or {}).items()],
            "tags": [RunTag(name, clip(value, TAG_LENGTH)) for name, value in mlflow_names(tags or {}).items()],
        }
        while any(parts.values()):
            now = {name: part[: BATCH[name]] for name, part in parts.items()}
            self.client.log_batch(run_id, now["metrics"], now["params"], now["tags"])
            parts = {name: part[BATCH[name] :] for name, part in parts.items()}

    def _experiment(self, name: str) -> str:
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            location = artifact_location(self._uri, name)
            return str(self.client.create_experiment(name, artifact_location=location, tags=EXPERIMENT_TAGS))
        for key, value in EXPERIMENT_TAGS.items():
            if key not in experiment.tags:  # users may have chosen another view
                self.client.set_experiment_tag(experiment.experiment_id, key, value)
        return str(experiment.experiment_id)

    def _find_or_create(self, identity: dict[str, str], *, name: str, start_time: int) -> str:
        query = " and ".join(f"tags.`{key}` = '{_quotable(value)}'" for key, value in identity.items())
        runs = self.client.search_runs([self.state.experiment_id], query, max_results=1)
        if runs:
            return str(runs[0].info.run_id)
        tags = {key: _quotable(value) for key, value in identity.items()}
        return str(self.client.create_run(self.state.experiment_id, start_time, tags, name).info.run_id)

    @property
    def _run_id(self) -> str:
        assert self.state.run_id is not None, "the run's journal begins with its start"
        return self.state.run_id


@contextmanager
def _only_one(run_dir: Path) -> Iterator[None]:
    path = run_dir / FOLDER / LOCK_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _points(figures: Iterable[Event]) -> list[Metric]:
    from mlflow.entities import Metric

    return [
        Metric(mlflow_name(name), value, event["time"], event["iteration"])
        for event in figures
        for name, value in event["metrics"].items()
    ]


def _legible(tags: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """Return the tags with ``prefix`` under short names, since the UI cuts names after 15 characters."""
    return {
        name.removeprefix(DIGEST).removeprefix("hopforge."): value
        for name, value in tags.items()
        if name.startswith(prefix)
    }


def _quotable(value: str) -> str:
    return value.replace("'", "’")
