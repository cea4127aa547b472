"""Pod settings that are the same for every job of a cluster: volumes, mounts, security."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from platform_sdk.config.cluster import ProgramSpec, SamplerSpec, Workspace
from platform_sdk.config.sampling import SAMPLER_HEALTH, SAMPLER_HOST

USER = 10001
"""User and group of our images. Kubernetes takes only the user from an image, so the group is set explicitly."""
GRACE_SECONDS = 60
"""Time between SIGTERM and SIGKILL; torch's agent gives its workers 30 seconds of it."""
SAMPLER = "sampler"
SAMPLER_PORT = 8000
SERVER_SPEC = "HOPFORGE_SERVER_SPEC"
"""Environment variable of the vLLM server's container: file with the specification of the served model."""
WORKSPACE, SHARED_MEMORY, SCRATCH = "workspace", "shared-memory", "scratch"
PROGRAM, PROGRAM_RUNNER, PROGRAM_SCRATCH = "program", "program-runner", "program-scratch"
"""Container of a user's program, and its volumes; ``program-runner`` is also the container that copies the runner."""
PROGRAM_USER = 10002
"""User and group of a program, different from the other containers'."""
PROGRAM_PORT = 8700
_RUNNER_IN_IMAGE, _RUNNER = "/usr/local/bin/hopforge-runner", "/runner/hopforge-runner"

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


def amounts(cpu: str, memory: str, gpus: int, gpu_resource: str) -> dict[str, str]:
    """Return a container's resources, which are its requests and its limits."""
    return {"cpu": cpu, "memory": memory} | ({gpu_resource: str(gpus)} if gpus else {})


def server(sampler: SamplerSpec, workspace: Workspace, gpu_resource: str) -> dict[str, Any]:
    """Return the vLLM server's container without the settings of a run, i.e. its variables and the run's mount.

    The container is a native sidecar: it is ready before the other containers start, and ends with them. It shares the
    volumes of the main container, including /tmp, where it receives new weights as files.
    """
    own = sampler.resources
    resources = amounts(own.cpu, own.memory, own.gpus, gpu_resource)
    # Probed from within the pod: the server listens on the pod's loopback only, which the kubelet cannot reach.
    address = f"'{SAMPLER_HOST}', {SAMPLER_PORT}, timeout=5"
    ask = f"h = http.client.HTTPConnection({address}); h.request('GET', '{SAMPLER_HEALTH}')"
    probe = f"import http.client, sys; {ask}; sys.exit(h.getresponse().status != 200)"
    # Kubernetes fills in the variable.
    options = ["--spec", f"$({SERVER_SPEC})", "--port", str(SAMPLER_PORT)]
    return {
        "name": SAMPLER,
        "image": sampler.image,
        "command": ["python", "-m", "platform_sdk.sampling.serve", *options],
        "resources": {"requests": resources, "limits": dict(resources)},
        "volumeMounts": shared_mounts(workspace),
        "securityContext": CONTAINER_SECURITY,
        "restartPolicy": "Always",
        "startupProbe": {
            "exec": {"command": ["python", "-c", probe]},
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 180,  # half an hour to load a large model from a network's file system
        },
    }


def program_volumes() -> list[dict[str, Any]]:
    """Return the volumes of a program: the runner, and the program's temporary files."""
    return [{"name": name, "emptyDir": {"sizeLimit": size}} for name, size in _PROGRAM_VOLUMES.items()]


_PROGRAM_VOLUMES = {PROGRAM_RUNNER: "16Mi", PROGRAM_SCRATCH: "8Gi"}


def program(image: str, spec: ProgramSpec, runner_image: str, *, serves: bool = False) -> list[dict[str, Any]]:
    """Return the containers of a user's program: a native sidecar, and before it one that copies the runner.

    The sidecar has no variable, no Secret, no token of an account and no folder but its own two volumes. An image that
    ``serves`` a URL runs its own entry point, without the runner.
    """
    own = amounts(spec.resources.cpu, spec.resources.memory, 0, "")
    security = {**CONTAINER_SECURITY, "runAsUser": PROGRAM_USER, "runAsGroup": PROGRAM_USER}
    sidecar: dict[str, Any] = {
        "name": PROGRAM,
        "image": image,
        "resources": {"requests": own, "limits": dict(own)},
        "volumeMounts": [{"name": PROGRAM_SCRATCH, "mountPath": "/tmp"}],
        "securityContext": security,
        "restartPolicy": "Always",
    }
    if serves:
        return [sidecar]
    little = amounts("100m", "64Mi", 0, "")
    folder = str(PurePosixPath(_RUNNER).parent)
    copy = {
        "name": PROGRAM_RUNNER,
        "image": runner_image,
        "command": ["cp", _RUNNER_IN_IMAGE, _RUNNER],
        "resources": {"requests": little, "limits": dict(little)},
        "volumeMounts": [{"name": PROGRAM_RUNNER, "mountPath": folder}],
        "securityContext": CONTAINER_SECURITY,
    }
    command = [_RUNNER, str(PROGRAM_PORT)]
    sidecar |= {
        "command": [*command, *(["--open-network"] if spec.open_network else [])],
        "startupProbe": {"exec": {"command": [*command, "--check"]}, "periodSeconds": 2, "failureThreshold": 60},
    }
    mount = {"name": PROGRAM_RUNNER, "mountPath": folder, "readOnly": True}
    return [copy, {**sidecar, "volumeMounts": [*sidecar["volumeMounts"], mount]}]
