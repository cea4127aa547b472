"""Cancellation of the run that this pod belongs to: Kubeflow reports a cancelled run to its last step as failed."""

from __future__ import annotations

import logging

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.api import ClusterApi, connect
from platform_sdk.kubeflow.training_job.here import NAMESPACE_FILE, namespace, owner_of_this_pod

log = logging.getLogger(__name__)
GROUP, VERSION, PLURAL = "argoproj.io", "v1alpha1", "workflows"


def was_terminated() -> bool | None:
    """Return True if the workflow of this pod is being ended on request; None if it cannot be read.

    Requests are not repeated: a step that receives SIGTERM has half a minute to record its end.
    """
    if not NAMESPACE_FILE.exists():
        return None  # not in a pod
    try:
        workflows = ClusterApi(
            namespace(), group=GROUP, version=VERSION, plural=PLURAL, selector="", connection=connect()
        )
        owner = owner_of_this_pod(workflows)
        workflow = None if owner is None else workflows.get(owner.name)
    except UserError as error:
        log.warning("cannot read whether the run was cancelled: %s", error)
        return None
    return None if workflow is None else bool(workflow.get("spec", {}).get("shutdown"))
