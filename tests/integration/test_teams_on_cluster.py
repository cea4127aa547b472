"""Teams on a real Kubernetes with Kueue: applied twice, and a member of one team is refused everything of the other.

KUBECONFIG may create namespaces and cluster-wide objects and impersonate users. Two namespaces, their queues and the
admission policies of runs are made, tried, and deleted again; a cluster that has these policies already is skipped.
Kinds that the cluster does not serve (Profiles, AuthorizationPolicies of Istio, operators) are left out, and
services, which need images, are not applied. The teams share two GPUs of a resource of the tests' own, which a node
is made to advertise; jobs run `sleep` in ``HOPFORGE_TEST_IMAGE`` (by default busybox) if Kueue manages batch Jobs.
Without KUBECONFIG these tests skip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from ruamel.yaml import YAML

from platform_sdk.config.cluster import ClusterSpec, JobSpec, Workspace
from platform_sdk.config.teams import TeamsSpec
from platform_sdk.diagnosis.explain import explain
from platform_sdk.diagnosis.facts import Facts
from platform_sdk.kubeflow.training_job.api import connect
from platform_sdk.kubeflow.training_job.facts import observed
from platform_sdk.planning.admission import fits
from platform_sdk.planning.checks import Site
from platform_sdk.planning.jobs import PlannedJob
from platform_sdk.teams.cluster import Cluster
from platform_sdk.teams.status import read_status
from tests.process_watch import wait_for
from tests.teams.files import Item, kustomized, render

pytestmark = [
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="KUBECONFIG names no cluster"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

ONE, OTHER = "hopforge-test-one", "hopforge-test-other"
MEMBER, AUDITOR = "ann@hopforge.test", "carla@hopforge.test"
SERVICES = "hopforge-services"
GPU, LABEL = "hopforge.test/gpu", "hopforge.test/pool"
IMAGE = os.environ.get("HOPFORGE_TEST_IMAGE", "busybox:1.36")
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
            "resource": GPU,
            "count": 2,
            "per_gpu": {"cpu": 1, "memory": "1Gi"},
            "nodes": {"labels": {LABEL: "test"}},
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
                    "limits": {"cpu": "10m", "memory": "16Mi", GPU: "1"},
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
    if there:
        pytest.skip(f"the cluster has hopforge's policies already, which this test would overwrite: {', '.join(there)}")
    path = folder / "known.yaml"
    with path.open("w") as stream:
        YAML(typ="safe").dump_all(items, stream)
    whole = folder / "whole"
    whole.mkdir()
    shutil.move(path, whole / path.name)
    (whole / "kustomization.yaml").write_text(f"resources: [{path.name}]\n")
    try:
        done = kubectl("apply", "-k", str(whole))
        assert done.returncode == 0, done.stderr
        yield whole
    finally:
        kubectl("delete", "--ignore-not-found", "--wait=false", "-f", str(whole / path.name))


def test_second_apply_changes_nothing(applied: Path) -> None:
    done = kubectl("diff", "-k", str(applied))
    assert done.returncode == 0, done.stdout
    again = kubectl("apply", "-k", str(applied))
    assert again.returncode == 0, again.stderr
    assert [line for line in again.stdout.splitlines() if not line.endswith(" unchanged")] == []


@pytest.mark.parametrize("verb", ["get", "list", "create", "delete", "patch"])
@pytest.mark.parametrize(
    "kind", ["pods", "secrets", "jobs.batch", "persistentvolumeclaims", "workloads.kueue.x-k8s.io"]
)
def test_member_of_one_team_is_refused_everything_of_the_other(applied: Path, verb: str, kind: str) -> None:
    assert kubectl("auth", "can-i", verb, kind, "-n", OTHER, f"--as={MEMBER}").stdout.strip() == "no"


def test_member_has_no_right_in_the_other_team_but_what_everybody_may_ask_about_themselves(applied: Path) -> None:
    listed = kubectl("auth", "can-i", "--list", "--no-headers", "-n", OTHER, f"--as={MEMBER}").stdout.splitlines()
    everybodys = (" ", "self", "clusterqueues", "cohorts", "resourceflavors", "workloadpriorityclasses")
    assert [line for line in listed if not line.startswith(everybodys)] == []


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
    assert "only the operator of a job may create a pod with GPUs" in done.stderr


@pytest.fixture
def node(applied: Path) -> Iterator[str]:
    """A node of the pool that advertises two GPUs; skip if Kueue does not manage batch Jobs."""
    configuration = kubectl("-n", "kueue-system", "get", "configmap", "kueue-manager-config", "-o", "yaml").stdout
    if "batch/job" not in configuration:
        pytest.skip("Kueue does not manage batch Jobs on this cluster")
    name = kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}").stdout
    key = GPU.replace("/", "~1")
    advertised = [{"op": "add", "path": f"/status/capacity/{key}", "value": "2"}]
    done = kubectl("patch", "node", name, "--subresource=status", "--type=json", f"-p={json.dumps(advertised)}")
    assert done.returncode == 0, done.stderr
    assert kubectl("label", "node", name, f"{LABEL}=test", "--overwrite").returncode == 0
    try:
        yield name
    finally:
        removed = [{"op": "remove", "path": f"/status/capacity/{key}"}]
        kubectl("patch", "node", name, "--subresource=status", "--type=json", f"-p={json.dumps(removed)}")
        kubectl("label", "node", name, f"{LABEL}-")


def job(namespace: str, name: str, seconds: int) -> Item:
    """A job with a GPU in the team's queue."""
    container = POD["spec"]["containers"][0] | {"image": IMAGE, "command": ["sleep", str(seconds)]}
    container["resources"] = container["resources"] | {
        "requests": container["resources"]["requests"] | {GPU: "1"},
    }
    labels = {"kueue.x-k8s.io/queue-name": "default", "kueue.x-k8s.io/priority-class": "hopforge-test-usual"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "suspend": True,
            "template": {"spec": POD["spec"] | {"containers": [container], "restartPolicy": "Never"}},
        },
    }


