"""``hopforge approve``: approval of a registered model, or its withdrawal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from platform_sdk.cli.runs import RUNS
from platform_sdk.cli.terminal import say


def approve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A registered model: name@alias or name/3.")],
    note: Annotated[str, typer.Option(metavar="TEXT", help="Reason for the decision.")],
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="EC key that signs the decision (PEM); without it, the name is a claim."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the approver (default: the user).")] = "",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw the model's approval.")] = False,
    folder: Annotated[Path, typer.Option(help="Folder of the run directories.")] = RUNS,
) -> None:
    """Approve a model after verifying it: in the log, and by the alias and tag "approved" in MLflow.

    A model with any finding of hopforge verify is refused. An approval can be withdrawn at any time.
    """
    from platform_sdk.tracking.approvals import approve as decide
    from platform_sdk.tracking.log.approvers import shown
    from platform_sdk.tracking.log.keys import SigningKey

    signing = None if key is None else SigningKey(key)
    say(f"{model}: {shown(decide(model, folder, note, name=name, key=signing, withdraw=withdraw))}")
