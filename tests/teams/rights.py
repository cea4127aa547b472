"""Rights that RoleBindings, Profiles and Istio's AuthorizationPolicies give, as Kubernetes and Istio evaluate them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Item = dict[str, Any]
READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
GATEWAY = "cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account"


@dataclass(frozen=True)
class Subject:
    """A user, or the service account of a namespace."""

    name: str
    namespace: str = ""

    def within(self, subjects: Iterable[Item], default: str) -> bool:
        kind = "ServiceAccount" if self.namespace else "User"
        return any(
            one["kind"] == kind
            and one["name"] == self.name
            and (kind == "User" or one.get("namespace", default) == self.namespace)
            for one in subjects
        )


@dataclass(frozen=True)
class Request:
    """A request for a resource of a group, in a namespace or for all of them."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""


class Rights:
    """The rights of some rendered objects.

    Kubeflow's ClusterRoles belong to its installation and may be extended there, so the most is assumed: in the
    namespace `kubeflow-admin` may do everything, `kubeflow-edit` all but change rights, `kubeflow-view` read all but
    Secrets.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        kinds = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Profile", "AuthorizationPolicy")
        self._of: dict[str, list[Item]] = {kind: [] for kind in kinds}
        for item in items:
            if item["kind"] in self._of:
                self._of[item["kind"]].append(item)

    def allow(self, subject: Subject, request: Request) -> bool:
        """Return whether the API server allows a request."""
        for binding in self._of["ClusterRoleBinding"]:
            if subject.within(binding["subjects"], "") and self._grants(binding, request):
                return True
        if not request.namespace:
            return False
        for profile in self._of["Profile"]:
            owner = profile["spec"]["owner"]
            if profile["metadata"]["name"] == request.namespace and subject.within([owner], ""):
                return True
        return any(
            binding["metadata"]["namespace"] == request.namespace
            and subject.within(binding["subjects"], request.namespace)
            and self._grants(binding, request)
            for binding in self._of["RoleBinding"]
        )

    def _grants(self, binding: Item, request: Request) -> bool:
        role = binding["roleRef"]
        if role["kind"] == "ClusterRole" and role["name"].startswith("kubeflow-"):
            return _kubeflow(role["name"], request)
        namespace = binding["metadata"].get("namespace") if role["kind"] == "Role" else None
        [found] = [
            one
            for one in self._of[role["kind"]]
            if one["metadata"]["name"] == role["name"] and one["metadata"].get("namespace") == namespace
        ]
        return any(_rule(rule, request) for rule in found["rules"])

    def lets_in(self, namespace: str, principal: str, user: str) -> bool:
        """Return whether Istio lets a request into a namespace: its source's account, and the header of its user."""
        return any(
            rule_from["source"]["principals"].count(principal)
            and all(
                when["key"] == "request.headers[kubeflow-userid]" and user in when["values"] for when in rule["when"]
            )
            for policy in self._of["AuthorizationPolicy"]
            if policy["metadata"]["namespace"] == namespace
            for rule in policy["spec"]["rules"]
            for rule_from in rule["from"]
        )


def _kubeflow(role: str, request: Request) -> bool:
    if role == "kubeflow-admin":
        return True
    if role == "kubeflow-edit":
        return not (request.group == "rbac.authorization.k8s.io" and request.verb in WRITE)
    assert role == "kubeflow-view", role
    return request.verb in READ and request.resource != "secrets"


def _rule(rule: Item, request: Request) -> bool:
    names = rule.get("resourceNames")
    return (
        bool({request.group, "*"} & set(rule["apiGroups"]))
        and bool({request.resource, "*"} & set(rule["resources"]))
        and bool({request.verb, "*"} & set(rule["verbs"]))
        and (not names or request.name in names)
    )
