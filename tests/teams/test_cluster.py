"""``hopforge teams check`` and ``status`` against an API server: what is met, what is not, what may not be seen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from kubeflow.training import TrainingClient
from kubernetes.client import Configuration

from platform_sdk.cli import teams as command
from platform_sdk.config.errors import UserError
from platform_sdk.config.teams import TeamsSpec
from platform_sdk.kubeflow.training_job.api import METADATA
from platform_sdk.teams.check import Requirement, check_cluster
from platform_sdk.teams.cluster import Cluster
from platform_sdk.teams.status import read_status
from tests.teams.api_server import Item, Server, forbidden
from tests.teams.files import MANIFESTS, kustomized, render

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

RECORDED = Path(__file__).parents[2] / "../shared/kubeflow/cluster"
EXAMPLE = MANIFESTS / "teams.yaml"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
FRAMEWORKS = "integrations:\n  frameworks: [batch/job, kubeflow.org/pytorchjob]\n"


def example() -> Item:
    from ruamel.yaml import YAML

    return dict(YAML(typ="safe").load(EXAMPLE))


def kinds(*names: str) -> Item:
    return {"kind": "APIResourceList", "resources": [{"name": name} for name in names]}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Item]:
    """The example's objects as a cluster has them, with what they stand on."""
    folder = tmp_path_factory.mktemp("teams")
    render(example(), folder)
    objects: dict[str, Item] = {
        "/version": {"gitVersion": "v1.34.4"},
        KUEUE: kinds("clusterqueues", "localqueues", "cohorts"),
        "/apis/kubeflow.org/v1": kinds("profiles", "pytorchjobs"),
        "/api/v1/namespaces/kubeflow/services/ml-pipeline": {"kind": "Service"},
        "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config": {
            "data": {"controller_manager_config.yaml": FRAMEWORKS}
        },
        "/api/v1/nodes": {"items": [node(f"n{number}", 8) for number in range(2)]},
        "/apis/storage.k8s.io/v1/storageclasses": {
            "items": [
                {
                    "metadata": {
                        "name": "shared",
                        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                    }
                }
            ]
        },
        "/apis/apps/v1/daemonsets": {"items": [{"metadata": {"name": "calico-node"}}]},
    }
    for item in kustomized(folder):
        name, namespace = item["metadata"]["name"], item["metadata"].get("namespace")
        if item["kind"] == "ClusterQueue":
            objects[f"{KUEUE}/clusterqueues/{name}"] = item
        if item["kind"] == "ResourceQuota" and name == "team":
            objects[f"/api/v1/namespaces/{namespace}/resourcequotas/team"] = item
        if item["kind"] == "Deployment" and name == "mlflow":
            objects[f"/apis/apps/v1/namespaces/{namespace}/deployments/mlflow"] = item | {
                "status": {"availableReplicas": 1}
            }
    for team, secret in (("search", "run-access"), ("search", "hugging-face"), ("reading", "run-access")):
        objects[f"/api/v1/namespaces/{team}/secrets/{secret}"] = {"kind": "PartialObjectMetadata"}
    return objects


def node(name: str, gpus: int) -> Item:
    allocatable = {"cpu": "127500m", "memory": "1056784Mi", "nvidia.com/gpu": str(gpus)}
    return {"metadata": {"name": name, "labels": {"gpu": "a100"}}, "status": {"allocatable": allocatable}}


@pytest.fixture
def server(rendered: dict[str, Item]) -> Iterator[Server]:
    with Server(json.loads(json.dumps(rendered))) as server:
        yield server


def cluster(server: Server) -> Cluster:
    return Cluster(TrainingClient(client_configuration=Configuration(host=server.url)))


