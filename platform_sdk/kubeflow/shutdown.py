"""Cancellation of the run that this pod belongs to: Kubeflow reports a cancelled run to its last step as failed."""

from __future__ import annotations

import logging

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.api import ApiUnavailable, ClusterApi, connect
from platform_sdk.kubeflow.training_job.here import NAMESPACE_FILE, namespace, owner_of_this_pod

log = logging.getLogger(__name__)
GROUP, VERSION, PLURAL = "argoproj.io", "v1alpha1", "workflows"


def was_terminated() -> bool | None:
    """Return whether the workflow of this pod is being ended on request; None where it cannot be read."""
    if not NAMESPACE_FILE.exists():
        return None  # this is no pod
    try:
        workflows = ClusterApi(
            namespace(), group=GROUP, version=VERSION, plural=PLURAL, selector="", connection=connect()
        )
        owner = owner_of_this_pod(workflows)
        workflow = None if owner is None else workflows.get(owner.name)
    except (UserError, ApiUnavailable) as error:
        log.warning("cannot read whether the run was cancelled: %s", error)
        return None
    return None if workflow is None else bool(workflow.get("spec", {}).get("shutdown"))
