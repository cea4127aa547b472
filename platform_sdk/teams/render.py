"""Manifests of teams as text by path, independent of the order of the teams file.

The layout, in which every folder is a kustomization and ``base`` a copy of ``manifests/base``::

    kustomization.yaml   all but the Profiles
    profiles/NAME.yaml   applied first: Kubeflow makes the namespaces
    cluster/             shared objects: services, queues, priorities, rights, admission policies
    teams/NAME/          a team's namespace; cluster.yaml is for its `submit`, `plan` and `upload`
    trainer/             the teams' runtimes, for clusters with Kubeflow Trainer 2
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from platform_sdk.config.service import ServiceSpec
from platform_sdk.config.source import load_source
from platform_sdk.config.teams import Images, Team, TeamsSpec
from platform_sdk.teams import jobs, mlflow, people, queues
from platform_sdk.teams.manifest import MARK, dump, manifest

Item = dict[str, Any]
SERVICES = "hopforge-services"
SERVICE = "base/services/retriever/service.yaml"
TITLE = "# Teams of hopforge"
"""First line of the folder's README.md, by which the next rendering recognises the folder."""
RECORD = "team.yaml"
"""A team's part of the teams file, which keeps its manifests unchanged if a later file no longer names the team."""
USERS = "cluster/teams.json"
"""File of MLflow's users; JSON has no comment for a mark."""
KEPT = {"argocd.argoproj.io/sync-options": "Prune=false", "kustomize.toolkit.fluxcd.io/prune": "disabled"}
"""Annotations that stop Argo CD and Flux from deleting Profiles, namespaces and volumes removed from a folder."""


def rendered(spec: TeamsSpec, manifests: Path, cluster: Mapping[str, Any]) -> dict[str, str]:
    """Return every file by its path in the folder.

    Args:
        spec: The teams.
        manifests: Folder of hopforge's manifests, of which ``base`` and ``images`` are copied.
        cluster: Content of ``pipelines/cluster.yaml``, from which a team's ``cluster.yaml`` is made.
    """
    files = {
        str(path.relative_to(manifests)): path.read_text()
        for path in sorted((manifests / "base").rglob("*"))
        if path.is_file() and path.parent.name != "__pycache__"  # pip compiles the script of MLflow's users
    }
    names = sorted(spec.teams)
    files |= {
        "images/kustomization.yaml": manifest(_images(manifests / "images/kustomization.yaml", spec.images)),
        "images/places.yaml": (manifests / "images/places.yaml").read_text(),
        "kustomization.yaml": manifest(_kustomization(["cluster", *(f"teams/{name}" for name in names)])),
        "README.md": _readme(names),
    }
    files |= _cluster(spec, manifests)
    for name in names:
        files[f"profiles/{name}.yaml"] = manifest(_profile(name, spec.teams[name]))
        files |= {f"teams/{name}/{path}": text for path, text in _team(name, spec, cluster).items()}
        files[f"trainer/{name}-runtimes.yaml"] = manifest(*jobs.training_runtimes(name, spec, cluster))
    files["trainer/kustomization.yaml"] = manifest(_kustomization(f"{name}-runtimes.yaml" for name in names))
    return files


def collections_of(spec: TeamsSpec, manifests: Path) -> dict[str, Item]:
    """Return the settings of all collections, of ``manifests/base`` and of the file, by name."""
    own = {
        name: {
            "name": name,
            "run_dir": str(collection.run_dir or f"/workspace/corpora/{name}"),
            "environment": collection.environment,
            "retrieval": collection.retrieval.model_dump(mode="json", exclude_defaults=True),
        }
        for name, collection in spec.collections.items()
    }
    shipped = load_source(manifests / SERVICE).data["collections"]
    return {item["name"]: item for item in shipped} | own


