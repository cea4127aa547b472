"""Requests of the manifests to a cluster: the table of docs/cluster.md, computed from the rendered overlays.

``python -m tests.kubeflow.sizes`` rewrites it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubernetes.utils.quantity import parse_quantity

from tests.kubeflow.rendered import MANIFESTS, WORKLOADS, Item, built, template_of

PAGE = MANIFESTS.parent / "docs/cluster.md"
BEGIN, END = "<!-- sizes: written by python -m tests.kubeflow.sizes -->\n", "<!-- end of sizes -->\n"
SHOWN = ("two-core", "single-node", "production")
MIB = 2**20
CONTROLLERS = {"jobset-controller-manager": 500, "kueue-controller-manager": 500}
"""Thousandths of a core that JobSet's controller, which Trainer 2 installs, and Kueue's request as installed."""


@dataclass(frozen=True)
class Amounts:
    """Requests of CPU, in thousandths of a core, and of memory, in MiB."""

    cpu: int = 0
    memory: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu + other.cpu, self.memory + other.memory)

    def __str__(self) -> str:
        return f"{self.cpu / 1000:g} / {self.memory / 1024:.2f} Gi"


def of_pod(template: Item) -> Amounts:
    """Return what a scheduler counts: all containers together, or the largest one that runs before them."""
    spec = template["spec"]
    together = [_requests(one) for one in spec["containers"]]
    before = [_requests(one) for one in spec.get("initContainers", ())]
    total = sum(together, Amounts())
    return Amounts(max([total.cpu, *(a.cpu for a in before)]), max([total.memory, *(a.memory for a in before)]))


def _requests(container: Item) -> Amounts:
    requests = container["resources"]["requests"]
    return Amounts(int(parse_quantity(requests["cpu"]) * 1000), int(parse_quantity(requests["memory"]) / MIB))


def replicas(items: tuple[Item, ...], item: Item) -> int:
    """Return the minimum number of pods; KEDA's minimum, where that says it."""
    for scaled in items:
        if scaled["kind"] == "ScaledObject" and scaled["spec"]["scaleTargetRef"]["name"] == item["metadata"]["name"]:
            return int(scaled["spec"]["minReplicaCount"])
    return int(item["spec"].get("replicas", 1))


def sizes(variant: str) -> dict[tuple[bool, str], Amounts]:
    """Return the requests of all pods by workload, and by whether it stands or ends soon."""
    items, found = built(f"overlays/{variant}"), dict[tuple[bool, str], Amounts]()
    for item in items:
        count = replicas(items, item) if item["kind"] in WORKLOADS else 0
        if count:
            key = item["kind"] in ("Deployment", "StatefulSet"), item["metadata"]["name"]
            found[key] = found.get(key, Amounts()) + sum([of_pod(template_of(item))] * count, Amounts())
    return found


def table() -> str:
    """The table as Markdown."""
    columns = {variant: sizes(variant) for variant in SHOWN}
    rows = [("", *(f"`{variant}`" for variant in SHOWN)), ("---",) * (len(SHOWN) + 1)]
    for stands, title in ((True, "**permanent pods, total**"), (False, "**temporary jobs, total**")):
        names = sorted({name for found in columns.values() for standing, name in found if standing is stands})
        for name in names:
            rows.append((f"`{name}`", *(str(found.get((stands, name), "")) for found in columns.values())))
        totals = (sum((a for (s, _), a in found.items() if s is stands), Amounts()) for found in columns.values())
        rows.append((title, *(f"**{total}**" for total in totals)))
    for name, cpu in CONTROLLERS.items():
        rows.append((f"`{name}`, where installed", *(f"{cpu / 1000:g}" for _ in SHOWN)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def written() -> tuple[str, str, str]:
    """The page: before the table, the table, behind it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    inner, _, behind = rest.partition(END)
    return before + BEGIN, inner, END + behind


if __name__ == "__main__":
    before, _, behind = written()
    PAGE.write_text(before + table() + behind)
