"""Admission policy for accounts of runs: what they may create, in a team's namespace and in Pipelines' own."""

from __future__ import annotations

import copy
import shutil

import pytest

pytest.importorskip("cel", reason="the extra [dev] is not installed")

from platform_sdk.kubeflow.training_job import pytorchjob, trainjob
from tests.kubeflow.admission import EXTRACTION, JOB, STEP, Request, refusals, with_volume
from tests.kubeflow.rendered import Item, built

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

ACCOUNTS = ("default", "default-editor", "launcher", "pipeline-runner", "reaper")


def request_of(
    account: str, resource: str, namespace: str, item: Item | None = None, operation: str = "CREATE"
) -> Request:
    user = f"system:serviceaccount:{namespace}:{account}"
    return Request(item or {"kind": "Any", "metadata": {}}, resource, operation, user, namespace)


PLACES = [("overlays/single-node", "hopforge"), ("overlays/single-user", "kubeflow")]


@pytest.mark.parametrize(("variant", "namespace"), PLACES)
@pytest.mark.parametrize("account", ACCOUNTS)
def test_accounts_of_runs_create_only_jobs_and_records_of_argo(account: str, variant: str, namespace: str) -> None:
    """A Deployment's pods are created by a controller, as are a Workflow's: their creator tells nothing."""
    created = [f"apps/{plural}" for plural in ("deployments", "replicasets", "statefulsets", "daemonsets")] + [
        "batch/cronjobs",
        "/replicationcontrollers",
        "/pods",
        "argoproj.io/workflows",
        "kubeflow.org/tfjobs",
    ]
    for resource in created:
        for operation in ("CREATE", "UPDATE"):
            [message] = refusals(request_of(account, resource, namespace, STEP, operation), variant)
            assert "accounts of runs create and change only" in message, resource
    for resource in ("/pods/exec", "/pods/attach", "/pods/portforward"):
        assert len(refusals(request_of(account, resource, namespace, operation="CONNECT"), variant)) == 1
    for resource in ("argoproj.io/workflowtaskresults", "/persistentvolumeclaims"):
        assert refusals(request_of(account, resource, namespace), variant) == []
    for job in (EXTRACTION, pytorchjob.render(JOB), trainjob.render(JOB)):
        user = f"system:serviceaccount:{namespace}:{account}"
        assert refusals(Request(job, user=user, namespace=namespace), variant) == []


@pytest.mark.parametrize(("variant", "namespace"), PLACES)
def test_other_accounts_are_not_bound_by_the_rule_for_accounts_of_runs(variant: str, namespace: str) -> None:
    for user in (
        "user@example.com",
        "system:serviceaccount:kubeflow:argo",
        "system:serviceaccount:kube-system:deployment-controller",
        "system:serviceaccount:another:launcher",
    ):
        for resource in ("apps/deployments", "argoproj.io/workflows"):
            request = Request({"kind": "Any"}, resource, user=user, namespace=namespace)
            assert refusals(request, variant) == []


@pytest.mark.parametrize(("variant", "namespace"), PLACES)
@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_job_without_the_label_of_runs_is_examined_if_an_account_of_runs_creates_it(
    account: str, variant: str, namespace: str
) -> None:
    item = copy.deepcopy(EXTRACTION)
    del item["metadata"]["labels"]
    with_volume(hostPath={"path": "/"})(item["spec"]["template"]["spec"])
    [message] = refusals(request_of(account, "batch/jobs", namespace, item), variant)
    assert "volumes" in message


def test_roles_of_runs_create_and_change_only_admitted_resources() -> None:
    """The policy admits all that a Role lets the accounts of runs write."""
    written = {
        f"{group}/{plural}"
        for item in built("base/team")
        if item["kind"] == "Role"
        for rule in item["rules"]
        if {"create", "patch", "update"} & set(rule["verbs"])
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    assert "batch/jobs" in written
    for resource in written:
        assert refusals(request_of("launcher", resource, "hopforge", STEP, "UPDATE")) == [], resource