def _retriever(spec: TeamsSpec, manifests: Path) -> Item:
    """Return the settings of the retriever: each collection with the teams that may search it.

    A collection that no team lists is left out: without teams, everybody could search it.
    """
    known = collections_of(spec, manifests)
    listed = {name: sorted(t for t, team in spec.teams.items() if name in team.collections) for name in sorted(known)}
    content = load_source(manifests / SERVICE).data | {
        "collections": [known[name] | {"teams": teams} for name, teams in listed.items() if teams]
    }
    ServiceSpec.model_validate(content)
    return content


def _cluster(spec: TeamsSpec, manifests: Path) -> dict[str, str]:
    items = queues.cluster_objects(spec)
    items += [queues.cluster_queue(name, team, spec) for name, team in sorted(spec.teams.items())]
    kustomization = _kustomization(["../base/cluster", "../base/services", "queues.yaml", "rights.yaml"]) | {
        "components": ["../images"],
        "configMapGenerator": [
            {"name": "retriever", "namespace": SERVICES, "behavior": "replace", "files": ["service.yaml"]},
        ],
        "patches": _policies(spec),
    }
    files = {
        "cluster/queues.yaml": manifest(*items),
        "cluster/rights.yaml": manifest(*people.cluster_rights(spec)),
        "cluster/service.yaml": manifest(_retriever(spec, manifests)),
    }
    if spec.mlflow == "workspaces":
        kustomization["configMapGenerator"].append(
            {"name": "mlflow-teams", "namespace": SERVICES, "files": ["teams.json"]}
        )
        files[USERS] = json.dumps(mlflow.users(spec), indent=2) + "\n"
    else:
        kustomization["patches"].append(mlflow.without_server(SERVICES))
    return files | {"cluster/kustomization.yaml": manifest(kustomization)}


def _policies(spec: TeamsSpec) -> list[Item]:
    """Return patches that list the pools' resources and the teams' runtimes without GPUs in the policies."""
    resources = {pool.resource for pool in spec.pools.values()} - {"cpu"} | {"nvidia.com/gpu"}
    runtimes = {"hopforge", *map(jobs.runtime_name, spec.teams)}
    return [
        _patch("ValidatingAdmissionPolicy", "hopforge-gpu-pods", _variable(0, "resources", resources)),
        _patch(
            "ValidatingAdmissionPolicy",
            "hopforge-gpu-jobs",
            _variable(1, "resources", resources) + _variable(2, "runtimes", runtimes),
        ),
    ]


def _variable(position: int, name: str, values: set[str]) -> list[Item]:
    path, value = f"/spec/variables/{position}", ", ".join(f"'{value}'" for value in sorted(values))
    return [
        {"op": "test", "path": f"{path}/name", "value": name},
        {"op": "replace", "path": f"{path}/expression", "value": f"[{value}]"},
    ]


def _profile(name: str, team: Team) -> Item:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "Profile",
        "metadata": {"name": name, "annotations": KEPT},
        "spec": {"owner": {"kind": "User", "name": people.owner(team)}},
    }


def _team(name: str, spec: TeamsSpec, cluster: Mapping[str, Any]) -> dict[str, str]:
    team = spec.teams[name]
    resources = ["../../base/team", "namespace.yaml", "people.yaml", "queue.yaml"]
    files = {
        "namespace.yaml": manifest(_namespace(name, team)),
        "people.yaml": manifest(*people.bindings(name, spec)),
        "queue.yaml": manifest(queues.local_queue(name)),
        "cluster.yaml": manifest(jobs.cluster_file(name, spec, cluster)),
        RECORD: manifest(_record(team)),
    }
    if team.internet:
        resources.append("internet.yaml")
        files["internet.yaml"] = manifest(_internet(team))
    if spec.mlflow == "kubernetes":
        resources.append("mlflow.yaml")
        files["mlflow.yaml"] = manifest(*mlflow.rights(name, spec), mlflow.egress(spec))
    files["kustomization.yaml"] = manifest(
        _kustomization(resources) | {"namespace": name, "components": ["../../images"], "patches": _patches(name, spec)}
    )
    return files


