"""Admission policy for runs, what it allows and refuses: its CEL expressions, evaluated on pods and jobs.

The evaluator knows CEL's standard; that the API server compiles the expressions, ``tests/integration`` shows.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cel", reason="the extra [dev] is not installed")

from platform_sdk.kubeflow.training_job import indexedjob, pytorchjob, trainjob
from tests.kubeflow.admission import EXTRACTION, JOB, SERVED, STEP, Change, Request, policies, with_volume
from tests.kubeflow.admission import refusals as refusals_of
from tests.kubeflow.rendered import OVERLAYS, Item, built, pods

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def policy(variant: str = "overlays/single-node") -> Item:
    [found] = [
        item["spec"]
        for item in built(variant)
        if item["kind"] == "ValidatingAdmissionPolicy" and item["metadata"]["name"] == "hopforge-runs"
    ]
    return found


def refusals(item: Item, annotation: str | None = None, user: str = "anybody", variant: str = "base") -> list[str]:
    return refusals_of(Request(item, user=user, allowed_secrets=annotation), variant)


@pytest.mark.parametrize(
    "item",
    [STEP, EXTRACTION, *(kind.render(job) for kind in (pytorchjob, trainjob) for job in (JOB, SERVED))],
    ids=["step", "extraction", "pytorchjob", "pytorchjob with a server", "trainjob", "trainjob with a server"],
)
def test_objects_of_runs_are_admitted(item: Item) -> None:
    assert refusals(item) == []


def test_pods_of_the_manifests_beside_runs_are_admitted() -> None:
    own = [template for namespace, _, template in pods(built("base/team")) if namespace == "hopforge"]
    assert len(own) == 2
    for template in (*own, *built("loader")):
        assert refusals({"kind": "Pod", "spec": template["spec"]}) == []


def test_the_policy_looks_at_every_kind_that_a_launcher_may_create() -> None:
    [role] = [i for i in built("base/team") if i["kind"] == "Role" and i["metadata"]["name"] == "launcher"]
    created = {kind for rule in role["rules"] if "create" in rule["verbs"] for kind in rule["resources"]}
    looked_at = {
        kind
        for rule in policy()["matchConstraints"]["resourceRules"]
        if "CREATE" in rule["operations"]
        for kind in rule["resources"]
    }
    assert {"jobs", "pytorchjobs", "trainjobs"} <= created
    assert created - looked_at <= {"events"}


def with_env(**variable: Any) -> Change:
    return lambda pod: pod["containers"][0].setdefault("env", []).append({"name": "X", **variable})


def with_values(**values: Any) -> Change:
    return lambda pod: pod.update(values)


def with_container(kind: str, **values: Any) -> Change:
    return lambda pod: pod.setdefault(kind, []).append({"name": "x", **values})


def with_program(**values: Any) -> Change:
    return lambda pod: pod.setdefault("initContainers", []).append({"name": "program", **values})


SECRET = {"secretKeyRef": {"name": "milvus", "key": "token"}}
ACCESS = {"secretKeyRef": {"name": "run-access", "key": "token"}}
BAD: list[tuple[str, Change, str]] = [
    ("a variable", with_env(valueFrom=SECRET), "run-access"),
    ("all variables", with_container("containers", envFrom=[{"secretRef": {"name": "milvus"}}]), "run-access"),
    ("before", with_container("initContainers", env=[{"name": "X", "valueFrom": SECRET}]), "run-access"),
    ("beside", with_container("ephemeralContainers", env=[{"name": "X", "valueFrom": SECRET}]), "run-access"),
    ("a volume", with_volume(secret={"secretName": "milvus"}), "run-access"),
    ("projected", with_volume(projected={"sources": [{"secret": {"name": "milvus"}}]}), "run-access"),
    ("part of a name", with_volume(secret={"secretName": "run"}), "run-access"),
    ("a host's path", with_volume(hostPath={"path": "/"}), "volumes"),
    ("a driver's", with_volume(csi={"driver": "x", "nodePublishSecretRef": {"name": "milvus"}}), "volumes"),
    ("ceph's", with_volume(cephfs={"monitors": [], "secretRef": {"name": "milvus"}}), "volumes"),
    ("an account", with_values(serviceAccountName="admin"), "accounts"),
    ("an account of old", with_values(serviceAccount="admin"), "accounts"),
    ("the network", with_values(hostNetwork=True), "node"),
    ("the processes", with_values(hostPID=True), "node"),
    ("ipc", with_values(hostIPC=True), "node"),
    ("privileged", with_container("containers", securityContext={"privileged": True}), "node"),
    ("a port", with_container("containers", ports=[{"containerPort": 1, "hostPort": 22}]), "node"),
    ("a program's variable", with_program(env=[{"name": "X", "valueFrom": ACCESS}]), "the container program"),
    ("a program's variables", with_program(envFrom=[{"configMapRef": {"name": "x"}}]), "the container program"),
    ("a program's volume", with_program(volumeMounts=[{"name": "data", "mountPath": "/x"}]), "the container program"),
]


@pytest.mark.parametrize(("change", "said"), [one[1:] for one in BAD], ids=[one[0] for one in BAD])
@pytest.mark.parametrize("kind", ["Pod", "Job", "PyTorchJob", "TrainJob"])
def test_forbidden_pod_fields_are_refused(kind: str, change: Change, said: str) -> None:
    item = copy.deepcopy(
        {
            "Pod": STEP,
            "Job": EXTRACTION,
            "PyTorchJob": pytorchjob.render(JOB),
            "TrainJob": trainjob.render(JOB),
        }[kind]
    )
    if kind == "Pod":
        pod = item["spec"]
    elif kind == "Job":
        pod = item["spec"]["template"]["spec"]
    elif kind == "PyTorchJob":
        [role] = item["spec"]["pytorchReplicaSpecs"].values()
        pod = role["template"]["spec"]
    else:
        [patch] = item["spec"]["runtimePatches"]
        [replicated] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        pod = replicated["template"]["spec"]["template"]["spec"]
    change(pod)
    [message] = refusals(item)
    assert said in message


def test_a_trainjob_hides_no_secret_elsewhere() -> None:
    for change in (
        {"trainer": {"image": "i", "env": [{"name": "X", "valueFrom": SECRET}]}},
        {"initializer": {"model": {"secretRef": {"name": "milvus"}}}},
        {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"serviceAccountName": "admin"}}]},
    ):
        item = trainjob.render(JOB)
        assert len(refusals(item | {"spec": item["spec"] | change})) == 1


def test_a_job_names_no_account_not_even_a_steps() -> None:
    item = pytorchjob.render(JOB)
    for role in item["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["serviceAccountName"] = "default-editor"
    [message] = refusals(item)
    assert "a job names none" in message


@pytest.mark.parametrize(("annotation", "taken"), [("hugging-face", True), ("a,hugging-face,b", True), ("face", False)])
def test_the_namespace_lists_further_secrets(annotation: str, taken: bool) -> None:
    item = copy.deepcopy(STEP)
    with_volume(secret={"secretName": "hugging-face"})(item["spec"])
    assert (refusals(item, annotation) == []) is taken
    assert len(refusals(item)) == 1


def test_admission_policy_in_kubeflow_namespace_applies_only_to_runs() -> None:
    database = {"kind": "Pod", "spec": {"containers": [{"name": "mysql", "env": [{"name": "X", "valueFrom": SECRET}]}]}}
    labelled = database | {"metadata": {"labels": {"hopforge.dev/task": "t"}}}
    variant = "overlays/single-user"
    assert refusals(database, variant=variant) == []
    assert len(refusals(labelled, variant=variant)) == 1
    assert len(refusals(database)) == 1


RECORDED = Path(__file__).parent / "recorded/admission"
REQUESTS = json.loads((RECORDED / "requests.json").read_text())


@pytest.mark.parametrize("recorded", REQUESTS, ids=[one["name"] for one in REQUESTS])
def test_recorded_request_gets_the_recorded_answer(recorded: Item) -> None:
    """Kubernetes 1.34 answered these 35 requests; an admitted object is recorded with the server's defaults."""
    if recorded["code"] == 400:
        pytest.skip("Trainer 2.3 does not know the field, so the request never came to the policy")
    said = refusals_of(Request(recorded["object"], namespace="kubeflow"), "overlays/single-user")
    if recorded["code"] == 201:
        assert said == []
    else:
        [message] = said
        assert recorded["message"].endswith(f"denied request: {message}")


