"""The commands of docs/cluster.md, run in their order without a cluster."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.service import ServiceSpec
from tests.kubeflow import documented
from tests.kubeflow.documented import run_all, secrets_made
from tests.kubeflow.rendered import MANIFESTS, OVERLAYS, Item, built, containers, pods

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

ROOT = MANIFESTS.parent


def page() -> str:
    return (ROOT / "docs/cluster.md").read_text()


def blocks() -> list[str]:
    return documented.blocks(page())


def secrets_wanted(items: tuple[Item, ...]) -> set[tuple[str, str, str]]:
    """Namespace, name and key of all that pods ask for."""
    wanted: set[tuple[str, str, str]] = set()
    issued = {item["spec"]["secretName"] for item in items if item["kind"] == "Certificate"}  # by cert-manager

    def of_container(container: Any, place: str) -> None:
        for variable in container.get("env", ()):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                wanted.add((place, reference["name"], reference["key"]))

    for namespace, _, pod in pods(items + built("services-loader")):
        for container in containers(pod):
            of_container(container, namespace)
        for volume in pod["spec"].get("volumes", ()):
            if secret := volume.get("secret"):
                # A team's token may have any name; here it is the one that runs are told to send.
                if secret["secretName"] in issued:
                    continue
                keys = [one["key"] for one in secret.get("items", ())] or ["hopforge"]
                wanted |= {(namespace, secret["secretName"], key) for key in keys}
    for item in items:
        if item["kind"] == "Milvus":
            place = item["metadata"]["namespace"]
            of_container(item["spec"]["components"], place)
            name = item["spec"]["dependencies"]["storage"]["secretRef"]
            wanted |= {(place, name, key) for key in ("accesskey", "secretkey")}
    return wanted


@pytest.mark.parametrize(
    ("namespace", "overlays"),
    [
        ("hopforge", ("two-core", "single-node", "single-node-kueue", "production")),
        ("kubeflow", ("single-user", "single-user-two-core", "single-user-kueue")),
    ],
)
def test_documented_commands_create_the_secrets_of_the_overlays(
    namespace: str, overlays: tuple[str, ...], tmp_path: Path
) -> None:
    single_user = namespace == "kubeflow"
    other = ("profile.yaml", "hopforge-milvus") if single_user else ("ns=kubeflow", "overlays/single-user")
    run_all(tmp_path, [block for block in blocks() if not any(word in block for word in other)])
    made = secrets_made(tmp_path / "secrets.json")
    keys = {(*place, key) for place, values in made.items() for key in values}
    wanted = set().union(*(secrets_wanted(built(f"overlays/{name}")) for name in overlays))
    cluster = read_as(ClusterSpec, tmp_path / "cluster.yaml")
    runs_use = {(namespace, *entry.split("/")) for entry in cluster.secrets.values()}
    assert {(namespace, *entry.split("/")) for entry in cluster.job.secrets.values()} <= runs_use
    assert keys == wanted | runs_use
    token = made["hopforge-services", "retriever-tokens"]["hopforge"]
    assert made[namespace, "run-access"]["retriever-token"] == token
    assert cluster.workspace.claim in {
        item["metadata"]["name"] for item in built("base") if item["kind"] == "PersistentVolumeClaim"
    }

    milvus, objects = made["hopforge-services", "milvus"], made["hopforge-services", "objects"]
    assert milvus["token"] == f"root:{milvus['root-password']}"
    identities = {one["name"]: one for one in json.loads(objects["s3.json"])["identities"]}
    credentials = {name: one["credentials"] for name, one in identities.items()}
    assert credentials["mlflow"] == [{"accessKey": objects["access-key"], "secretKey": objects["secret-key"]}]
    assert {name: one["actions"] for name, one in identities.items()} == {n: [f"Admin:{n}"] for n in identities}
    if not single_user:
        its = made["hopforge-milvus", "milvus-objects"]
        assert credentials["milvus"] == [{"accessKey": its["accesskey"], "secretKey": its["secretkey"]}]
        assert made["hopforge-milvus", "milvus"]["root-password"] == milvus["root-password"]


def test_the_corpus_is_prepared_where_and_as_the_retriever_serves_it() -> None:
    [line] = re.findall(r"-- hopforge recall (.*?[^\\])\n", "\n".join(blocks()), re.DOTALL)
    words = shlex.split(line.replace("\\\n", " "))
    options = dict(zip(words[::2], words[1::2], strict=True))
    recipe = load_recipe(ROOT / options["--recipe"], [options["--set"]])
    content = YAML(typ="safe").load(MANIFESTS / "base/services/retriever/service.yaml")
    [collection] = ServiceSpec.model_validate(content).collections
    assert options["--workdir"] == str(collection.run_dir)
    assert recipe.parameters["environment"] == collection.environment
    prepared = recipe.settings("retrieval")
    assert prepared.model_copy(update={"threads": None}) == collection.retrieval
    # Its files are where the words before have copied them.
    [pod] = built("loader")
    [data] = [one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == "HOPFORGE_DATA"]
    [copied] = re.findall(r"-n hopforge-services cp \S*DATA\S* loader:(\S+)", "\n".join(blocks()))
    [corpus] = recipe.settings("dataset").corpus
    assert Path(data, corpus).parent == Path(copied)


def test_every_overlay_is_documented() -> None:
    for document in ("docs/cluster.md", "manifests/README.md"):
        text = (ROOT / document).read_text()
        for overlay in OVERLAYS:
            assert re.search(rf"[`/ ]{Path(overlay).name}\b(?!-)", text), f"{document}: {overlay}"


def test_documented_service_account_may_create_jobs() -> None:
    """The form's field is free text, so the page names the account, which the overlays create."""
    [account] = re.findall(r"\*Service Account\*: `([\w-]+)`", page())
    for overlay in OVERLAYS:
        items = built(overlay)
        [created] = [i for i in items if (i["kind"], i["metadata"]["name"]) == ("ServiceAccount", account)]
        bound = [
            subject["name"]
            for item in items
            if item["kind"] == "RoleBinding"
            and item["metadata"]["namespace"] == created["metadata"]["namespace"]
            and item["roleRef"]["name"] == "launcher"
            for subject in item["subjects"]
        ]
        assert account in bound, overlay


