"""Overlays as combinations of components: queues, sizes, and the team's namespace."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.kubeflow.rendered import MANIFESTS, OVERLAYS, built, the, workloads

PIPELINES = "kubeflow"  # the namespace of Kubeflow Pipelines

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def test_kueue_objects_are_only_in_the_overlays_for_kueue() -> None:
    group = {v: [i for i in built(v) if i["apiVersion"].startswith("kueue.x-k8s.io/")] for v in OVERLAYS}
    wanted = {"overlays/single-node-kueue", "overlays/single-user-kueue", "overlays/production"}
    assert {v for v in OVERLAYS if group[v]} == wanted
    for variant in wanted:
        items = tuple(group[variant])
        queue = the(items, "LocalQueue", "hopforge")
        quota = the(items, "ClusterQueue", queue["spec"]["clusterQueue"])["spec"]
        assert {flavor["name"] for part in quota["resourceGroups"] for flavor in part["flavors"]} == {
            item["metadata"]["name"] for item in items if item["kind"] == "ResourceFlavor"
        }
        # The queue is where the launchers' account is, whatever namespace an overlay gives the team.
        namespace = the(built(variant), "ServiceAccount", "launcher")["metadata"]["namespace"]
        assert namespace == (PIPELINES if "single-user" in variant else "hopforge")
        assert queue["metadata"]["namespace"] == namespace
        assert quota["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


def test_components_of_one_machine_combine_in_one_overlay(tmp_path: Path) -> None:
    """A single user's Pipelines on two cores with a queue, as docs/cluster.md composes it."""
    page = (MANIFESTS.parent / "docs/cluster.md").read_text()
    [text] = re.findall(r"```yaml\n(apiVersion: kustomize.*?)```", page, re.DOTALL)
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/kustomization.yaml").write_text(text)
    items = built(str(tmp_path / "mine"))
    assert the(items, "LocalQueue", "hopforge")["metadata"]["namespace"] == PIPELINES
    sizes = {v: dict(workloads(built(f"overlays/{v}")))["milvus"] for v in ("two-core", "single-user-two-core")}
    assert dict(workloads(items))["milvus"] == sizes["two-core"] == sizes["single-user-two-core"]
