"""``hopforge verify``: comparison of runs with everything that they recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from platform_sdk.cli.output import say, say_json
from platform_sdk.cli.runs import RUNS
from platform_sdk.errors import UserError

if TYPE_CHECKING:
    from platform_sdk.tracking.findings import Verification
    from platform_sdk.tracking.log.approvers import Approvers
    from platform_sdk.tracking.log.checkpoint import Checkpoint


def verify(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN | MODEL | DIRECTORY | FOLDER",
            help="A run (directory, name in --folder, or id in MLflow), a registered model (name@alias, name/3), "
            "a directory that hopforge export wrote, or a folder of run directories.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
    record: Annotated[
        bool, typer.Option("--record", help="Set the tag verified of the runs in MLflow: outcome, head and time.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prove that the log still begins with this checkpoint of hopforge log."),
    ] = None,
    approvers: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Check signatures of approvals with the public keys NAME.pem in this folder."),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Check the signature of an exported directory with this public key (PEM)."),
    ] = None,
) -> None:
    """Verify that nothing was altered, added or removed since a run recorded it, in its files, MLflow and the log.

    Every file is read, and every difference is printed with the expected and the found value. In an unfinished run, the
    finished steps are compared. Without a model's run directory, the manifest in MLflow is used. The
    exit status is 0 if nothing differs, 1 if something was altered, added or removed, and 3 if something could not be
    compared.
    """
    from platform_sdk.tracking.findings import exit_status
    from platform_sdk.tracking.verify import verify_target

    known = None
    if checkpoint is not None:
        from platform_sdk.tracking.log.checkpoint import read_checkpoint

        known = read_checkpoint(checkpoint)
    keys = None
    if approvers is not None:
        from platform_sdk.tracking.log.approvers import Approvers

        keys = Approvers(approvers)
    results = _of_export(Path(target), folder, known, keys, public_key)
    if public_key is not None and not results:
        raise UserError(f"{target}: is no directory that hopforge export wrote; leave --public-key out")
    results = results or verify_target(target, folder, known, keys)
    status = exit_status(results)
    if as_json:
        content = {"status": status, "runs": [result.model_dump() for result in results]}
        say_json(content, indent=1)
    else:
        _print(results)
    if record:
        from platform_sdk.tracking.verify import registry_uri
        from platform_sdk.tracking.verify_record import record as record_in

        for line in record_in(results, registry_uri(_folder_of(target, folder))):
            say(line, err=as_json)
    raise typer.Exit(status)


def _folder_of(target: str, folder: Path) -> Path:
    """Return the folder whose store has the target's runs."""
    from platform_sdk.tracking.opened import contains_run

    path = Path(target)
    if contains_run(path):
        return path.resolve().parent
    return path if path.is_dir() and any(contains_run(inner) for inner in path.iterdir()) else folder


def _of_export(
    directory: Path, folder: Path, checkpoint: Checkpoint | None, approvers: Approvers | None, key: Path | None
) -> list[Verification]:
    """Return the results for an exported directory; empty for another target."""
    if not (directory / "README.md").is_file():
        return []
    from platform_sdk.methods.verify_export import exported_head, verify_export
    from platform_sdk.tracking.verify_log import LogCheck

    if not exported_head(directory):
        return []
    return verify_export(directory, LogCheck(folder, checkpoint, approvers), folder, key)


def _print(results: Sequence[Verification]) -> None:
    from platform_sdk.tracking.findings import ROWS

    for result in results:
        part = "" if result.finished else ", finished steps only"
        removed = f", removed on record by {result.removed}" if result.removed else ""
        say(f"{result.run}: {result.outcome}{part}{removed} (head {result.head or 'unknown'})")
        for finding in result.findings:
            say(f"  {finding}")
    of_runs = [result for result in results if result.detects]  # the log itself detects nothing
    for detects in dict.fromkeys(result.detects for result in of_runs):
        runs = [result.run for result in of_runs if result.detects == detects]
        where = "" if len(runs) == len(of_runs) else f"of {', '.join(runs)} "
        say(f"{where}detects {'; '.join(ROWS[name] for name in detects)}")
        say(f"{where}does not detect {'; '.join(text for name, text in ROWS.items() if name not in detects)}")
