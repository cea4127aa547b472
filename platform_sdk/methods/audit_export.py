"""Audit files of an exported model: manifest, log entries, checkpoint, bill of materials, provenance, signature."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.files import read_object, sha256
from platform_sdk.lineage.attestation import build_provenance
from platform_sdk.lineage.bom import Exported, build_bom
from platform_sdk.lineage.graph import Node, read_graph_of
from platform_sdk.lineage.model_facts import model_facts
from platform_sdk.methods.finished import FinishedRun
from platform_sdk.methods.model_signature import SIGNATURE
from platform_sdk.sampling.pairs import models_of
from platform_sdk.tracking import manifest
from platform_sdk.tracking.journal import FOLDER
from platform_sdk.tracking.log.chain import LogEntry
from platform_sdk.tracking.log.client import open_log
from platform_sdk.tracking.opened import ENVIRONMENT_FILE

MANIFEST = manifest.FILE_NAME
LOG, CHECKPOINT = "log-entries.jsonl", "checkpoint.json"
BOM, PROVENANCE = "bom.cdx.json", "provenance.json"

AUDIT_FILES = (MANIFEST, LOG, CHECKPOINT, BOM, PROVENANCE, SIGNATURE)


def log_files(run: FinishedRun) -> dict[str, str]:
    """Return the files that follow from the log, by name: the entries about the run, and a checkpoint.

    Raises:
        UserError: the log cannot be read, or its chain is broken.
    """
    log = open_log(run.run_dir.resolve().parent)
    chain = log.read()
    if chain.faults:
        raise UserError(f"{log.name}: {chain.faults[0]}, so no entries are exported; restore it from a copy")
    lines = b"".join(entry.line() + b"\n" for entry in entries_of(chain.entries, run))
    return {LOG: lines.decode(), CHECKPOINT: log.checkpoint().model_dump_json(indent=1) + "\n"}


def run_files(run: FinishedRun, output: Path) -> dict[str, str]:
    """Return the files that follow from the run, by name: manifest, bill of materials, provenance.

    Args:
        run: The run.
        output: The directory with the exported model.

    Raises:
        UserError: the extra ``audit`` is not installed.
    """
    files = {
        path.relative_to(output).as_posix(): sha256(path)
        for path in sorted(output.rglob("*"))
        if path.is_file() and path.name not in AUDIT_FILES
    }
    model = _exported(run, files)
    path = run.run_dir / MANIFEST
    return {
        MANIFEST: path.read_text(encoding="utf-8"),
        BOM: build_bom(model),
        PROVENANCE: build_provenance(model, sha256(path)),
    }


def entries_of(entries: Iterable[LogEntry], run: FinishedRun) -> list[LogEntry]:
    """Return the log's entries about a run: its ends, approvals, withdrawals and removals."""
    start = run.opened.entries[0].hash if run.opened.entries else ""
    return [entry for entry in entries if entry.start == start]


def _exported(run: FinishedRun, files: dict[str, str]) -> Exported:
    run_dir = run.run_dir.resolve()
    graph = read_graph_of(run_dir)
    if run.weights not in graph.nodes:
        node = Node(digest=run.weights, kind="model", names=(), runs=(run_dir.name,))
        graph = graph.model_copy(update={"nodes": {**graph.nodes, run.weights: node}})
    environment = run_dir / FOLDER / ENVIRONMENT_FILE
    configuration = next(iter(models_of(run.policy).values()), run.policy) / "config.json"
    architectures = read_object(configuration).get("architectures") if configuration.is_file() else None
    facts = model_facts(run.weights, graph, run_dir.parent)
    last = run.opened.entries[-1]
    return Exported(
        facts=facts,
        run=next((one for one in facts.runs if one.run == run_dir.name), facts.runs[0]),
        head=last.head,
        time=last.time,
        recipe=run.opened.recipe,
        method=run.evaluated.method,
        architecture=str(architectures[0]) if architectures else "",
        files=files,
        packages=read_object(environment).get("packages", {}) if environment.is_file() else {},
    )
