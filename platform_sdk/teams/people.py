"""Rights of a team's members and of auditors, as Kubeflow's access management grants them.

A contributor in Kubeflow is two objects of one name: a RoleBinding for the API server, and an AuthorizationPolicy for
Istio, both annotated with user and role. Central dashboard and Pipelines list and remove people by these annotations.
"""

from __future__ import annotations

import re
from typing import Any

from platform_sdk.config.teams import Team, TeamsSpec

Item = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
GATEWAY = "cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account"
PIPELINES_UI = "cluster.local/ns/kubeflow/sa/ml-pipeline-ui"
USER_HEADER = "kubeflow-userid"
QUEUES = "hopforge-queues"
"""ClusterRole by which members read quotas and totals of all queues, and no other team's jobs."""


def users_of(name: str, spec: TeamsSpec) -> dict[str, str]:
    """Return the roles of a team's members by user; auditors who are no members have ``view``."""
    team = spec.teams[name]
    return dict.fromkeys(sorted(spec.auditors), "view") | {user: role for role, user, _ in team.members.roles()}


def owner(team: Team) -> str:
    """Return the user who owns the team's Profile."""
    return team.members.admin[0]


def binding_name(user: str, role: str) -> str:
    """Return the name of a contributor's objects, as Kubeflow's access management forms it (kfam/bindings.go)."""
    return re.sub(r"[^a-z0-9]+", "-", f"user-{user}-clusterrole-{role}".lower())


def bindings(name: str, spec: TeamsSpec) -> list[Item]:
    """Return the grants in a team's namespace; Kubeflow grants the owner's rights with the Profile."""
    people = users_of(name, spec)
    found: list[Item] = []
    for user, role in sorted(people.items()):
        if user != owner(spec.teams[name]):
            found += _contributor(user, role)
    found += [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": {"name": "queue-reader"},
            "rules": [
                {
                    "apiGroups": ["kueue.x-k8s.io"],
                    "resources": ["localqueues", "workloads"],
                    "verbs": ["get", "list", "watch"],
                },
                {
                    "apiGroups": ["visibility.kueue.x-k8s.io"],
                    "resources": ["localqueues/pendingworkloads"],
                    "verbs": ["get"],
                },
            ],
        },
        binding("RoleBinding", "queue-reader", "Role", "queue-reader", sorted(people)),
    ]
    return found


def cluster_rights(spec: TeamsSpec) -> list[Item]:
    """Return the right of all members and auditors to read quotas and totals of queues."""
    users = sorted({user for name in spec.teams for user in users_of(name, spec)})
    rules = [
        {
            "apiGroups": ["kueue.x-k8s.io"],
            "resources": ["clusterqueues", "cohorts", "resourceflavors", "workloadpriorityclasses"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": QUEUES}, "rules": rules},
        binding("ClusterRoleBinding", QUEUES, "ClusterRole", QUEUES, users),
    ]


def _contributor(user: str, role: str) -> list[Item]:
    name = binding_name(user, role)
    metadata = {"name": name, "annotations": {"role": role, "user": user}}
    policy = {
        "rules": [
            {
                "from": [{"source": {"principals": [GATEWAY, PIPELINES_UI]}}],
                "when": [{"key": f"request.headers[{USER_HEADER}]", "values": [user]}],
            }
        ]
    }
    return [
        {**binding("RoleBinding", name, "ClusterRole", f"kubeflow-{role}", [user]), "metadata": metadata},
        {
            "apiVersion": "security.istio.io/v1beta1",
            "kind": "AuthorizationPolicy",
            "metadata": metadata,
            "spec": policy,
        },
    ]


def binding(kind: str, name: str, role_kind: str, role: str, users: list[str]) -> Item:
    """Return the grant of a role to users."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": role_kind, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user} for user in users],
    }
