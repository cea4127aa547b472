"""MLflow of teams: users of the services' own server, or rights on the server of Kubeflow's MLflow integration."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from platform_sdk.config.teams import TeamsSpec
from platform_sdk.teams.people import RBAC, binding, users_of

Item = dict[str, Any]
GROUP = "mlflow.kubeflow.org"
RESOURCES = ("datasets", "experiments", "registeredmodels")
RUN_ACCOUNTS = ("default-editor", "launcher")
"""Accounts of a run's steps; only steps connect to MLflow, since jobs have no token."""


def users(spec: TeamsSpec) -> Item:
    """Return the users of every team's workspace in MLflow, which the job ``mlflow-users`` reads."""
    return {
        "teams": {
            name: {"runs": name, "members": sorted(user for _, user, _ in team.members.roles())}
            for name, team in sorted(spec.teams.items())
        },
        "auditors": sorted(spec.auditors),
    }


def rights(name: str, spec: TeamsSpec) -> list[Item]:
    """Return the rights in a team's workspace of Kubeflow's MLflow: runs write, members and auditors read.

    Rights there are not by creator, so a member who may write could change the records of runs.
    """
    grants = {"mlflow-runs": ["get", "list", "create", "update", "delete"], "mlflow-readers": ["get", "list"]}
    roles: list[Item] = [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": {"name": role},
            "rules": [{"apiGroups": [GROUP], "resources": list(RESOURCES), "verbs": verbs}],
        }
        for role, verbs in grants.items()
    ]
    runs = binding("RoleBinding", "mlflow-runs", "Role", "mlflow-runs", [])
    runs["subjects"] = [{"kind": "ServiceAccount", "name": account, "namespace": name} for account in RUN_ACCOUNTS]
    readers = binding("RoleBinding", "mlflow-readers", "Role", "mlflow-readers", sorted(users_of(name, spec)))
    return [*roles, runs, readers]


def without_server(services: str) -> Item:
    """Return the patch that leaves out the services' own MLflow, with its database and object store."""
    return {
        "target": {"namespace": services, "name": "mlflow|mlflow-.*|objects"},
        "patch": "$patch: delete\napiVersion: v1\nkind: Any\nmetadata: {name: any}\n",
    }


def egress(spec: TeamsSpec) -> Item:
    """Return the policy that lets steps reach Kubeflow's MLflow server."""
    address = urlsplit(spec.mlflow_service)
    namespace = str(address.hostname).split(".")[1]
    port = address.port or {"http": 80, "https": 443}[address.scheme]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "mlflow"},
        "spec": {
            "podSelector": {"matchExpressions": [{"key": "hopforge.dev/task", "operator": "Exists"}]},
            "policyTypes": ["Egress"],
            "egress": [
                {
                    "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}],
                    "ports": [{"port": port, "protocol": "TCP"}],
                }
            ],
        },
    }
