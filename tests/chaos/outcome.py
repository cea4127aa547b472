"""Outcome of a run, in the form in which two runs of one recipe must be equal; and rules for every run."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platform_sdk.tracking.manifest import ManifestError, read

APART = ("logs/", "tracking/", "index/")
"""Files that are not compared one by one: logs, what is told to MLflow (compared there), Milvus's files
(what is found in them stands in every rollout).
"""
PRESENT = ("report.html", "lineage.html", "manifest.jsonl", ".lock")
"""Compared otherwise, or only that they are there: the report shows how long things took."""
ALLOWED = ("index/milvus.db/",)
"""Places where temporary files may be left: Milvus Lite's own."""
UPLOADING = ".artifact.uploading."
"""MLflow's temporary files, which it leaves when it is killed."""
APART_TAGS = ("mlflow.", "hopforge.", "manifest_head", "figures", "report", "git_dirty")
"""Tags of runs that are not compared: MLflow's own, places, and digests of what tells how long things took."""
TEMPORARY = re.compile(r"\.tmp$|\.writing$|\.old$|\.stale\d+$|\.share\d+\.jsonl$|checkpoints$")


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that must not depend on kills, by what it is."""
    run_dir = folder / "run"
    return {**files(run_dir), "manifest": manifest(run_dir), **mlflow(folder)}


def files(run_dir: Path, left_out: re.Pattern[str] | None = None) -> dict[str, Any]:
    """Every file of a run by its name, without how long things took and where the run lies.

    Args:
        left_out: What the names of files that are not compared contain.
    """
    found: dict[str, Any] = {}
    for path in sorted(path for path in run_dir.rglob("*") if path.is_file()):
        name = str(path.relative_to(run_dir))
        if left_out and left_out.search(name):
            continue
        if name.startswith(APART) or TEMPORARY.search(name) or any(TEMPORARY.search(part) for part in path.parts):
            continue
        # The lines of prepared groups say how long preparing them took, so that their digests are never equal.
        digests_of_times = name.endswith(".jsonl.sha256") and path.parent.name == "prepared"
        if name in PRESENT or name.endswith(".seconds.json") or digests_of_times:
            found[name] = "there"
        elif name.endswith(".jsonl.sha256"):  # a line whose writing was cut short leaves its digest, which comes again
            found[name] = sorted(set(path.read_text().split()))
        elif path.suffix == ".jsonl":
            found[name] = records(path, run_dir)
        elif path.suffix == ".json" and path.name not in ("tokenizer.json",):
            found[name] = timeless(json.loads(path.read_text()), run_dir)
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def records(path: Path, run_dir: Path) -> dict[str, Any]:
    """The lines of a file by the question and the attempt they are of, or by their number."""
    found: dict[str, Any] = {}
    for number, line in enumerate(path.read_text().splitlines()):
        record = timeless(json.loads(line), run_dir)
        rollout = isinstance(record, dict) and "attempt" in record and "question" in record
        name = f"{record['question']['id']}#{record['attempt']}" if rollout else f"line {number + 1}"
        if name in found:
            name = f"{name} a second time (line {number + 1})"
        found[name] = record
    return found


def is_of_time(key: str) -> bool:
    """Return whether a figure differs whenever it is taken."""
    return key.endswith(("seconds", "per_second")) or key == "speed" or key.startswith("mfu")


def timeless(value: Any, run_dir: Path) -> Any:
    if isinstance(value, dict):
        return {key: timeless(inner, run_dir) for key, inner in value.items() if not is_of_time(key)}
    if isinstance(value, list):
        return [timeless(inner, run_dir) for inner in value]
    return value.replace(str(run_dir.resolve()), "RUN") if isinstance(value, str) else value


def manifest(run_dir: Path) -> dict[str, Any]:
    """The events, each with its digests. That a run was stopped or failed stands there too, and is left out."""
    found: dict[str, Any] = {}
    try:
        entries = read(run_dir)
    except ManifestError as error:
        return {"does not hold": str(error)}
    said: list[Any] = []
    for entry in entries:
        if entry.event in ("run ended: KILLED", "run ended: FAILED"):
            continue
        # The report and figures.json tell how long things took; somebody may commit between two starts.
        apart = ("report", "figures", "git_commit")
        digests = {key: value for key, value in entry.digests.items() if key not in apart}
        body = entry.event, entry.digests, entry.files
        if body in said:  # a step that ran again after it had ended seals its longer journal
            continue
        again = found.get(entry.event, digests) != digests
        found[f"{entry.event} again ({entry.sequence})" if again else entry.event] = digests
        said.append(body)
    return found


def mlflow(folder: Path) -> dict[str, Any]:
    """Runs, points of metrics, models, numbers of traces, and artifacts as MLflow's store has them."""
    with sqlite3.connect(f"file:{folder / 'mlflow.db'}?mode=ro", uri=True) as store:
        runs = {
            identity: (name, status)
            for identity, name, status in store.execute("select run_uuid, name, status from runs")
        }
        names = {identity: name for identity, (name, _) in runs.items()}
        parents = Counter(
            "nested" for (_,) in store.execute("select run_uuid from tags where key = 'mlflow.parentRunId'")
        )
        points = Counter(
            f"{names.get(run)}: {key} at {step} = {value!r}"
            for run, key, step, value in store.execute("select run_uuid, key, step, value from metrics")
            if not is_of_time(key)
        )
        tags = {
            f"{names.get(run)}: {key}": value.replace(str(folder), "FOLDER")
            for run, key, value in store.execute("select run_uuid, key, value from tags")
            if key == "mlflow.note.content" or not key.startswith(APART_TAGS)
        }
        weights = dict(store.execute("select model_id, tag_value from logged_model_tags where tag_key = 'weights'"))
        models = sorted(
            f"{name} {weights.get(identity)}: {status}"
            for identity, name, status in store.execute("select model_id, name, status from logged_models")
        )
        scores = Counter(
            f"{weights.get(model)}: {key} at {step} on {data} in {names.get(run)} = {value!r}"
            for model, key, step, data, run, value in store.execute(
                "select model_id, metric_name, metric_step, dataset_digest, run_id, metric_value"
                " from logged_model_metrics"
            )
        )
        versions = list(store.execute("select name, version, description from model_versions order by version"))
        version_tags = sorted(
            f"{version}: {key} = {value}"
            for version, key, value in store.execute("select version, key, value from model_version_tags")
            if key != "manifest_head"
        )
        aliases = list(store.execute("select name, alias, version from registered_model_aliases order by alias"))
        kinds = list(store.execute("select key, value from experiment_tags order by key"))
        # The first twenty that finished, which are others where a kill came between; but as many.
        traces = Counter(
            name.partition("/")[0] for (name,) in store.execute("select client_request_id from trace_info")
        )
        data = dict(store.execute("select dataset_uuid, name || ' ' || digest from datasets"))
        known = {**names, **data, **weights}
        inputs = Counter(
            f"{known.get(source)} → {known.get(destination)} ({kind}, {step})"
            for source, kind, destination, step in store.execute(
                "select source_id, destination_type, destination_id, step from inputs"
            )
        )
    artifacts = sorted(
        re.sub(r"[0-9a-f]{32}", lambda found: names.get(found[0], "HEX"), str(path.relative_to(folder)))
        for path in (folder / "mlartifacts").rglob("*")
        if path.is_file() and UPLOADING not in path.name
    )
    return {
        "MLflow runs": sorted(f"{name}: {status}" for name, status in runs.values()),
        "MLflow nested runs": parents["nested"],
        "MLflow metrics": dict(points),
        "MLflow tags": tags,
        "MLflow tags of experiments": kinds,
        "MLflow versions": versions,
        "MLflow tags of versions": version_tags,
        "MLflow aliases": aliases,
        "MLflow models": models,
        "MLflow scores of models": dict(scores),
        "MLflow traces": dict(traces),
        "MLflow inputs": dict(inputs),
        "MLflow artifacts": artifacts,
    }