@pytest.mark.parametrize("variant", OVERLAYS)
def test_expressions_have_no_field_that_the_recorded_type_checking_misses(variant: str) -> None:
    """An API server checks each expression against each matched kind, unless it is dynamic."""
    warnings = json.loads((RECORDED / "type-checking.json").read_text())["expressionWarnings"]
    missing = {name for one in warnings for name in re.findall(r"undefined field '(\w+)'", one["warning"])}
    assert missing == {"initializer", "podTemplateOverrides"}
    for rules in policies(built(variant)):
        for one in rules["validations"]:
            assert not set(re.findall(r"\bobject\.spec\.(\w+)", one["expression"])) & missing, one["expression"]


@pytest.mark.parametrize("variant", OVERLAYS)
def test_admission_policies_deny_in_the_namespaces_of_runs(variant: str) -> None:
    bindings = [item["spec"] for item in built(variant) if item["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert sorted(one["policyName"] for one in bindings) == [
        "hopforge-gpu-jobs",
        "hopforge-gpu-pods",
        "hopforge-run-accounts",
        "hopforge-runs",
    ]
    for binding in bindings:
        assert binding["validationActions"] == ["Deny", "Audit"]
        assert binding["matchResources"]["namespaceSelector"] == {"matchLabels": {"hopforge.dev/runs": "true"}}
    assert [rules["failurePolicy"] for rules in policies(built(variant))] == ["Fail"] * 4
    # Every kind of job that a step may make, and pods whoever makes them.
    matched = {r for rule in policy(variant)["matchConstraints"]["resourceRules"] for r in rule["resources"]}
    assert matched == {"pods", "pods/ephemeralcontainers", indexedjob.PLURAL, pytorchjob.PLURAL, trainjob.PLURAL}
