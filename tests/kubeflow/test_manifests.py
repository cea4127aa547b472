"""The manifests: built by kubectl, valid by the published schemas, and as locked down as they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from platform_sdk.config.service import ServiceSpec
from platform_sdk.retrieval.service.metrics import Metrics
from tests.kubeflow.crds import check, check_builtin
from tests.kubeflow.rendered import MANIFESTS, OVERLAYS, Item, built, containers, pods, the, workloads

CLUSTER_WIDE = {
    "Namespace", "PriorityClass", "ResourceFlavor", "ClusterQueue", "WorkloadPriorityClass",
    "ClusterTrainingRuntime",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
SERVICES = {"log", "mlflow", "mlflow-db", "objects", "milvus", "retriever", "sampler"}
PIPELINES = "kubeflow"  # the namespace of Kubeflow Pipelines, which is there before
OPERATORS = {"milvus.io", "keda.sh", "cert-manager.io"}  # whose schemas are their own

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture(scope="module", params=OVERLAYS)
def items(request: pytest.FixtureRequest) -> tuple[Item, ...]:
    return built(request.param)


def test_every_manifest_object_is_valid(items: tuple[Item, ...]) -> None:
    for item in items:
        group = item["apiVersion"].partition("/")[0]
        if group in ("kueue.x-k8s.io", "trainer.kubeflow.org"):
            check(item)
        elif group not in OPERATORS:
            check_builtin(item)


def test_objects_are_in_a_namespace_that_is_made_or_in_none(items: tuple[Item, ...]) -> None:
    made = {item["metadata"]["name"] for item in items if item["kind"] == "Namespace"}
    made |= set() if "hopforge" in made else {PIPELINES}
    for item in items:
        namespace = item["metadata"].get("namespace")
        name = f"{item['kind']} {item['metadata']['name']}"
        assert namespace is None if item["kind"] in CLUSTER_WIDE else namespace in made, name


def test_rights_are_given_to_accounts_of_the_same_namespace(items: tuple[Item, ...]) -> None:
    """An API server refuses an account that does not say where it is."""
    accounts = set()
    for item in items:
        if item["kind"] == "RoleBinding":
            for subject in item["subjects"]:
                assert subject["namespace"] == item["metadata"]["namespace"], subject
                accounts.add(subject["name"])
    here = {item["metadata"]["name"] for item in items if item["kind"] == "ServiceAccount"}
    [pipelines_own] = accounts - here
    single_user = not [item for item in items if item["metadata"]["name"] == "hopforge" and item["kind"] == "Namespace"]
    assert pipelines_own == ("pipeline-runner" if single_user else "default-editor")


def test_the_namespace_stays_a_profiles(items: tuple[Item, ...]) -> None:
    """Kubeflow's network policies let in what is part of kubeflow-profile, a label that the Profile gives."""
    for item in items:
        if item["kind"] == "Namespace" and item["metadata"]["name"] == "hopforge":
            added = {label.partition("/")[0] for label in item["metadata"]["labels"]}
            assert added == {"pod-security.kubernetes.io", "hopforge.dev"}


def test_the_profile_makes_the_namespace() -> None:
    profile = YAML(typ="safe").load(MANIFESTS / "profile.yaml")
    check(profile)
    assert profile["metadata"]["name"] in {item["metadata"]["name"] for item in built("namespace")}


def test_no_pod_gets_a_proxy_of_istio(items: tuple[Item, ...]) -> None:
    templates = [*workloads(items), ("loader", the(built("loader"), "Pod", "loader"))]
    for name, template in templates:
        assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false", name


