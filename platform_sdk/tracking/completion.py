"""Detection of finished runs, so that repeating their command does nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.files import read_model, sha256
from platform_sdk.run_dir import RunDir
from platform_sdk.tracking import manifest, seals
from platform_sdk.tracking.journal import (
    FOLDER,
    RUN,
    STATE_EVENTS,
    end_at,
    journals,
    read,
    relocated,
    run_file,
    step_file,
)
from platform_sdk.tracking.removed import is_in, removed_paths
from platform_sdk.tracking.store import STATE_FILE, DeliveryState, stored_in


def complete_since(run_dir: Path, steps: Iterable[str]) -> int | None:
    """Return the end time of a run in milliseconds since the epoch; None if a step has to run again.

    A run is finished if all steps are finished and their files unchanged; the run directory may have moved. Delivery to
    MLflow is checked by ``is_delivered``.

    Raises:
        UserError: a file of a finished step, or the manifest, was altered or removed.
    """
    run_dir = run_dir.resolve()
    found = journals(run_dir)
    # A step's journal is named after its phase, its log after the step, which another pipeline may lack.
    if not found[RUN].is_file() or not all((RunDir(run_dir).log(step)).is_file() for step in steps):
        return None
    ends = [_end(path) for path in found.values()]
    if None in ends:
        return None
    seals.check(run_dir)
    sealed = {entry.event: entry.files for entry in manifest.read(run_dir)}  # the last entry of each step
    if not all(_are_there(run_dir, files) for files in sealed.values()):
        return None
    return ends[0] if _artifacts_are_there(run_dir) else None


def finished_steps(run_dir: Path) -> set[str]:
    """Return the names of the steps that have finished and whose files are unchanged; a resumed run reads them.

    Raises:
        UserError: a file of a finished step, or the manifest, was altered or removed.
    """
    run_dir = run_dir.resolve()
    seals.check(run_dir)
    sealed = seals.last_entries(manifest.read(run_dir))
    return {
        step
        for step, entry in sealed.items()
        if _end(step_file(run_dir, step)) is not None and _are_there(run_dir, entry.files)
    }


def _are_there(run_dir: Path, files: Iterable[str]) -> bool:
    """Return True if the files in the run directory exist or were removed on record; a missing index is built again."""
    removed = removed_paths(run_dir)
    return all((run_dir / name).exists() or is_in(name, removed) for name in files if not Path(name).is_absolute())


def _end(journal: Path) -> int | None:
    """Return the time at which a journal's run or step succeeded; None if it did not."""
    states = [event for event in read(journal)[0] if event["event"] in STATE_EVENTS]
    return int(states[-1]["time"]) if states and states[-1].get("status") == "FINISHED" else None


def is_delivered(run_dir: Path) -> bool:
    """Return True if the current MLflow store of a run has everything that the run recorded."""
    run_dir = run_dir.resolve()
    try:
        state = read_model(run_dir / FOLDER / STATE_FILE, DeliveryState)
    except UserError:
        return False  # missing or damaged; repeating the delivery restores it
    store = stored_in(run_dir)
    local = Path(store.removeprefix("sqlite:///")) if store.startswith("sqlite:///") else None
    return (
        state.sha256 == state.digest()
        and state.ended_in == store
        and (local is None or local.is_file())
        and end_at(run_dir, state.offsets)
    )


def _artifacts_are_there(run_dir: Path) -> bool:
    """Return True if files without a step, such as the report, are unchanged since the end of the run."""
    # Earlier versions recorded no event twice, so the last event may not be the latest state.
    known: dict[Path, set[str]] = {}
    for event in read(run_file(run_dir))[0]:
        if event["event"] == "artifact":
            known.setdefault(relocated(run_dir, event["path"]), set()).add(event["digest"])
    return all(path.is_file() and sha256(path) in digests for path, digests in known.items())