def leftovers(run_dir: Path) -> list[str]:
    """Temporary files and folders, KFP's and Milvus's own left out."""
    names = [str(path.relative_to(run_dir)) for path in run_dir.rglob("*")]
    return sorted(name for name in names if TEMPORARY.search(name) and not name.startswith(ALLOWED))


def findings(run_dir: Path) -> list[str]:
    """Return the output of ``hopforge verify``, a process of its own since this one forks; empty for a whole run."""
    done = subprocess.run(
        [sys.executable, "-m", "platform_sdk.cli", "verify", str(run_dir)],
        env={name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    return (done.stdout + done.stderr).strip().splitlines() if done.returncode else []


def locks(run_dir: Path) -> list[str]:
    """Locks that somebody holds."""
    held = []
    for name in (".lock", "tracking/lock", "index/milvus.db/LOCK"):
        if (run_dir / name).exists():
            with (run_dir / name).open("rb") as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(name)
    return held


def differences(wanted: Any, found: Any, place: str = "") -> Iterator[str]:
    """Return the differences of two outcomes: file, record, field, and both values."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in [*wanted, *(key for key in found if key not in wanted)]:
            where = f"{place} › {key}" if place else str(key)
            if key not in found:
                yield f"{where}: missing"
            elif key not in wanted:
                yield f"{where}: not in the undisturbed run"
            else:
                yield from differences(wanted[key], found[key], where)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif wanted != found:
        if isinstance(wanted, list) and isinstance(found, list):
            lost, new = Counter(map(str, wanted)), Counter(map(str, found))
            yield f"{place}: missing {dict(lost - new)}, too many {dict(new - lost)}"
        else:
            yield f"{place}: {_short(wanted)} → {_short(found)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 90 else f"{text[:87]}…"