def test_pods_with_the_workspace_can_write_it_as_the_image_user(items: tuple[Item, ...]) -> None:
    [user] = re.findall(r"^USER (\d+):\1$", (MANIFESTS.parent / "images/Dockerfile").read_text(), re.MULTILINE)
    templates = dict([*workloads(items), ("loader", the(built("loader"), "Pod", "loader"))])
    claims = {
        name: volume["persistentVolumeClaim"]["claimName"]
        for name, template in templates.items()
        for volume in template["spec"].get("volumes", ())
        if "persistentVolumeClaim" in volume
    }
    assert claims == dict.fromkeys(("retriever", "sampler", "workspace-init", "loader"), "workspace")
    for name in claims:
        security = templates[name]["spec"]["securityContext"]
        assert (security["fsGroup"], security["fsGroupChangePolicy"]) == (int(user), "OnRootMismatch"), name


def test_every_pod_names_a_group_other_than_root(items: tuple[Item, ...]) -> None:
    """Kubernetes takes only the user of an image's USER; without a group, processes run with group 0."""
    for name, template in [*workloads(items), ("loader", the(built("loader"), "Pod", "loader"))]:
        security = template["spec"]["securityContext"]
        ours = any(one["image"].startswith("hopforge/") for one in containers(template))
        assert security["runAsUser"] == security["runAsGroup"], name
        assert security["runAsGroup"] == 10001 if ours else security["runAsGroup"] > 0, name


def test_priorities_are_those_that_are_made(items: tuple[Item, ...]) -> None:
    made = {item["metadata"]["name"] for item in items if item["kind"] == "PriorityClass"}
    assert {template["spec"]["priorityClassName"] for _, template in workloads(items)} == made


