"""Evaluate the ValidatingAdmissionPolicies of an overlay as an API server does: match a request, then run the CEL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cel

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.kubeflow.training_job import indexedjob
from platform_sdk.kubeflow.training_job.description import Description, Sidecar
from tests.kubeflow.rendered import MANIFESTS, Item, built

Change = Callable[[Item], None]
PLURALS = {
    "Pod": ("", "pods"), "Job": ("batch", "jobs"), "PyTorchJob": ("kubeflow.org", "pytorchjobs"),
    "TrainJob": ("trainer.kubeflow.org", "trainjobs"), "JobSet": ("jobset.x-k8s.io", "jobsets"),
    "TFJob": ("kubeflow.org", "tfjobs"),
}  # fmt: skip

CLUSTER = read_as(ClusterSpec, MANIFESTS.parent / "pipelines/cluster.yaml")
JOB = Description(
    run="hotpot", step="train", namespace="hopforge", module="m", spec_file="/workspace/runs/hotpot/job.json",
    spec=CLUSTER.job.model_copy(update={"queue": "hopforge"}), workspace=CLUSTER.workspace, run_folder="runs/hotpot",
)  # fmt: skip
SERVED = replace(JOB, sidecar=Sidecar(CLUSTER.job.sampler, "/workspace/runs/hotpot/served.json"))
EXTRACTION = indexedjob.render(replace(JOB, indexed=True))
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
STEP = {
    "kind": "Pod",
    "metadata": {"name": "hotpot-x1-system-container-impl-1", "labels": {"hopforge.dev/task": "hotpot"}},
    "spec": {
        "serviceAccountName": "default-editor",
        "initContainers": [{"name": "init", "securityContext": RESTRICTED}],
        "containers": [
            {
                "name": "main",
                "securityContext": RESTRICTED,
                "env": [
                    {"name": "A", "value": "b"},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "run-access", "key": "retriever-token"}}},
                    {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
            }
        ],
        "volumes": [
            {"name": "w", "persistentVolumeClaim": {"claimName": "workspace"}},
            {"name": "art", "secret": {"secretName": "mlpipeline-minio-artifact"}},
            {"name": "kube-api-access", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        ],
    },
}


@dataclass(frozen=True)
class Request:
    """One request to the API server, in a namespace of runs; ``resource`` is ``group/plural`` or ``group/plural/sub``.

    ``allowed_secrets`` and ``priorities`` are the namespace's annotations ``hopforge.dev/run-secrets`` and
    ``hopforge.dev/priorities``; ``old`` is the object before an update, which changes nothing without it.
    """

    object: Item
    resource: str = ""
    operation: str = "CREATE"
    user: str = "kubernetes-admin"
    namespace: str = "hopforge"
    allowed_secrets: str | None = None
    priorities: str | None = None
    old: Item | None = None

    @property
    def path(self) -> list[str]:
        """Group, plural and, if any, subresource."""
        return self.resource.split("/") if self.resource else list(PLURALS[self.object["kind"]])


def policies(items: tuple[Item, ...]) -> list[Item]:
    """The specifications of the policies among objects."""
    return [item["spec"] for item in items if item["kind"] == "ValidatingAdmissionPolicy"]


def refusals(request: Request, variant: str = "base") -> list[str]:
    """The messages with which an overlay's policies refuse a request."""
    return refusals_of(policies(built(variant)), request)


def refusals_of(specifications: list[Item], request: Request) -> list[str]:
    """The messages with which policies refuse a request."""
    return [message for policy in specifications if _matches(policy, request) for message in _run(policy, request)]


def _matches(policy: Item, request: Request) -> bool:
    group, *rest = request.path
    for rule in policy["matchConstraints"]["resourceRules"]:
        named = {"*/*", "/".join(rest)} | ({"*"} if len(rest) == 1 else set())
        groups = {group, "*"} & set(rule["apiGroups"])
        if groups and named & set(rule["resources"]) and request.operation in rule["operations"]:
            return True
    return False


def _run(policy: Item, request: Request) -> list[str]:
    group, plural, *sub = request.path
    annotations = {
        "hopforge.dev/run-secrets": request.allowed_secrets,
        "hopforge.dev/priorities": request.priorities,
    }
    metadata: Item = {"name": request.namespace}
    if present := {name: text for name, text in annotations.items() if text is not None}:
        metadata["annotations"] = present
    given: dict[str, Any] = {
        "object": {"metadata": {}} | request.object,
        "oldObject": {"metadata": {}} | (request.old or request.object) if request.operation == "UPDATE" else None,
        "namespaceObject": {"metadata": metadata},
        # As AdmissionRequest is converted: what is empty is left out, except the group.
        "request": {
            "userInfo": {"username": request.user},
            "namespace": request.namespace,
            "operation": request.operation,
            "resource": {"group": group, "resource": plural},
        } | ({"subResource": sub[0]} if sub else {}),
        "variables": {},
    }  # fmt: skip

    def value(expression: str) -> Any:
        context = cel.Context()
        for name, content in given.items():
            context.add_variable(name, content)
        context.add_function("dyn", lambda content: content)
        return cel.evaluate(expression, context)

    if not all(value(one["expression"]) for one in policy.get("matchConditions", ())):
        return []
    for one in policy.get("variables", ()):
        given["variables"][one["name"]] = value(one["expression"])
    return [one["message"] for one in policy["validations"] if not value(one["expression"])]


def with_volume(**volume: Any) -> Change:
    return lambda pod: pod.setdefault("volumes", []).append({"name": "x", **volume})
