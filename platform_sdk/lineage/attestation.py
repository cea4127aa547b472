"""Provenance of an exported model: an in-toto statement (v1) with SLSA's provenance (v1) as its predicate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from platform_sdk.lineage.bom import Exported
from platform_sdk.lineage.products import SOURCES
from platform_sdk.run_dir import RunDir

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD = "urn:hopforge:run:2"
"""Type of the build: a run whose manifest has format 2 (docs/manifest.md)."""
BUILDER = "urn:hopforge:builder"


def build_provenance(model: Exported, manifest_digest: str) -> str:
    """Return the provenance of an exported model as JSON.

    Args:
        model: The exported model.
        manifest_digest: The SHA-256 of the run's ``manifest.jsonl``.
    """
    origin = model.run.origin
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": path, "digest": {"sha256": digest}} for path, digest in sorted(model.files.items())],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD,
                "externalParameters": {"recipe": model.recipe},
                "internalParameters": {"origin": origin, "runs": [run.run for run in model.facts.runs]},
                "resolvedDependencies": list(_dependencies(model, origin)),
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"hopforge": origin.get("version", "unknown")}},
                "metadata": {
                    "invocationId": f"urn:hopforge:manifest:{model.head}",
                    "startedOn": model.run.started,
                    "finishedOn": model.time,
                },
                "byproducts": [{"name": RunDir.manifest, "digest": {"sha256": manifest_digest}}],
            },
        },
    }
    return json.dumps(statement, indent=1, ensure_ascii=False) + "\n"


def _dependencies(model: Exported, origin: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield dataset files, base models and other roots, hopforge's source, and the installed packages.

    Digests named ``hopforgeContent`` are of records or weights; only ``sha256`` is of a file.
    """
    for node in model.origins:
        name = node.names[0] if node.names else node.kind
        algorithm = "sha256" if node.kind in SOURCES else "hopforgeContent"
        yield {"name": name, "digest": {algorithm: node.digest}, "annotations": {"kind": node.kind}}
    from packageurl import PackageURL

    digests = {"gitCommit": origin.get("commit", ""), "hopforgeSource": origin.get("source", "")}
    if known := {algorithm: digest for algorithm, digest in digests.items() if digest}:
        yield {"name": "hopforge", "digest": known}
    for package, version in sorted(model.packages.items()):
        yield {"name": package, "uri": PackageURL(type="pypi", name=package, version=version).to_string()}
