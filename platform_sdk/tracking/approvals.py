"""Approvals of registered models: entries of the log, and in MLflow the alias ``approved`` and tags ``approved``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from platform_sdk.errors import UserError
from platform_sdk.tracking import manifest
from platform_sdk.tracking.findings import WHOLE, exit_status
from platform_sdk.tracking.listing import find_run_dir
from platform_sdk.tracking.log.approvers import approval_of, decisions, shown
from platform_sdk.tracking.log.chain import APPROVED, WITHDRAWN, LogEntry, stated
from platform_sdk.tracking.log.client import open_log
from platform_sdk.tracking.log.keys import SigningKey
from platform_sdk.tracking.provenance import user_name
from platform_sdk.tracking.store import store_uri
from platform_sdk.tracking.store_errors import store_errors
from platform_sdk.tracking.stored import Store
from platform_sdk.tracking.verify import RegisteredModel, registered_model, verify_target
from platform_sdk.tracking.verify_log import ALIAS, TAG


def approve(
    model: str, folder: Path, note: str, *, name: str = "", key: SigningKey | None = None, withdraw: bool = False
) -> LogEntry:
    """Record the approval of a registered model, or its withdrawal, in the log and in MLflow.

    Args:
        model: ``name@alias`` or ``name/3``.
        folder: The folder of the run directories.
        note: Reason for the decision.
        name: Name of the approver; by default the user of this process. Without a key it is a claim.
        key: Key that signs the decision.
        withdraw: Withdraw an approval. This needs neither an unaltered run nor its directory.

    Raises:
        UserError: there is no such model, a verification finds something, or the model is not approved.
    """
    version = registered_model(model, folder)
    try:
        run_dir = find_run_dir(version.run_id, folder).resolve()
    except UserError:
        if not withdraw:
            raise
        run_dir = folder.resolve() / version.run_id  # removed; its log and store are those of its folder
    if not withdraw:
        _require_whole(model, folder)
    log = open_log(run_dir.parent)
    chain = log.read()
    if chain.faults:
        raise UserError(f"{log.name}: {chain.faults[0]}; restore it from a copy")
    own = [entry for entry in chain.entries if entry.team == log.team]
    if withdraw:
        base = approval_of(own, version.name, version.version)
        if base is None:
            if last := [one for one in decisions(own, version.name) if one.version == version.version]:
                _publish(version, store_uri(run_dir), last[-1])  # a kill may have come between the log and MLflow
                raise UserError(f"{model}: nothing to withdraw: its approval is withdrawn, and MLflow shows that now")
            raise UserError(f"{model}: is not approved, so there is nothing to withdraw")
        run, start, head = base.run, base.start, base.head
    else:
        entries = manifest.read(run_dir)
        run, start, head = log.named(run_dir), entries[0].hash, entries[-1].head
    unsigned = stated(
        event=WITHDRAWN if withdraw else APPROVED, run=run, start=start, head=head, weights=version.weights,
        model=version.name, version=version.version, who=name or user_name(), note=note,
        at=datetime.now(UTC).isoformat(timespec="milliseconds"), key="" if key is None else key.fingerprint,
    )  # fmt: skip
    statement = unsigned if key is None else unsigned.model_copy(update={"signature": key.sign(unsigned.content())})
    entry = log.send(statement)
    _publish(version, store_uri(run_dir), entry)
    return entry


def _require_whole(model: str, folder: Path) -> None:
    results = verify_target(model, folder)
    if exit_status(results) != WHOLE:
        findings = [f"{result.run}: {finding}" for result in results for finding in result.findings]
        more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
        raise UserError(f"{model}: is not approved, since hopforge verify finds {findings[0]}{more}")


def _publish(version: RegisteredModel, uri: str, entry: LogEntry) -> None:
    with store_errors(uri), Store(uri) as store:
        client = store.client
        if entry.event == APPROVED:
            client.set_registered_model_alias(version.name, ALIAS, version.version)
        elif store.aliases(version.name).get(ALIAS) == version.version:
            client.delete_registered_model_alias(version.name, ALIAS)
        client.set_model_version_tag(version.name, version.version, TAG, shown(entry))
        client.set_tag(version.run_id, TAG, shown(entry))  # MLflow's UI searches runs, not versions