def test_documented_template_of_the_training_operator_is_restricted(tmp_path: Path) -> None:
    """Fill it in as the operator does; its own container was refused for privilege escalation and capabilities."""
    folder = MANIFESTS / "training-operator"
    text = (folder / "init-container.yaml").read_text()
    for name, value in {"InitContainerImage": "alpine:3.10", "MasterAddr": "job-master-0", "MaxTries": "100"}.items():
        assert f"{{{{.{name}}}}}" in text
        text = text.replace(f"{{{{.{name}}}}}", value)
    [container] = YAML(typ="safe").load(text)
    security = container["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == security["runAsGroup"] == 10001
    assert container["name"] == "init-pytorch"
    assert "nslookup job-master-0" in container["command"][-1]
    # The documented patch mounts that file where it tells the operator to look.
    operator = {"name": "training-operator", "image": "i", "volumeMounts": [{"name": "cert", "mountPath": "/certs"}]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "training-operator"},
        "spec": {"template": {"spec": {"containers": [operator], "volumes": [{"name": "cert"}]}}},
    }
    (tmp_path / "deployment.json").write_text(json.dumps(deployment))
    patch = ["kubectl", "patch", "--local", "-o", "json", "--patch-file", str(folder / "patch.yaml")]
    done = subprocess.run([*patch, "-f", str(tmp_path / "deployment.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    spec = json.loads(done.stdout)["spec"]["template"]["spec"]
    [patched] = spec["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in patched["volumeMounts"]}
    maps = {one["name"]: one["configMap"]["name"] for one in spec["volumes"] if "configMap" in one}
    [path] = [Path(word.partition("=")[2]) for word in patched["args"] if "init-container-template-file" in word]
    assert path.name == "init-container.yaml"
    [created] = re.findall(
        r"create configmap (\S+) --from-file=manifests/training-operator/init-container.yaml", page()
    )
    assert maps[mounts[str(path.parent)]] == created
    assert "/certs" in mounts
