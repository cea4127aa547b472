"""Recordings of a real cluster: the lives of objects, replayed on the test server."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tests.kubeflow.training_job.api_server import ApiServer
from tests.kubeflow.training_job.virtual_clock import VirtualClock

FOLDER = Path(__file__).parents[1] / "recorded/cluster"
PLURALS = {"PyTorchJob": "pytorchjobs", "TrainJob": "trainjobs", "Workload": "workloads"}


def recording(name: str) -> Any:
    """Return the content of a recording."""
    return json.loads((FOLDER / name).read_text())


def life(kind: str, name: str) -> list[dict[str, Any]]:
    """Return the versions of all objects of this kind whose names begin so, each with its time and event."""
    files = sorted(FOLDER.glob(f"{kind}.{name}*.json"))
    return sorted((version for file in files for version in recording(file.name)), key=lambda entry: entry["at"])


def replay(server: ApiServer, clock: VirtualClock, job: str, kind: str = "PyTorchJob") -> None:
    """Plan the recorded changes of a job, its pods and its Workload, from the job's creation on.

    The launcher creates the job; from then on it is as recorded, with the launcher's own digest.
    """
    first = _seconds(life(kind, job)[0]["at"])
    for of in (kind, "Workload", "Pod"):
        for number, version in enumerate(life(of, f"{kind.lower()}-{job}" if of == "Workload" else job)):
            # A watch delivers every version, also those of the same second.
            clock.at(_seconds(version["at"]) - first + 1 + number / 1000, partial(_apply, server, version))


def _apply(server: ApiServer, version: dict[str, Any]) -> None:
    item = version["object"]
    name, gone = item["metadata"]["name"], version["type"] == "DELETED"
    if item["kind"] == "Pod":
        server.pods.pop(name, None) if gone else server.pods.update({name: item})
        return
    key = (PLURALS[item["kind"]], name)
    own = server.objects.get(key)
    if gone:
        server.objects.pop(key, None)
    elif own is not None or item["kind"] == "Workload":
        if item["kind"] == "Workload":  # Kueue's label names the job that the launcher created
            [job] = [o for (plural, _), o in server.objects.items() if plural in ("pytorchjobs", "trainjobs")]
            item["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] = job["metadata"]["uid"]
        else:
            for field in ("uid", "annotations"):
                item["metadata"][field] = own["metadata"].get(field, {}) if own else {}
        server.objects[key] = item
        server.changed(item)


def _seconds(time: str) -> float:
    return (datetime.strptime(time, "%H:%M:%S") - datetime.strptime("00:00:00", "%H:%M:%S")).total_seconds()
