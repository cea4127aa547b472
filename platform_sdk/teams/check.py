"""Compare a cluster with the requirements of a teams file: one line each, with the remedy if it is not met."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal
from urllib.parse import urlsplit

from platform_sdk.config.cluster import BackendName
from platform_sdk.config.errors import UserError
from platform_sdk.config.pipeline import home
from platform_sdk.config.source import load_source
from platform_sdk.config.struct import Struct
from platform_sdk.config.teams import TeamsSpec
from platform_sdk.kubeflow.training_job import kueue
from platform_sdk.kubeflow.training_job.api import KUEUE_PATH, METADATA, Item, UnexpectedForm, expected_form
from platform_sdk.teams import jobs, queues
from platform_sdk.teams.cluster import Cluster, UnseenError
from platform_sdk.teams.render import SERVICES

KINDS: tuple[tuple[str, str, str], ...] = (
    (KUEUE_PATH, "clusterqueues", "install Kueue 0.15 or later"),
    ("/apis/kubeflow.org/v1", "profiles", "install Kubeflow's profile controller"),
)
JOB_KINDS: dict[BackendName, tuple[str, str]] = {
    "pytorchjob": ("/apis/kubeflow.org/v1", "pytorchjobs"),
    "trainjob": ("/apis/trainer.kubeflow.org/v1alpha1", "trainjobs"),
}
# DaemonSets of network plugins that enforce NetworkPolicy. Others may: then this one requirement is yours to check.
ENFORCING = ("antrea-agent", "calico-node", "canal", "cilium", "kube-router", "ovnkube-node", "weave-net", "anetd")
RUN_ACCESS = ("retriever-token", "log-token", "mlflow-username", "mlflow-password")
"""Keys of a team's Secret; without MLflow's where runs authenticate by their account."""
APPLY = "render the file and apply it: kubectl apply -k ."


class Requirement(Struct):
    """One requirement: met, not met with a remedy, or not seen with the reason."""

    name: str
    state: Literal["met", "unmet", "unseen"]
    found: str = ""
    remedy: str = ""


Found = Iterator[Requirement]


def check_cluster(spec: TeamsSpec, cluster: Cluster) -> list[Requirement]:
    """Return every requirement of the teams, in the order in which they are installed.

    Raises:
        UserError: the API server cannot be reached, or does not accept the credentials.
    """
    found: list[Requirement] = []
    parts: tuple[tuple[str, Callable[[TeamsSpec, Cluster], Found]], ...] = (
        ("versions and kinds", _kinds), ("Pipelines", _pipelines), ("Kueue's configuration", _frameworks),
        ("nodes", _nodes), ("storage class", _storage), ("network policies", _network), ("MLflow", _mlflow),
        ("Secrets", _secrets), ("quotas", _quotas), ("runtimes", _runtimes),
    )  # fmt: skip
    for name, part in parts:
        try:
            with expected_form("the API server's answer"):
                found += part(spec, cluster)
        except (UnseenError, UnexpectedForm) as error:
            found.append(Requirement(name=name, state="unseen", found=str(error)))
    return found


def _kinds(spec: TeamsSpec, cluster: Cluster) -> Found:
    version = (cluster.get("/version") or {}).get("gitVersion", "unknown")
    minor = [int(part) for part in str(version).lstrip("v").split(".")[:2] if part.isdigit()]
    # ValidatingAdmissionPolicy is v1 from 1.30.
    yield _requirement(
        "Kubernetes 1.30 or later", minor >= [1, 30], str(version), "admission policies need it: upgrade the cluster"
    )
    for group, plural, remedy in KINDS:
        yield _requirement(f"{plural} ({group.removeprefix('/apis/')})", _serves(cluster, group, plural), "", remedy)
    served = [name for name, (group, plural) in JOB_KINDS.items() if _serves(cluster, group, plural)]
    yield _requirement(
        "PyTorchJob or TrainJob",
        bool(served),
        ", ".join(served),
        "install the training-operator 1.9 or Kubeflow Trainer 2",
    )


def _serves(cluster: Cluster, group: str, plural: str) -> bool:
    resources = (cluster.get(group) or {}).get("resources") or ()
    return plural in [resource["name"] for resource in resources]


def _pipelines(spec: TeamsSpec, cluster: Cluster) -> Found:
    there = cluster.get("/api/v1/namespaces/kubeflow/services/ml-pipeline") is not None
    yield _requirement(
        "Kubeflow Pipelines", there, "", "there is no Service ml-pipeline in kubeflow: install Pipelines"
    )


def _frameworks(spec: TeamsSpec, cluster: Cluster) -> Found:
    path = f"/api/v1/namespaces/{kueue.NAMESPACE}/configmaps/{kueue.CONFIG_MAP}"
    text = ((cluster.get(path) or {}).get("data") or {}).get(kueue.KEY)
    if text is None:
        raise UnseenError(f"there is no ConfigMap {kueue.NAMESPACE}/{kueue.CONFIG_MAP} with {kueue.KEY}")
    kinds: list[BackendName] = [name for name, place in JOB_KINDS.items() if _serves(cluster, *place)]
    for backend in (*kinds, "job"):
        name = f"Kueue manages {kueue.framework(backend)}"
        try:
            managed = kueue.manages(text, backend)
        except UserError as error:
            yield Requirement(name=name, state="unmet", found=str(error), remedy="correct Kueue's configuration")
            continue
        yield _requirement(name, managed, "", kueue.remedy(backend))


def _nodes(spec: TeamsSpec, cluster: Cluster) -> Found:
    for name, pool in sorted(spec.pools.items()):
        selector = ",".join(f"{key}={value}" for key, value in sorted(pool.nodes.labels.items()))
        nodes = cluster.items("/api/v1/nodes", selector=selector)
        needed = {key: amount(value) for key, value in queues.amounts_of(pool, pool.count).items()}
        there = {
            key: sum((amount(node["status"].get("allocatable", {}).get(key, "0")) for node in nodes), Decimal(0))
            for key in needed
        }
        short = [key for key in needed if there[key] < needed[key]]
        shown = ", ".join(f"{_shown(key, there[key])} of {_shown(key, needed[key])} {key}" for key in needed)
        yield _requirement(
            f"pool {name}: {len(nodes)} nodes with {selector}",
            not short,
            shown,
            f"lower pools.{name}.count or per_gpu, or add nodes: too little {', '.join(short)}",
        )


def _storage(spec: TeamsSpec, cluster: Cluster) -> Found:
    classes = cluster.items("/apis/storage.k8s.io/v1/storageclasses")
    default = [
        item["metadata"]["name"]
        for item in classes
        if (item["metadata"].get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class") == "true"
    ]
    yield _requirement(
        "a default storage class",
        bool(default),
        ", ".join(default),
        "mark one whose volumes many nodes can write with storageclass.kubernetes.io/is-default-class: 'true'",
    )


def _network(spec: TeamsSpec, cluster: Cluster) -> Found:
    names = [item["metadata"]["name"] for item in cluster.items("/apis/apps/v1/daemonsets")]
    plugins = sorted({name for name in names for plugin in ENFORCING if name.startswith(plugin)})
    yield _requirement(
        "NetworkPolicies are enforced",
        bool(plugins),
        ", ".join(plugins),
        "no DaemonSet of a network plugin that is known to enforce them; install one, or make sure that yours does",
    )


def _mlflow(spec: TeamsSpec, cluster: Cluster) -> Found:
    if spec.mlflow == "kubernetes":
        name, namespace = str(urlsplit(spec.mlflow_service).hostname).split(".")[:2]
        there = cluster.get(f"/api/v1/namespaces/{namespace}/services/{name}") is not None
        remedy = "install Kubeflow's MLflow integration, or correct mlflow_service"
        yield _requirement(f"Service {name} of {namespace} (MLflow)", there, "", remedy)
        return
    found = cluster.get(f"/apis/apps/v1/namespaces/{SERVICES}/deployments/mlflow")
    ready = int(((found or {}).get("status") or {}).get("availableReplicas") or 0)
    yield _requirement(
        "MLflow is ready",
        ready > 0,
        f"{ready} pods available" if found else "there is no Deployment mlflow",
        f"kubectl apply -k .; kubectl -n {SERVICES} describe deployment mlflow",
    )
    if found:
        containers = found["spec"]["template"]["spec"]["containers"]
        words = [word for one in containers for word in (*(one.get("command") or ()), *(one.get("args") or ()))]
        text = " ".join(map(str, words))
        yield _requirement(
            "MLflow has workspaces",
            "--enable-workspaces" in text,
            "",
            "apply the rendered manifests again: this server was started without --enable-workspaces",
        )


def _secrets(spec: TeamsSpec, cluster: Cluster) -> Found:
    for name, team in sorted(spec.teams.items()):
        for secret in ("run-access", *sorted(team.secrets)):
            path = f"/api/v1/namespaces/{name}/secrets/{secret}"
            there = cluster.get(path, accept=METADATA) is not None
            keys = _run_access(spec) if secret == "run-access" else ("KEY",)
            files = " ".join(f"--from-file={key}=FILE" for key in keys)
            yield _requirement(
                f"Secret {secret} of {name}", there, "", f"kubectl -n {name} create secret generic {secret} {files}"
            )


def _run_access(spec: TeamsSpec) -> tuple[str, ...]:
    return tuple(key for key in RUN_ACCESS if spec.mlflow == "workspaces" or not key.startswith("mlflow"))


def _quotas(spec: TeamsSpec, cluster: Cluster) -> Found:
    for name, team in sorted(spec.teams.items()):
        found = cluster.get(f"{KUEUE_PATH}/clusterqueues/{name}")
        differing = [] if found is None else _differences(queues.cluster_queue(name, team, spec), found)
        yield _requirement(
            f"ClusterQueue {name} is as in the file",
            found is not None and not differing,
            "there is none" if found is None else "; ".join(differing),
            APPLY,
        )
        found = cluster.get(f"/api/v1/namespaces/{name}/resourcequotas/team")
        hard = [] if found is None else _unequal(jobs.quota(team, spec), (found["spec"].get("hard") or {}))
        yield _requirement(
            f"ResourceQuota team of {name} is as in the file",
            found is not None and not hard,
            "there is none" if found is None else "; ".join(hard),
            APPLY,
        )


def _runtimes(spec: TeamsSpec, cluster: Cluster) -> Found:
    group, plural = JOB_KINDS["trainjob"]
    if not _serves(cluster, group, plural):
        return
    template = load_source(home() / "pipelines/cluster.yaml").data
    for team in sorted(spec.teams):
        for runtime in jobs.training_runtimes(team, spec, template):
            name = runtime["metadata"]["name"]
            there = cluster.get(f"{group}/clustertrainingruntimes/{name}") is not None
            yield _requirement(f"ClusterTrainingRuntime {name}", there, "", "kubectl apply -k trainer")


def _differences(wanted: Item, found: Item) -> list[str]:
    """Return how quotas differ, by flavor, resource and field."""
    return _unequal(limits(wanted), limits(found))


def _unequal(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [
        f"{key}: {theirs.get(key)} where the file has {mine.get(key)}"
        for key in sorted(mine.keys() | theirs.keys())
        if amount(str(mine.get(key, -1))) != amount(str(theirs.get(key, -1)))
    ]


def limits(queue: Item) -> dict[str, Any]:
    """Return the quotas of a ClusterQueue as ``FLAVOR/RESOURCE/FIELD``."""
    return {
        f"{flavor['name']}/{resource['name']}/{field}": resource[field]
        for group in queue["spec"].get("resourceGroups") or ()
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        for field in ("nominalQuota", "borrowingLimit", "lendingLimit")
        if field in resource
    }


def amount(quantity: Any) -> Decimal:
    """Return the number of a Kubernetes quantity, e.g. ``1500m``, ``80Gi`` or ``1k``."""
    from kubernetes.utils import parse_quantity

    return Decimal(parse_quantity(quantity))


def _shown(resource: str, number: Decimal) -> str:
    return f"{float(number / 1024**3):.0f}Gi" if resource == "memory" else f"{float(number):g}"


def _requirement(name: str, met: bool, found: str, remedy: str) -> Requirement:
    return Requirement(name=name, state="met" if met else "unmet", found=found, remedy="" if met else remedy)
