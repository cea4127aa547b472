"""Pod settings that are the same for every job of a cluster: volumes, mounts, security."""

from __future__ import annotations

from typing import Any

from platform_sdk.config.cluster import Workspace

USER = 10001
"""User and group of our images. Kubernetes takes only the user from an image, so the group is set explicitly."""
GRACE_SECONDS = 60
"""Time between SIGTERM and SIGKILL; torch's agent gives its workers 30 seconds of it."""
WORKSPACE, SHARED_MEMORY, SCRATCH = "workspace", "shared-memory", "scratch"

POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
    "fsGroup": USER,
    "fsGroupChangePolicy": "OnRootMismatch",  # does not walk through a large volume at every start
}
CONTAINER_SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def volumes(workspace: Workspace, shared_memory: str) -> list[dict[str, Any]]:
    """Return the volumes of a pod."""
    return [
        {"name": WORKSPACE, "persistentVolumeClaim": {"claimName": workspace.claim}},
        {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}},
        {"name": SCRATCH, "emptyDir": {}},
    ]


def shared_mounts(workspace: Workspace) -> list[dict[str, Any]]:
    """Return the mounts that do not depend on the run: the workspace read-only, its caches and temporary folders."""
    return [
        {"name": WORKSPACE, "mountPath": workspace.path, "readOnly": True},
        *(folder_mount(workspace, folder) for folder in workspace.writable),
        {"name": SHARED_MEMORY, "mountPath": "/dev/shm"},
        {"name": SCRATCH, "mountPath": "/tmp"},
    ]


def folder_mount(workspace: Workspace, folder: str) -> dict[str, Any]:
    """Return the mount of a folder of the workspace that the pod may write."""
    return {"name": WORKSPACE, "mountPath": f"{workspace.path}/{folder}", "subPath": folder}