def test_pods_are_restricted(items: tuple[Item, ...]) -> None:
    """The rules of Kubernetes' restricted Pod Security Standard, which the namespace enforces."""
    for name, template in [*workloads(items), ("loader", the(built("loader"), "Pod", "loader"))]:
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        for volume in pod.get("volumes", ()):
            assert set(volume) - {"name"} <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}, name
        for container in containers(template):
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            assert not {"privileged", "procMount", "runAsUser", "runAsNonRoot"} & security.keys(), name
            assert not [port for port in container.get("ports", ()) if "hostPort" in port], name
            assert set(container["resources"]) == {"requests", "limits"}, name
    for item in items:
        if item["kind"] == "Namespace" and item["metadata"]["name"] != "hopforge-milvus":
            assert item["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_containers_that_operators_add_get_amounts() -> None:
    [limits] = the(built("base/team"), "LimitRange", "defaults")["spec"]["limits"]
    assert limits["type"] == "Container"
    assert limits["default"].keys() == limits["defaultRequest"].keys() == {"cpu", "memory"}


def test_a_teams_namespace_has_a_bound_and_its_containers_defaults(items: tuple[Item, ...]) -> None:
    kinds = {
        (item["kind"], item["metadata"]["namespace"])
        for item in items
        if item["kind"] in ("ResourceQuota", "LimitRange")
    }
    single_user = PIPELINES in {item["metadata"].get("namespace") for item in items}
    assert kinds == (set() if single_user else {("ResourceQuota", "hopforge"), ("LimitRange", "hopforge")})
    for item in items:
        if item["kind"] == "ResourceQuota":  # a quota on limits forbids containers without, unless they get defaults
            limited = {name for name in item["spec"]["hard"] if name.startswith("limits.")}
            assert limited == {
                f"limits.{name}" for name in the(items, "LimitRange", "defaults")["spec"]["limits"][0]["default"]
            }


def test_overlays_keep_all_policies_of_the_base(items: tuple[Item, ...]) -> None:
    """Only the base's policy for a Milvus that is elsewhere may be missing."""
    kinds = ("NetworkPolicy", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    names = [{item["metadata"]["name"] for item in some if item["kind"] in kinds} for some in (built("base"), items)]
    assert names[0] - names[1] == set()


def test_only_pods_that_call_the_api_server_get_a_token(items: tuple[Item, ...]) -> None:
    with_token = {n for n, template in workloads(items) if template["spec"].get("automountServiceAccountToken", True)}
    assert with_token == {"reaper"}


def test_manifests_hold_no_secrets_or_passwords(items: tuple[Item, ...]) -> None:
    assert not [item for item in items if item["kind"] == "Secret"]
    all_of_them = [one for _, template in workloads(items) for one in containers(template)]
    all_of_them += [item["spec"]["components"] for item in items if item["kind"] == "Milvus"]
    for container in all_of_them:
        for variable in container.get("env", ()):
            if any(word in variable["name"] for word in ("PASSWORD", "KEY", "TOKEN", "SECRET")):
                reference = variable["valueFrom"]["secretKeyRef"]
                assert not reference.get("optional"), variable  # without its Secret the pod does not start


@pytest.mark.parametrize("variant", [*OVERLAYS, "loader"])
def test_no_command_line_and_no_address_holds_a_secret(variant: str) -> None:
    """Everybody who may list processes or pods sees command lines; addresses are logged."""
    templates = (
        workloads(built(variant)) if variant != "loader" else [("loader", the(built("loader"), "Pod", "loader"))]
    )
    for name, template in templates:
        for container in containers(template):
            secret = {one["name"] for one in container.get("env", ()) if "secretKeyRef" in one.get("valueFrom", {})}
            words = [*container.get("command", ()), *container.get("args", ())]
            plain = [one["value"] for one in container.get("env", ()) if "value" in one]
            for text in (*words, *plain):
                assert not secret & set(re.findall(r"\$\((\w+)\)", text)), (name, text)
                assert not re.search(r"\w://[^/\s]*@", text), (name, text)


def test_services_and_their_secrets_are_not_where_runs_are(items: tuple[Item, ...]) -> None:
    """A step may make jobs, and so mount whatever Secret is in its namespace."""
    for namespace, name, template in pods(items):
        if name in SERVICES:
            assert namespace == "hopforge-services"
        elif namespace != "hopforge-services":
            assert "secret" not in str(template).lower().replace("securitycontext", ""), name
    # No account outside of the services' namespace has rights there.
    for item in items:
        if item["kind"] in ("Role", "RoleBinding"):
            assert item["metadata"]["namespace"] != "hopforge-services"


def test_milvus_never_has_its_default_password(items: tuple[Item, ...]) -> None:
    if milvus := [item["spec"] for item in items if item["kind"] == "Milvus"]:
        [spec] = milvus
        variables = spec["components"]["env"]
        assert spec["config"]["common"]["security"]["authorizationEnabled"] is True
        assert spec["dependencies"]["storage"]["external"] is True  # the operator's own has a default password
    else:
        [container] = dict(workloads(items))["milvus"]["spec"]["containers"]
        variables = container["env"]
        assert {"name": "COMMON_SECURITY_AUTHORIZATIONENABLED", "value": "true"} in variables
    [password] = [one for one in variables if one["name"] == "COMMON_SECURITY_DEFAULTROOTPASSWORD"]
    assert password["valueFrom"]["secretKeyRef"] == {"name": "milvus", "key": "root-password"}


def test_services_find_their_pods(items: tuple[Item, ...]) -> None:
    labels = [template["metadata"]["labels"] for _, template in workloads(items)]
    for service in (item for item in items if item["kind"] == "Service"):
        name = service["metadata"]["name"]
        if service["spec"].get("type") == "ExternalName":  # the operator's service of the Milvus of that name
            assert the(items, "Milvus", name)["metadata"]["namespace"] == "hopforge-milvus"
            assert service["spec"]["externalName"].startswith(f"{name}-milvus.hopforge-milvus.svc")
        else:
            assert any(service["spec"]["selector"].items() <= pod.items() for pod in labels), name


@pytest.mark.parametrize("variant", OVERLAYS)
def test_images_are_named_in_one_place_with_a_version(variant: str) -> None:
    text = (MANIFESTS / "images/kustomization.yaml").read_text()
    named = {one["name"]: str(one["newTag"]) for one in YAML(typ="safe").load(text)["images"]}
    used = {one["image"] for _, template in workloads(built(variant)) for one in containers(template)}
    used |= {item["spec"]["components"]["image"] for item in built(variant) if item["kind"] == "Milvus"}
    assert used == {f"{name}:{tag}" for name, tag in named.items()}
    assert "latest" not in named.values()
    # The runtimes' sampler is the placeholder of pipelines/cluster.yaml: a cluster's own file renders them anew.
    elsewhere = [path for path in MANIFESTS.rglob("*.yaml") if path.parent.name not in ("images", "trainer")]
    for path in elsewhere:
        assert not re.search(r"image: *\S+:\S|newTag|newName", path.read_text()), path


def test_pinned_images_have_tag_and_digest(tmp_path: Path) -> None:
    """A stand-in for skopeo, and so for the registries: the digest of an image is made of its name."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    skopeo = tmp_path / "bin/skopeo"
    skopeo.parent.mkdir()
    skopeo.write_text('#!/bin/sh\n[ "$1" = inspect ] && printf "sha256:%s" "$(printf "$4" | sha256sum | cut -c1-64)"\n')
    skopeo.chmod(0o755)
    environment = {**os.environ, "PATH": f"{skopeo.parent}:{os.environ['PATH']}"}
    pin = [sys.executable, str(tmp_path / "manifests/images/pin.py")]
    done = subprocess.run(pin, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    overlay = tmp_path / "manifests/overlays/production"
    rendered = subprocess.run(["kubectl", "kustomize", str(overlay)], capture_output=True, text=True, check=True).stdout
    images = re.findall(r"^ *(?:- )?image: (\S+)$", rendered, re.MULTILINE)
    assert len(images) == 12
    for image in images:
        assert re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image), image
    assert len(set(images)) == 6


def test_the_retrievers_configuration_is_one_that_it_takes() -> None:
    content = YAML(typ="safe").load(MANIFESTS / "base/services/retriever/service.yaml")
    assert ServiceSpec.model_validate(content).collections[0].retrieval.backend == "server"


def option(container: Item, name: str) -> str:
    arguments = container["args"]
    return str(arguments[arguments.index(name) + 1])


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "retriever"), ("StatefulSet", "log")])
def test_service_of_production_speaks_https_with_the_certificate_that_is_made(kind: str, name: str) -> None:
    items = built("overlays/production")
    pod = the(items, kind, name)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    certificate = the(items, "Certificate", name)["spec"]
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "tls"]
    [volume] = [one for one in pod["volumes"] if one["name"] == "tls"]
    assert volume["secret"]["secretName"] == certificate["secretName"]
    assert option(container, "--tls-cert") == f"{mount['mountPath']}/tls.crt"
    assert option(container, "--tls-key") == f"{mount['mountPath']}/tls.key"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    service = the(items, "Service", name)
    assert {service["metadata"]["name"], f"{name}.{service['metadata']['namespace']}"} <= set(certificate["dnsNames"])


def test_the_retriever_is_scaled_by_a_metric_that_it_has_where_it_is_scraped() -> None:
    items = built("overlays/production")
    template = the(items, "Deployment", "retriever")["spec"]["template"]
    scraped = template["metadata"]["annotations"]
    [container] = template["spec"]["containers"]
    [port] = [port["containerPort"] for port in container["ports"] if port["name"] == "metrics"]
    assert scraped["prometheus.io/port"] == str(port) == option(container, "--metrics-port")
    assert scraped["prometheus.io/path"] == "/metrics"
    gauges = re.findall(r"^# TYPE (\S+) gauge$", Metrics().text(), re.MULTILINE)
    scaled = the(items, "ScaledObject", "retriever")["spec"]
    [metric] = re.findall(r"sum\((\w+)\{", scaled["triggers"][0]["metadata"]["query"])
    assert metric in gauges
    assert scaled["scaleTargetRef"]["name"] == "retriever"
    # Its replicas are KEDA's alone, or every apply would set them back.
    assert "replicas" not in the(items, "Deployment", "retriever")["spec"]
