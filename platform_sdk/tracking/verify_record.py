"""Record of a verification in MLflow: the tag ``verified`` of a run and of its versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from platform_sdk.tracking.findings import OUTCOMES, Verification, exit_status
from platform_sdk.tracking.store_errors import store_errors
from platform_sdk.tracking.stored import Store
from platform_sdk.tracking.verify_mlflow import VERIFIED


def record(results: Sequence[Verification], uri: str) -> list[str]:
    """Set the tag ``verified`` of the verified runs, with outcome, head and time; return a line for each tag.

    A fault of the log counts for every run. Runs that MLflow does not have are left out.

    Raises:
        UserError: the store cannot be written.
    """
    time = datetime.now(UTC).isoformat(timespec="seconds")
    of_log = [result for result in results if not result.detects and not result.run_id]
    lines = []
    with store_errors(uri), Store(uri) as store:
        for result in results:
            if result.run_id and store.run(result.run_id) is not None:
                outcome = OUTCOMES[exit_status([result, *of_log])]
                text = f"{outcome}, head {result.head or 'unknown'}, {time}"
                store.client.set_tag(result.run_id, VERIFIED, text)
                for version in store.versions(result.run_id):
                    store.client.set_model_version_tag(version.name, version.version, VERIFIED, text)
                lines.append(f"{result.run}: tag {VERIFIED}: {text}")
    return lines