def _record(team: Team) -> Item:
    """Return a team's settings in one order; the first admin, who owns the Profile, stays the first."""
    content = team.model_dump(mode="json", exclude_defaults=True)
    members = content["members"]
    content["members"] = {role: sorted(users) for role, users in members.items()}
    content["members"]["admin"] = [people.owner(team), *sorted(members["admin"][1:])]
    content["gpus"] = dict(sorted(content["gpus"].items()))
    content["priorities"] = {"default": team.priorities.default, "allowed": list(team.priorities.names)}
    return content | {key: sorted(content[key]) for key in ("collections", "secrets", "internet") if key in content}


def _namespace(name: str, team: Team) -> Item:
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    annotations = {
        "owner": people.owner(team),  # Kubeflow refuses a Profile with another owner than its namespace's
        "hopforge.dev/run-secrets": ",".join(sorted(team.secrets)),
        "hopforge.dev/priorities": ",".join(team.priorities.names),
    }
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {"hopforge.dev/runs": "true", **level},
            "annotations": annotations | KEPT,
        },
    }


def _internet(team: Team) -> Item:
    peers = [{"ipBlock": {"cidr": cidr}} for cidr in sorted(set(team.internet))]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "internet"},
        "spec": {
            "podSelector": {"matchExpressions": [{"key": "hopforge.dev/task", "operator": "Exists"}]},
            "policyTypes": ["Egress"],
            "egress": [{"to": peers, "ports": [{"port": 443, "protocol": "TCP"}]}],
        },
    }


def _patches(name: str, spec: TeamsSpec) -> list[Item]:
    team = spec.teams[name]
    volume: list[Item] = [
        {"op": "replace", "path": "/spec/resources/requests/storage", "value": team.storage},
        {"op": "add", "path": "/metadata/annotations", "value": KEPT},
    ]
    return [
        # The account that Kubeflow makes in every Profile's namespace.
        _patch("RoleBinding", "launcher", [{"op": "replace", "path": "/subjects/1/namespace", "value": name}]),
        _patch("PersistentVolumeClaim", "workspace", volume),
        _patch("ResourceQuota", "team", [{"op": "replace", "path": "/spec/hard", "value": jobs.quota(team, spec)}]),
    ]


def _images(path: Path, images: Images) -> Item:
    content = dict(load_source(path).data)
    own = {f"hopforge/{name}": reference for name, reference in images.model_dump().items() if name != "trainer"}
    content["images"] = [
        _image(image["name"], own[image["name"]]) if image["name"] in own else image for image in content["images"]
    ]
    return content


def _image(name: str, reference: str) -> Item:
    path, _, digest = reference.partition("@")
    found = re.fullmatch(r"(.+?)(?::([\w][\w.-]*))?", path)
    assert found is not None
    return (
        {"name": name, "newName": found[1]}
        | ({"newTag": found[2]} if found[2] else {})
        | ({"digest": digest} if digest else {})
    )


def _kustomization(resources: Iterable[str]) -> Item:
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(resources),
    }


def _patch(kind: str, name: str, operations: list[Item]) -> Item:
    return {"target": {"kind": kind, "name": name}, "patch": dump(operations)}


def _readme(names: list[str]) -> str:
    waits = "\n".join(f"kubectl wait --for=create namespace/{name} --timeout=120s" for name in names)
    return f"""{TITLE}

{MARK}

Apply the Profiles first, since Kubeflow creates the namespaces from them:

```sh
kubectl apply -f profiles
{waits}
kubectl diff -k .
kubectl -n {SERVICES} delete job mlflow-users --ignore-not-found
kubectl apply -k .
```

The job `mlflow-users` creates the teams' workspaces in MLflow. Kubernetes cannot change a job, so the previous one is
deleted first.

`base` and `images` are copies of hopforge's own manifests, which each rendering replaces.
"""