def condition(kind: str, namespace: str, owner: str, type_: str) -> bool:
    """Return whether a condition of a job, or of its Workload, holds."""
    items = json.loads(kubectl("-n", namespace, "get", kind, "-o", "json").stdout)["items"]
    return any(
        one["type"] == type_ and one["status"] == "True"
        for item in items
        if owner in (item["metadata"]["name"], *(o["name"] for o in item["metadata"].get("ownerReferences", ())))
        for one in item.get("status", {}).get("conditions", ())
    )


def facts_of(namespace: str, name: str) -> Facts:
    """Return what `explain` collects about a job."""
    found = json.loads(kubectl("-n", namespace, "get", "job", name, "-o", "json").stdout)
    workloads = json.loads(kubectl("-n", namespace, "get", "workloads", "-o", "json").stdout)["items"]
    own = [w for w in workloads if name in [o["name"] for o in w["metadata"].get("ownerReferences", ())]]
    return Facts(run=name, place="cluster", state="RUNNING", jobs=(observed(found, own[0] if own else None, []),))


def verdict(namespace: str) -> str:
    """Return whether one more job with a GPU fits into the team's queue, as `plan` says."""
    cluster = ClusterSpec(
        workspace=Workspace(claim="workspace"), launcher_image=IMAGE, job=JobSpec(image=IMAGE, queue="default")
    )
    planned = PlannedJob(
        step="train", name="j", kind="TrainJob", pods=1, requests={"cpu": 0.01, "memory": 2.0**24, GPU: 1.0}, gpus=1,
        queue="default", priority=None,
    )  # fmt: skip
    [found] = fits(Site(connect(), namespace, cluster), [planned])
    return found.verdict


def test_jobs_borrow_are_reclaimed_resume_and_finish(node: str) -> None:
    spec = TeamsSpec.model_validate(CONTENT)

    def usage() -> dict[str, tuple[int, int, tuple[int, int]]]:
        return {team.team: (team.used, team.borrowed, team.lent) for team in read_status(spec, Cluster.here()).teams}

    assert (verdict(ONE), verdict(OTHER)) == ("now", "now")
    for name in ("own", "borrows"):
        assert kubectl("create", "-f", "-", given=job(ONE, name, 60)).returncode == 0
    wait_for(lambda: usage() == {ONE: (2, 1, (0, 0)), OTHER: (0, 0, (1, 1))}, seconds=180)
    assert verdict(ONE) == "waits"
    assert kubectl("create", "-f", "-", given=job(OTHER, "reclaims", 20)).returncode == 0
    evicted = lambda: [n for n in ("own", "borrows") if condition("workloads", ONE, n, "Evicted")]  # noqa: E731
    wait_for(lambda: len(evicted()) == 1, seconds=180)
    [back] = evicted()
    first = explain(facts_of(ONE, back)).findings[0]
    assert first.rule in ("preempted", "queued_WaitingForQuota", "queued_unknown")
    wait_for(lambda: usage()[OTHER] == (1, 0, (0, 0)), seconds=180)
    for namespace, name in ((OTHER, "reclaims"), (ONE, "own"), (ONE, "borrows")):
        wait_for(partial(condition, "jobs", namespace, name, "Complete"), seconds=300)
    wait_for(lambda: usage() == {ONE: (0, 0, (0, 0)), OTHER: (0, 0, (0, 0))}, seconds=180)
