"""API server with the objects that a plan reads: queues, Secrets, claims, priorities, and access reviews."""

from __future__ import annotations

from typing import Any

from tests.kubeflow.training_job.api_server import ApiServer

Item = dict[str, Any]
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/"
VERSIONS = {"kueue.x-k8s.io": ["localqueues", "clusterqueues", "cohorts", "workloads"]}


class PlanServer(ApiServer):
    """Use as its base. A path in ``forbidden`` is refused as the authorizer refuses it."""

    def __init__(self) -> None:
        super().__init__()
        self.forbidden: set[str] = set()
        self.refusal: tuple[int, str, str] | None = None  # of dry runs
        self.dry_runs: list[Item] = []

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if path in self.forbidden:
            self.requests.append((method, path))
            return _status(403, "Forbidden", f'User "ann" cannot get {path}')
        if fault := self.fault(method, path):
            self.requests.append((method, path))
            return _status(fault[0], fault[1])
        core = "/api/v1/namespaces/team-a"
        if path.startswith((KUEUE, RUNTIMES, f"{core}/secrets", f"{core}/persistent")):
            self.requests.append((method, path))
            if path == KUEUE:
                return 200, {"resources": [{"name": name} for name in VERSIONS["kueue.x-k8s.io"]]}
            if path == f"{KUEUE}/clusterqueues":
                items = [item for one, item in self.paths.items() if one.startswith(f"{path}/")]
                return 200, {"items": items}
            found = self.paths.get(path)
            return (200, found) if found else _status(404, "NotFound", f"{path} not found")
        if method == "POST" and query.get("dryRun") == "All":
            self.dry_runs.append(body)
            if self.refusal:
                return _status(*self.refusal)
        return super().answer(method, path, query, body)

    def add_queue(self, name: str, item: Item) -> None:
        self.paths[f"{KUEUE}/clusterqueues/{name}"] = item


def cluster_queue(
    name: str, gpus: Item, *, used: str = "0", cohort: str = "", cpu: str = "500", memory: str = "4Ti", **spec: Any
) -> Item:
    """Return a ClusterQueue as Kueue 0.19 shows it; ``gpus`` is its quota of GPUs."""
    quotas: list[Item] = [
        {"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": memory},
        {"name": "nvidia.com/gpu", **gpus},
    ]  # fmt: skip
    usage = [{"name": one["name"], "borrowed": "0", "total": "0"} for one in quotas[:2]]
    usage.append({"name": "nvidia.com/gpu", "borrowed": "0", "total": used})
    return {
        "metadata": {"name": name},
        "spec": {
            "queueingStrategy": "BestEffortFIFO", "stopPolicy": "None",
            **({"cohortName": cohort} if cohort else {}), **spec,
            "resourceGroups": [
                {
                    "coveredResources": [one["name"] for one in quotas],
                    "flavors": [{"name": "gpu", "resources": quotas}],
                }
            ],
        },
        "status": {
            "pendingWorkloads": 0, "flavorsReservation": [{"name": "gpu", "resources": usage}],
            "conditions": [{"type": "Active", "status": "True", "message": "Can admit new workloads"}],
        },
    }  # fmt: skip


def _status(code: int, reason: str, message: str = "") -> tuple[int, Item]:
    return code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
