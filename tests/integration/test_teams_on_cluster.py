"""Teams on a real Kubernetes with Kueue: applied twice, and a member of one team is refused everything of the other.

KUBECONFIG may create namespaces and cluster-wide objects and impersonate users. Two namespaces, their queues and the
admission policies of runs are made, tried, and deleted again. Kinds that the cluster does not serve (Profiles,
AuthorizationPolicies of Istio, operators) are left out, and services, which need images, are not applied. Without
KUBECONFIG these tests skip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.teams.files import Item, kustomized, render

pytestmark = [
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="KUBECONFIG names no cluster"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

ONE, OTHER = "hopforge-test-one", "hopforge-test-other"
MEMBER, AUDITOR = "ann@hopforge.test", "carla@hopforge.test"
SERVICES = "hopforge-services"
TEAM: Item = {
    "gpus": {"test-pool": {"nominal": 1, "borrow": 1}},
    "job": {"pool": "test-pool", "gpus": 1},
    "priorities": {"default": "hopforge-test-usual"},
    "collections": ["hotpotqa"],
    "storage": "1Gi",
}
CONTENT: Item = {
    "pools": {
        "test-pool": {
            "count": 2,
            "per_gpu": {"cpu": 1, "memory": "1Gi"},
            "nodes": {"labels": {"hopforge.test/pool": "test"}},
        }
    },
    "teams": {
        ONE: TEAM | {"members": {"admin": ["owner@hopforge.test"], "edit": [MEMBER]}},
        OTHER: TEAM | {"members": {"admin": ["dan@hopforge.test"]}},
    },
    "priorities": {"hopforge-test-usual": 100},
    "auditors": [AUDITOR],
}
POD: Item = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "taken"},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "main",
                "image": "registry.k8s.io/pause:3.10",
                "resources": {
                    "requests": {"cpu": "10m", "memory": "16Mi"},
                    "limits": {"cpu": "10m", "memory": "16Mi", "nvidia.com/gpu": "1"},
                },
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}


def kubectl(*arguments: str, given: Item | None = None) -> subprocess.CompletedProcess[str]:
    text = None if given is None else json.dumps(given)
    return subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, timeout=180)


def served(items: tuple[Item, ...]) -> list[Item]:
    """The objects of kinds that the cluster knows, without services and without what is there for all teams."""
    kinds = {(item["apiVersion"], item["kind"]) for item in items}
    known = {(v, k) for v, k in kinds if not kubectl("explain", k, f"--api-version={v}").returncode}
    return [
        item
        for item in items
        if (item["apiVersion"], item["kind"]) in known
        and item["metadata"].get("namespace") != SERVICES
        and item["metadata"]["name"] not in (SERVICES, "hopforge")  # its namespace, and the cohort of real teams
        and item["kind"] not in ("Job", "CronJob", "PriorityClass", "ClusterRole", "ClusterRoleBinding")
    ]


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("teams")
    render(CONTENT, folder)
    items = served(kustomized(folder))
    policies = [item for item in items if item["kind"].startswith("ValidatingAdmissionPolicy")]
    there = [i["metadata"]["name"] for i in policies if not kubectl("get", i["kind"], i["metadata"]["name"]).returncode]
    path = folder / "known.yaml"
    with path.open("w") as stream:
        YAML(typ="safe").dump_all(items, stream)
    mine = folder / "mine.yaml"  # what is deleted again: policies that were there stay
    with mine.open("w") as stream:
        YAML(typ="safe").dump_all([i for i in items if i["metadata"]["name"] not in there], stream)
    try:
        done = kubectl("apply", "-f", str(path))
        assert done.returncode == 0, done.stderr
        yield path
    finally:
        kubectl("delete", "--ignore-not-found", "--wait=false", "-f", str(mine))


def test_second_apply_changes_nothing(applied: Path) -> None:
    done = kubectl("diff", "-f", str(applied))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("verb", ["get", "list", "create", "delete", "patch"])
@pytest.mark.parametrize(
    "kind", ["pods", "secrets", "jobs.batch", "persistentvolumeclaims", "workloads.kueue.x-k8s.io"]
)
def test_member_of_one_team_is_refused_everything_of_the_other(applied: Path, verb: str, kind: str) -> None:
    assert kubectl("auth", "can-i", verb, kind, "-n", OTHER, f"--as={MEMBER}").stdout.strip() == "no"


@pytest.mark.parametrize("kind", ["pods", "secrets", "configmaps"])
def test_real_request_to_the_other_team_is_refused(applied: Path, kind: str) -> None:
    done = kubectl("get", kind, "-n", OTHER, f"--as={MEMBER}")
    assert done.returncode != 0
    assert "forbidden" in done.stderr


@pytest.mark.parametrize("verb", ["create", "delete", "patch"])
def test_auditor_changes_nothing(applied: Path, verb: str) -> None:
    for namespace in (ONE, OTHER):
        assert kubectl("auth", "can-i", verb, "pods", "-n", namespace, f"--as={AUDITOR}").stdout.strip() == "no"


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": {"training.kubeflow.org/job-name": "real"}},
        {
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "real", "uid": "1f0c0a5e-0000-4000-8000-000000000000"}
            ]
        },
    ],
    ids=["bare", "labelled", "owned"],
)
def test_gpu_pod_without_an_operator_is_refused(applied: Path, metadata: Item) -> None:
    pod = POD | {"metadata": POD["metadata"] | metadata}
    done = kubectl("create", "-n", ONE, "--dry-run=server", "-f", "-", given=pod)
    assert done.returncode != 0
    assert "created by the operator of a job only" in done.stderr
