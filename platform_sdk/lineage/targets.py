"""Nodes of the lineage graph that a command names: a run, model, dataset, file or digest."""

from __future__ import annotations

import re
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.files import sha256
from platform_sdk.lineage.graph import Graph
from platform_sdk.tracking.opened import contains_run
from platform_sdk.tracking.verify import MODEL, registered_model

DIGEST = re.compile(r"[0-9a-f]{6,64}")
"""A digest, or its first characters."""


def find_targets(target: str, graph: Graph, folder: Path, *, down: bool) -> list[str]:
    """Return the digests of the nodes that a target names, with all versions of a named file.

    Args:
        target: A run (its name or directory), a registered model (``name@alias``, ``name/3``), the path of a dataset's
            file, of a file or of a folder in a run directory, or the beginning of a digest.
        graph: The graph of all runs in ``folder``.
        folder: The folder of the run directories.
        down: Start at a run's first nodes, not at its final ones.

    Raises:
        UserError: no run of the folder recorded the target.
    """
    path = Path(target)
    run = run_named(target, folder)
    if any(run in node.runs for node in graph.nodes.values()):
        return graph.ends_of(run, down=down)
    if contains_run(path):
        raise UserError(f"{target}: not a run in {folder}; name the folder of the run with --folder")
    if found := _of_path(path, graph, folder):
        return found
    if DIGEST.fullmatch(target) and (found := _of_digest(target, graph)):
        return found
    if not path.exists() and MODEL.fullmatch(target):
        digest = registered_model(target, folder).weights
        if digest in graph.nodes:
            return [digest]
        raise UserError(f"{target}: no run in {folder} recorded this model's weights ({digest[:12]})")
    raise UserError(
        f"{target}: no run in {folder} recorded such a run, file, model or digest; check it, or name the folder of the "
        "runs with --folder"
    )


def run_named(target: str, folder: Path) -> str:
    """Return the run's name in ``folder`` for a run directory, which may be a link; empty for a run elsewhere.

    Other targets are unchanged.
    """
    path = Path(target)
    if not contains_run(path):
        return target
    places = (path.absolute(), path.resolve())
    return next((place.name for place in places if place.parent.resolve() == folder.resolve()), "")


def _of_path(path: Path, graph: Graph, folder: Path) -> list[str]:
    """Return the nodes of a file or folder: by the content of the file, and by its recorded name."""
    found: dict[str, None] = {}
    if path.is_file():
        digest = sha256(path)
        found = dict.fromkeys([digest] if digest in graph.nodes else graph.files.get(digest, ()))
    names = {str(path), str(path.resolve())}
    inside = path.resolve()
    if inside.is_relative_to(folder.resolve()):
        names.add(str(inside.relative_to(folder.resolve())))
    for digest, node in graph.nodes.items():
        if any(name == known or name.startswith(f"{known}/") for name in node.names for known in names):
            found[digest] = None
    return list(found)


def _of_digest(prefix: str, graph: Graph) -> list[str]:
    nodes = [digest for digest in graph.nodes if digest.startswith(prefix)]
    owners = [digest for file, found in graph.files.items() if file.startswith(prefix) for digest in found]
    if len(nodes) > 1 and not owners:
        raise UserError(f"{prefix}: the beginning of {len(nodes)} digests; add characters")
    return list(dict.fromkeys([*nodes, *owners]))
