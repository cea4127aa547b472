"""Datasets and models as MLflow inputs of runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from platform_sdk.tracking.journal import Event, all_events
from platform_sdk.tracking.models import DATASET_DIGEST_LENGTH, Models

if TYPE_CHECKING:
    from mlflow import MlflowClient


def deliver_dataset(client: MlflowClient, run_ids: Iterable[str], event: Event) -> None:
    """Log a dataset as an input of runs. MLflow stores equal datasets once for all runs."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=event["name"],
        digest=event["digest"][:DATASET_DIGEST_LENGTH],
        source_type="local" if Path(event["source"]).is_absolute() else "uri",
        source=json.dumps({"uri": event["source"]}),
        profile=None if event["rows"] is None else json.dumps({"num_rows": event["rows"]}),
    )
    tags = [InputTag("mlflow.data.context", event["context"]), InputTag("hopforge.digest", event["digest"])]
    for run_id in run_ids:
        client.log_inputs(run_id, datasets=[DatasetInput(dataset, tags)])


def deliver_inputs(
    client: MlflowClient, models: Models, run_dir: Path, run_id: str, event: Event, recorded_dir: Path
) -> None:
    """Log the inputs of a step: a model, and datasets, which have the run's names if the run logged them.

    ``recorded_dir`` is the run directory in the sources of datasets.
    """
    known = {event["digest"]: event for event in all_events(run_dir, metrics=False) if event["event"] == "dataset"}
    for use, datasets in event["datasets"].items():
        for name, digest in datasets.items():
            if digest:  # empty for data that the run does not have, e.g. triples
                own = {"name": name, "digest": digest, "source": str(recorded_dir / name), "context": use, "rows": None}
                deliver_dataset(client, [run_id], known.get(digest, own))
    if event["model"] and (model := models.find(event["model"])):
        models.read_by(run_id, model)
