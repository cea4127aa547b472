"""The manifests: built by kubectl, valid by the published schemas, and as locked down as they say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from platform_sdk.config.service import ServiceSpec
from tests.kubeflow.crds import check

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
VARIANTS = ["base", "overlays/single-node", "overlays/production"]
WORKLOADS = {"Deployment", "StatefulSet", "CronJob"}
Item = dict[str, Any]

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def built(variant: str) -> list[Item]:
    done = subprocess.run(["kubectl", "kustomize", str(MANIFESTS / variant)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [item for item in YAML(typ="safe").load_all(done.stdout) if item]


@pytest.fixture(scope="module", params=VARIANTS)
def items(request: pytest.FixtureRequest) -> list[Item]:
    return built(request.param)


def pod_of(item: Item) -> Item:
    spec = item["spec"]
    return dict((spec["jobTemplate"]["spec"] if item["kind"] == "CronJob" else spec)["template"]["spec"])


def workloads(items: list[Item]) -> list[tuple[str, Item]]:
    found = [(item["metadata"]["name"], pod_of(item)) for item in items if item["kind"] in WORKLOADS]
    assert found
    return found


def test_every_object_is_valid(items: list[Item]) -> None:
    for item in items:
        group = item["apiVersion"].partition("/")[0]
        if group == "kueue.x-k8s.io":
            check(item)
        elif group != "milvus.io":  # whose schema is the operator's
            kubernetes_validate.validate(item, "1.32", strict=True)


def test_pods_are_restricted(items: list[Item]) -> None:
    """The rules of Kubernetes' restricted Pod Security Standard, which the namespace enforces."""
    for name, pod in workloads(items):
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        for volume in pod.get("volumes", ()):
            assert set(volume) - {"name"} <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}, name
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            assert set(container["resources"]) == {"requests", "limits"}, name
    [namespace] = [item for item in items if item["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_only_what_needs_the_api_server_gets_a_token(items: list[Item]) -> None:
    with_token = {name for name, pod in workloads(items) if pod.get("automountServiceAccountToken") is not False}
    assert with_token == {"reaper"}
    for role in (item for item in items if item["kind"] == "Role"):
        for rule in role["rules"]:
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            assert "secrets" not in rule["resources"]


def test_no_secret_and_no_password_is_in_them(items: list[Item]) -> None:
    assert not [item for item in items if item["kind"] == "Secret"]
    for name, pod in workloads(items):
        for container in pod["containers"]:
            for variable in container.get("env", ()):
                if any(word in variable["name"] for word in ("PASSWORD", "KEY", "TOKEN", "SECRET")):
                    reference = variable["valueFrom"]["secretKeyRef"]
                    assert not reference.get("optional"), name  # without its Secret the pod does not start


def test_traffic_is_denied_unless_named(items: list[Item]) -> None:
    policies = {item["metadata"]["name"]: item["spec"] for item in items if item["kind"] == "NetworkPolicy"}
    deny = policies["deny-by-default"]
    assert (deny["podSelector"], sorted(deny["policyTypes"])) == ({}, ["Egress", "Ingress"])
    assert "ingress" not in deny
    assert "egress" not in deny
    for name, spec in policies.items():
        assert all(rule.get("from") for rule in spec.get("ingress", ())), name  # from somebody, not from everybody
    served = {name for name, _ in workloads(items)} - {"reaper"}
    assert served <= policies.keys()


def test_services_find_their_pods(items: list[Item]) -> None:
    labels = [
        item["spec"]["template"]["metadata"]["labels"]
        for item in items
        if item["kind"] in ("Deployment", "StatefulSet")
    ]
    for service in (item for item in items if item["kind"] == "Service"):
        assert any(service["spec"]["selector"].items() <= pod.items() for pod in labels), service["metadata"]["name"]


def test_images_name_a_version() -> None:
    for variant in VARIANTS[1:]:
        for name, pod in workloads(built(variant)):
            for container in pod["containers"]:
                tag = container["image"].rpartition("/")[2].partition(":")[2]
                assert tag not in ("", "latest"), f"{variant}: {name}"


def test_the_retrievers_configuration_is_one_that_it_takes() -> None:
    content = YAML(typ="safe").load(MANIFESTS / "base/retriever/service.yaml")
    assert ServiceSpec.model_validate(content).collections[0].retrieval.backend == "server"