def exit_status(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the exit status of ``hopforge teams check`` of the example."""
    monkeypatch.setattr(Cluster, "here", classmethod(lambda kind: cluster))
    with pytest.raises(typer.Exit) as ended:
        command.check_(EXAMPLE, as_json=True)
    return ended.value.exit_code


def unmet(found: list[Requirement]) -> list[str]:
    return [requirement.name for requirement in found if requirement.state == "unmet"]


def test_cluster_that_has_everything_meets_every_requirement(server: Server) -> None:
    found = check_cluster(TeamsSpec.model_validate(example()), cluster(server))
    assert [requirement for requirement in found if requirement.state != "met"] == []
    secrets = [request.headers["Accept"] for request in server.received if "/secrets/" in request.path]
    assert secrets == [METADATA] * 3  # values are not asked for


@pytest.mark.parametrize(
    ("path", "change", "requirement", "remedy"),
    [
        ("/version", {"gitVersion": "v1.29.0"}, "Kubernetes 1.30 or later", "upgrade"),
        (KUEUE, None, "clusterqueues (kueue.x-k8s.io/v1beta2)", "install Kueue"),
        ("/apis/kubeflow.org/v1", kinds("profiles"), "PyTorchJob or TrainJob", "install the training-operator"),
        ("/api/v1/namespaces/kubeflow/services/ml-pipeline", None, "Kubeflow Pipelines", "install Pipelines"),
        (
            "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config",
            {"data": {"controller_manager_config.yaml": "{}"}},
            "Kueue manages kubeflow.org/pytorchjob",
            "add kubeflow.org/pytorchjob to integrations.frameworks",
        ),
        ("/api/v1/nodes", {"items": [node("n0", 8)]}, "pool a100: 1 nodes with gpu=a100", "lower pools.a100.count"),
        ("/apis/storage.k8s.io/v1/storageclasses", {"items": []}, "a default storage class", "mark one"),
        ("/apis/apps/v1/daemonsets", {"items": []}, "NetworkPolicies are enforced", "install one"),
        ("/api/v1/namespaces/search/secrets/hugging-face", None, "Secret hugging-face of search", "-n search create"),
        (f"{KUEUE}/clusterqueues/reading", None, "ClusterQueue reading is as in the file", "kubectl apply -k ."),
        (
            "/api/v1/namespaces/search/resourcequotas/team",
            {"spec": {"hard": {"requests.nvidia.com/gpu": "99"}}},
            "ResourceQuota team of search is as in the file",
            "kubectl apply -k .",
        ),
    ],
)
def test_missing_requirement_is_one_line_with_its_remedy(
    server: Server, path: str, change: Item | None, requirement: str, remedy: str
) -> None:
    if change is None:
        del server.objects[path]
    else:
        server.objects[path] = change
    found = check_cluster(TeamsSpec.model_validate(example()), cluster(server))
    assert unmet(found) == [requirement]
    assert remedy in next(one.remedy for one in found if one.name == requirement)


def test_cluster_with_trainer_2_needs_each_team_its_runtime(server: Server) -> None:
    group = "/apis/trainer.kubeflow.org/v1alpha1"
    config = server.objects["/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"]["data"]
    config["controller_manager_config.yaml"] = FRAMEWORKS.replace("[", "[trainer.kubeflow.org/trainjob, ")
    server.objects |= {
        group: kinds("trainjobs"),
        f"{group}/clustertrainingruntimes/hopforge-search": {"kind": "ClusterTrainingRuntime"},
    }
    found = check_cluster(TeamsSpec.model_validate(example()), cluster(server))
    # The team search also has jobs with a vLLM server.
    missing = ["hopforge-reading", "hopforge-search-online"]
    assert unmet(found) == [f"ClusterTrainingRuntime {name}" for name in missing]
    assert {one.remedy for one in found if one.state == "unmet"} == {"kubectl apply -k trainer"}


def test_quota_that_differs_from_the_file_is_named(server: Server) -> None:
    queue = server.objects[f"{KUEUE}/clusterqueues/search"]
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][2]["nominalQuota"] = "6"
    # The API server writes some quantities in another form; these are equal.
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "64000m"
    found = check_cluster(TeamsSpec.model_validate(example()), cluster(server))
    [differing] = [one for one in found if one.state == "unmet"]
    assert differing.found == "a100/nvidia.com/gpu/nominalQuota: 6 where the file has 8"


@pytest.mark.parametrize(
    "answer", [forbidden("/x"), (500, "oops"), (200, "<html>a proxy's page</html>"), (200, "[1, 2]")]
)
def test_unseen_objects_are_reported_with_exit_status_3(
    server: Server, answer: tuple[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault = lambda path: answer
    spec = TeamsSpec.model_validate(example())
    found = check_cluster(spec, cluster(server))
    assert {requirement.state for requirement in found} == {"unseen"}
    assert all(requirement.found for requirement in found)
    assert len(read_status(spec, cluster(server)).unseen) == 2
    assert exit_status(cluster(server), monkeypatch) == 3
    # One object that cannot be read is enough for status 3; a requirement that is not met has priority.
    server.fault = lambda path: answer if path == "/api/v1/nodes" else None
    assert exit_status(cluster(server), monkeypatch) == 3
    del server.objects["/api/v1/namespaces/kubeflow/services/ml-pipeline"]
    assert exit_status(cluster(server), monkeypatch) == 1


def test_check_continues_after_a_request_without_an_answer(server: Server) -> None:
    server.silent = "/api/v1/nodes"
    found = check_cluster(TeamsSpec.model_validate(example()), cluster(server))
    [unseen] = [one for one in found if one.state == "unseen"]
    assert unseen.name == "nodes"
    assert "cannot be reached" in unseen.found
    assert {one.state for one in found if one is not unseen} == {"met"}


def test_check_of_a_cluster_that_meets_all_requirements_exits_with_0(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exit_status(cluster(server), monkeypatch) == 0


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "the API server cannot be reached: .*; check KUBECONFIG, and that the cluster runs"),
        ((401, {"kind": "Status", "message": "Unauthorized"}), "HTTP 401: Unauthorized; log in again"),
    ],
)
def test_cluster_that_cannot_be_read_at_all_is_one_error(
    server: Server, answer: tuple[int, Any] | None, message: str
) -> None:
    server.fault = lambda path: answer
    url = server.url if answer is not None else "http://127.0.0.1:1"  # a port that nothing listens at
    connected = Cluster(TrainingClient(client_configuration=Configuration(host=url)))
    spec = TeamsSpec.model_validate(example())
    for read in (check_cluster, read_status):
        with pytest.raises(UserError, match=message):
            read(spec, connected)


def test_status_shows_what_teams_use_borrow_and_wait_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reserved(total: int, borrowed: int) -> list[Item]:
        return [
            {"name": "a100", "resources": [{"name": "nvidia.com/gpu", "total": str(total), "borrowed": str(borrowed)}]}
        ]

    server.objects[f"{KUEUE}/clusterqueues/search"]["status"] = {
        "flavorsReservation": reserved(12, 4), "pendingWorkloads": 2,
    }  # fmt: skip
    server.objects[f"{KUEUE}/clusterqueues/reading"]["status"] = {"flavorsReservation": reserved(3, 0)}
    waiting = {"type": "QuotaReserved", "status": "False"}
    server.objects[f"{KUEUE}/namespaces/search/workloads"] = {
        "items": [
            workload("2026-11-24T01:30:00Z", waiting),
            workload("2026-11-24T01:00:00Z"),
            workload("2026-11-23T00:00:00Z", {"type": "QuotaReserved", "status": "True"}),
            workload("2026-11-22T00:00:00Z", waiting, {"type": "Finished", "status": "True"}),
            workload("2026-11-21T00:00:00Z", waiting) | {"spec": {"active": False}},
        ]
    }
    found = read_status(TeamsSpec.model_validate(example()), cluster(server))
    [pool] = found.pools
    assert (pool.used, pool.count, pool.borrowed) == (15, 16, 4)
    assert {team.team: (team.used, team.borrowed, team.lent, team.idle, team.pending) for team in found.teams} == {
        "search": (12, 4, (0, 0), 0, 2), "reading": (3, 0, (4, 4), 5, 0),
    }  # fmt: skip
    assert [team.oldest for team in found.teams] == [None, datetime(2026, 11, 24, 1, tzinfo=UTC)]
    server.objects[f"{KUEUE}/namespaces/search/workloads"] = {
        "items": [
            workload(
                "2026-11-20T00:00:00Z",
                waiting | {"lastTransitionTime": "2026-11-24T03:00:00Z"},
                {"type": "Evicted", "status": "True", "lastTransitionTime": "2026-11-24T02:00:00Z"},
            )
        ]
    }
    preempted = read_status(TeamsSpec.model_validate(example()), cluster(server)).teams[1]
    assert preempted.oldest == datetime(2026, 11, 24, 2, tzinfo=UTC), "not the job's age"

    monkeypatch.setattr(Cluster, "here", classmethod(lambda kind: cluster(server)))
    command.status(EXAMPLE, None, as_json=False)
    printed = capsys.readouterr().out
    assert "15 of 16 nvidia.com/gpu in use, 4 of them borrowed" in printed
    command.status(EXAMPLE, None, as_json=True)
    assert json.loads(capsys.readouterr().out)["teams"][1]["borrowed"] == 4


def test_status_exits_with_3_if_a_queue_cannot_be_read(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del server.objects[f"{KUEUE}/clusterqueues/reading"]
    monkeypatch.setattr(Cluster, "here", classmethod(lambda kind: cluster(server)))
    for as_json in (False, True):
        with pytest.raises(typer.Exit) as exited:
            command.status(EXAMPLE, None, as_json=as_json)
        assert exited.value.exit_code == 3
        assert "ClusterQueue reading: there is none" in capsys.readouterr().err


def test_status_reads_quantities_as_kubernetes_writes_them(server: Server) -> None:
    queue = server.objects[f"{KUEUE}/clusterqueues/search"]
    total = {"name": "nvidia.com/gpu", "total": "1k", "borrowed": "1500m"}
    queue["status"] = {"flavorsReservation": [{"name": "a100", "resources": [total]}]}
    found = read_status(TeamsSpec.model_validate(example()), cluster(server))
    assert {team.team: (team.used, team.borrowed) for team in found.teams}["search"] == (1000, 2)


@pytest.mark.parametrize(
    ("used", "borrowed", "lent"),
    [
        # search borrows 3 of what reading and third lend: at most 4 and 2 of their idle GPUs.
        ({"search": 7, "reading": 0, "third": 0}, 3, {"search": (0, 0), "reading": (1, 3), "third": (0, 2)}),
        ({"search": 7, "reading": 2, "third": 4}, 3, {"search": (0, 0), "reading": (3, 3), "third": (0, 0)}),
        ({"search": 4, "reading": 0, "third": 0}, 0, {"search": (0, 0), "reading": (0, 0), "third": (0, 0)}),
    ],
)
def test_lent_gpus_are_shown_as_far_as_totals_tell_who_lends(
    server: Server, used: dict[str, int], borrowed: int, lent: dict[str, tuple[int, int]]
) -> None:
    content = example()
    shares = {
        "search": {"nominal": 4, "borrow": 6}, "reading": {"nominal": 6, "lend": 4}, "third": {"nominal": 4, "lend": 2}
    }  # fmt: skip
    content["teams"] = {
        name: content["teams"]["reading"] | {"gpus": {"a100": share}, "job": {"pool": "a100", "gpus": 1}}
        for name, share in shares.items()
    }
    for name, total in used.items():
        resource = {"name": "nvidia.com/gpu", "total": str(total), "borrowed": str(borrowed * (name == "search"))}
        quota = {"name": "nvidia.com/gpu", "nominalQuota": str(shares[name]["nominal"])}
        server.objects[f"{KUEUE}/clusterqueues/{name}"] = {
            "spec": {"resourceGroups": [{"flavors": [{"name": "a100", "resources": [quota]}]}]},
            "status": {"flavorsReservation": [{"name": "a100", "resources": [resource]}]},
        }
    found = read_status(TeamsSpec.model_validate(content), cluster(server))
    assert {team.team: team.lent for team in found.teams} == lent


def test_mlflow_of_kubeflow_needs_its_service_and_no_password_of_runs(server: Server) -> None:
    spec = TeamsSpec.model_validate(example() | {"mlflow": "kubernetes", "mlflow_service": "http://ml.place:80/x"})
    del server.objects["/api/v1/namespaces/search/secrets/run-access"]
    found = check_cluster(spec, cluster(server))
    assert unmet(found) == ["Service ml of place (MLflow)", "Secret run-access of search"]
    [secret] = [one.remedy for one in found if one.name == "Secret run-access of search"]
    assert secret.endswith("run-access --from-file=retriever-token=FILE --from-file=log-token=FILE")
    server.objects["/api/v1/namespaces/place/services/ml"] = {"kind": "Service"}
    assert unmet(check_cluster(spec, cluster(server))) == ["Secret run-access of search"]


def workload(created: str, *conditions: Item) -> Item:
    return {"metadata": {"creationTimestamp": created}, "status": {"conditions": list(conditions)}}


def test_recorded_queue_is_read(server: Server) -> None:
    if not (RECORDED / "clusterqueue.json").is_file():
        pytest.skip("the recorded answers (../shared) are not at hand")
    content = example()
    content["pools"] = {"gpu": content["pools"]["a100"]}
    content["teams"] = {"hopforge-team": content["teams"]["search"]}
    content["teams"]["hopforge-team"] |= {
        "gpus": {"gpu": {"nominal": 1}},
        "job": {"pool": "gpu", "gpus": 1},
    }
    server.objects[f"{KUEUE}/clusterqueues/hopforge-team"] = json.loads((RECORDED / "clusterqueue.json").read_text())
    [team] = read_status(TeamsSpec.model_validate(content), cluster(server)).teams
    assert (team.nominal, team.used, team.borrowed) == (1, 0, 0)
