"""Requests of the manifests: as docs/cluster.md says, and with room for runs."""

from __future__ import annotations

import re
import shutil

import pytest

pytest.importorskip("kubernetes", reason="the extra [cluster] is not installed")

from kubernetes.utils.quantity import parse_quantity
from ruamel.yaml import YAML

from platform_sdk.config.cluster import ClusterSpec
from tests.kubeflow.rendered import MANIFESTS
from tests.kubeflow.sizes import CONTROLLERS, PAGE, Amounts, of_pod, sizes, table, written

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def test_the_documented_sizes_are_those_of_the_manifests() -> None:
    assert written()[1] == table(), "python -m tests.kubeflow.sizes rewrites the table"


def test_a_pod_asks_for_its_containers_or_for_the_largest_before_them() -> None:
    def container(cpu: str, memory: str) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu, "memory": memory}}}

    pod = {
        "containers": [container("100m", "1Gi"), container("1", "64Mi")],
        "initContainers": [container("2", "128Mi")],
    }
    assert of_pod({"spec": pod}) == Amounts(2000, 1088)


def test_a_two_core_node_has_room_for_a_run() -> None:
    """All pods together, short-lived ones too, leave a core, which is enough for a step and its job."""
    left = 2000 - sum(sizes("two-core").values(), Amounts()).cpu
    assert left >= 1000
    needed = run_on_two_cores()
    assert needed <= 1000
    # With the controllers of Trainer 2 and Kueue as installed there is no room, with the documented requests there is.
    installed = re.findall(r"set resources deployment/(\S+) --requests=cpu=(\d+)m", PAGE.read_text())
    assert {name for name, _ in installed} == CONTROLLERS.keys()
    assert left - sum(CONTROLLERS.values()) < needed
    assert left - sum(int(cpu) for _, cpu in installed) >= needed


def run_on_two_cores() -> float:
    """Thousandths of a core that a step's pod and its job request, as documented for two cores."""
    [snippet] = re.findall(r"```yaml\n(launcher:.*?)```", PAGE.read_text(), re.DOTALL)
    shipped = YAML(typ="safe").load(MANIFESTS.parent / "pipelines/cluster.yaml")
    small = YAML(typ="safe").load(snippet)
    del shipped["job"]["sampler"]
    spec = ClusterSpec.model_validate(shipped | small | {"job": shipped["job"] | small["job"]})
    assert spec.job.resources.gpus == 0
    return 1000 * float(parse_quantity(spec.launcher.cpu) + parse_quantity(spec.job.resources.cpu))
