"""Recipes submitted to a server that speaks KFP's protocol, undisturbed and disturbed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from kubeflow.training import TrainingClient
from kubernetes.client import Configuration

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote import submit as submission
from platform_sdk.kubeflow.remote import versions
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.submit import SubmittedRun, submit
from tests.kubeflow.remote.cluster_server import ClusterServer
from tests.kubeflow.remote.kfp_server import LOST, UNSTORED, KfpServer
from tests.refusals import refused

PLACE = read_as(ClusterSpec, Path(__file__).parents[3] / "pipelines/cluster.yaml")


def started(
    kfp: KfpServer, recipe: Path, *overrides: str, namespace: str | None = "team-a", **more: Any
) -> SubmittedRun:
    slept: list[float] = []
    server = Server(kfp.url, sleep=slept.append)
    return submit(server, recipe, overrides, PLACE, namespace=namespace, **more)


def test_a_run_is_started_with_the_recipes_values(
    kfp: KfpServer, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    made = started(kfp, recipe, experiment="tries")
    [pipeline], [version], [experiment] = kfp.pipelines, kfp.versions, kfp.experiments
    assert (pipeline["display_name"], pipeline["namespace"]) == ("toy", "team-a")
    assert re.fullmatch(r"small-[0-9a-f]{16}", version["display_name"])
    assert made.digest in version["description"]
    assert (experiment["display_name"], experiment["namespace"]) == ("tries", "team-a")
    run = kfp.run()
    assert run["runtime_config"]["parameters"] == {
        "f1_run_seed": 1, "f2_run_rate": 0.5, "f3_run_mode": "well", "d1_training_batch": 3,
        "d2_training_normalization": "token", "submitted_by": "ann",
    }  # fmt: skip
    assert run["experiment_id"] == experiment["experiment_id"]
    assert run["plugins_input"] == {"mlflow": {"experiment_name": "toy"}}
    assert made.run_url == f"{kfp.url}/#/runs/details/{run['run_id']}"
    assert made.experiment_url.endswith(experiment["experiment_id"])
    assert made.version_url.endswith(f"{pipeline['pipeline_id']}/version/{version['pipeline_version_id']}")
    assert made.uploaded


def test_server_without_plugins_gets_the_run_without_their_settings(kfp: KfpServer, recipe: Path) -> None:
    kfp.plugins = False
    started(kfp, recipe)
    assert "plugins_input" not in kfp.run()


def test_equal_content_is_one_version_whatever_the_form_says(kfp: KfpServer, recipe: Path) -> None:
    first = started(kfp, recipe)
    again = started(kfp, recipe, "seed=5", "spec.batch_size=8")
    assert (again.version_id, again.uploaded) == (first.version_id, False)
    assert kfp.runs[1]["runtime_config"]["parameters"]["f1_run_seed"] == 5
    other = started(kfp, recipe, "iterations=1")  # shapes the pipeline
    assert other.version_id != first.version_id
    assert (len(kfp.pipelines), len(kfp.versions), len(kfp.experiments), len(kfp.runs)) == (1, 2, 1, 3)
    defaults = [
        one["pipeline_spec"]["pipeline_spec"]["root"]["inputDefinitions"]["parameters"]["f1_run_seed"]["defaultValue"]
        for one in kfp.versions
    ]
    assert defaults == [1.0, 1.0]


def test_value_missing_in_the_recipe_may_come_from_the_form(kfp: KfpServer, recipe: Path) -> None:
    recipe.write_text("pipeline: toy\nname: small\n")  # without the rate, which is required
    started(kfp, recipe, "rate=0.25")
    form = kfp.versions[0]["pipeline_spec"]["pipeline_spec"]["root"]["inputDefinitions"]["parameters"]
    assert form["f2_run_rate"]["defaultValue"] == 0.25


def test_versions_are_found_behind_many_pages(kfp: KfpServer, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PAGE", 2)
    monkeypatch.setattr(versions, "equals", lambda name: "")  # as a server that ignores filters would
    first = started(kfp, recipe)
    for number in range(5):
        kfp.versions.insert(0, kfp.versions[-1] | {"display_name": f"v{number}", "pipeline_version_id": f"{number}"})
    assert started(kfp, recipe).version_id == first.version_id


CREATING = [
    ("POST", "/apis/v2beta1/pipelines"),
    ("POST", "/apis/v2beta1/pipelines/upload_version"),
    ("POST", "/apis/v2beta1/experiments"),
    ("POST", "/apis/v2beta1/runs"),
]


def connection(kubernetes: ClusterServer) -> TrainingClient:
    configuration = Configuration(host=kubernetes.url)
    configuration.retries = False
    return TrainingClient(client_configuration=configuration)


@pytest.mark.parametrize("fault", [LOST, 503])
@pytest.mark.parametrize("where", CREATING, ids=lambda where: where[1].rpartition("/")[2])
def test_lost_answer_creates_nothing_twice(
    kfp: KfpServer, kubernetes: ClusterServer, recipe: Path, where: tuple[str, str], fault: int | str
) -> None:
    faults = [fault]
    kfp.cluster = kubernetes
    kfp.fault = lambda method, path: faults.pop() if faults and (method, path) == where else None
    made = started(kfp, recipe, connection=connection(kubernetes))
    assert faults == []
    assert kfp.run()["run_id"] == made.run_id
    assert (len(kfp.pipelines), len(kfp.versions), len(kfp.experiments), len(kubernetes.objects)) == (1, 1, 1, 1)


RUNS = CREATING[-1]


def test_run_that_the_server_could_not_store_is_not_started_again(
    kfp: KfpServer, kubernetes: ClusterServer, recipe: Path
) -> None:
    """The server starts the Workflow before it stores the run, so every repetition would start another one."""
    kfp.cluster = kubernetes
    kfp.fault = lambda method, path: UNSTORED if (method, path) == RUNS else None
    with pytest.raises(UserError, match=r"HTTP 500.*invalid connection; Workflow toy-\w+ was started without a run"):
        started(kfp, recipe, connection=connection(kubernetes))
    assert kfp.requests.count(RUNS) == 1
    assert len(kubernetes.objects) == 1


def test_run_is_not_created_again_if_its_workflow_cannot_be_looked_for(
    kfp: KfpServer, kubernetes: ClusterServer, recipe: Path
) -> None:
    kubernetes.forbidden = {"workflows"}
    kfp.fault = lambda method, path: 503 if (method, path) == RUNS else None
    with pytest.raises(UserError, match=r"whether run small-[\w-]+ was started is unknown.*look for the run in the UI"):
        started(kfp, recipe, connection=connection(kubernetes))
    assert kfp.requests.count(RUNS) == 1


def test_run_is_not_reported_as_failed_if_the_server_is_lost_after_its_creation(
    kfp: KfpServer, kubernetes: ClusterServer, recipe: Path
) -> None:
    def lose(method: str, path: str) -> int | str | None:
        return LOST if (method, path) == RUNS else 503 if RUNS in kfp.requests else None

    kfp.cluster, kfp.fault = kubernetes, lose
    with pytest.raises(UserError, match=r"whether run small-[\w-]+ was started is unknown.*look for the run in the UI"):
        started(kfp, recipe, connection=connection(kubernetes))
    assert len(kfp.runs) == 1


def test_permanent_error_with_status_500_is_reported_at_once(
    kfp: KfpServer, kubernetes: ClusterServer, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kfp.cluster = kubernetes
    monkeypatch.setattr(submission, "shortened", lambda text: "d" * 256)
    with pytest.raises(UserError, match=r"Data too long for column 'Description'.*; Workflow toy-\w+ was started"):
        started(kfp, recipe, connection=connection(kubernetes))
    monkeypatch.undo()

    def forgets(method: str, path: str) -> None:
        if (method, path) == RUNS:
            kfp.versions.clear()

    kfp.fault = forgets
    with pytest.raises(UserError, match=r"HTTP 500\): .*PipelineVersion [\w-]+ not found$"):
        started(kfp, recipe, connection=connection(kubernetes))
    assert kfp.requests.count(RUNS) == 2


def test_run_that_the_server_refuses_as_a_conflict_is_an_error(
    kfp: KfpServer, kubernetes: ClusterServer, recipe: Path
) -> None:
    kfp.fault = lambda method, path: 409 if (method, path) == RUNS else None
    with pytest.raises(UserError, match=r"refuses: HTTP 409 on demand$"):
        started(kfp, recipe, connection=connection(kubernetes))
    assert kfp.requests.count(RUNS) == 1


def test_long_description_is_cut_for_the_run_and_whole_in_the_version(kfp: KfpServer, recipe: Path) -> None:
    text = "A recipe with a long description of what it trains, " * 8 + "and its end."
    recipe.write_text(recipe.read_text() + f"description: {text}\n")
    started(kfp, recipe)
    short = kfp.run()["description"]
    assert len(short) <= 255
    assert short.endswith(" …")
    assert text.startswith(short.removesuffix(" …"))
    assert kfp.versions[0]["description"].startswith(text)


def test_service_account_is_sent_and_named_in_the_version(kfp: KfpServer, recipe: Path) -> None:
    started(kfp, recipe)
    assert kfp.run()["service_account"] == "launcher"
    assert "Start runs with the service account launcher." in kfp.versions[0]["description"]


def test_briefly_unavailable_kfp_server_is_waited_for(kfp: KfpServer, recipe: Path) -> None:
    faults = [503, 502, LOST, 429]
    kfp.fault = lambda method, path: faults.pop() if faults else None
    started(kfp, recipe)
    faults.append(429)
    kfp.fault = lambda method, path: faults.pop() if faults and (method, path) == RUNS else None
    started(kfp, recipe)
    assert faults == []


def test_pipeline_created_by_another_submission_is_used(kfp: KfpServer, recipe: Path) -> None:
    """Another submission makes the pipeline between the look and the creation."""
    twice = iter([True])

    def race(method: str, path: str) -> None:
        if (method, path) == CREATING[0] and next(twice, False):
            kfp.pipelines.append({"pipeline_id": "theirs", "display_name": "toy", "namespace": "team-a"})

    kfp.fault = race
    assert started(kfp, recipe).pipeline_id == "theirs"


def test_shared_pipeline_is_not_taken_for_the_teams(kfp: KfpServer, recipe: Path) -> None:
    kfp.pipelines.append({"pipeline_id": "shared", "display_name": "toy", "namespace": ""})
    assert started(kfp, recipe).pipeline_id != "shared"


def test_namespace_is_required_exactly_for_many_users(recipe: Path, kfp: KfpServer) -> None:
    with refused("cluster.namespace-needed"):
        started(kfp, recipe, namespace=None)
    with pytest.raises(UserError, match=r"HTTP 403.*namespace team-b.*check that the namespace exists and is yours"):
        started(kfp, recipe, namespace="team-b")
    with KfpServer() as single:
        with refused("cluster.single-user"):
            started(single, recipe)
        started(single, recipe, namespace=None)
        assert len(single.runs) == 1


def test_tokens_are_sent_and_never_shown(recipe: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with KfpServer(token="s3cret") as kfp:
        monkeypatch.setenv("KF_PIPELINES_TOKEN", "wrong-one")
        with pytest.raises(UserError, match="HTTP 401") as caught:
            started(kfp, recipe, namespace=None)
        assert not {"wrong-one", "hidden"} & set(re.findall(r"[\w-]+", str(caught.value)))
        monkeypatch.setenv("KF_PIPELINES_TOKEN", "s3cret")
        started(kfp, recipe, namespace=None)
        monkeypatch.delenv("KF_PIPELINES_TOKEN")
        (tmp_path / "token").write_text("s3cret")
        monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "token"))
        started(kfp, recipe, namespace=None)
        assert len(kfp.runs) == 2


def test_unreachable_or_unknown_server_is_reported(recipe: Path) -> None:
    with KfpServer() as gone:
        pass
    with pytest.raises(UserError, match=r"127\.0\.0\.1:\d+ cannot be reached: .*; check --host"):
        started(gone, recipe)
    with pytest.raises(UserError, match=r"give --host URL, or set KF_PIPELINES_ENDPOINT"):
        Server()


def test_login_page_is_not_taken_for_a_kfp_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with KfpServer() as kfp:
        monkeypatch.setattr(kfp, "answer", lambda *_: "<html>")
        with pytest.raises(UserError, match="perhaps a login page"):
            Server(kfp.url)


def test_pipeline_too_large_for_kubernetes_is_refused(
    kfp: KfpServer, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "MAX_BYTES", 5_000)
    with pytest.raises(UserError, match=r"[\d,]+ bytes in 5 steps, and Kubernetes accepts at most 5,000"):
        started(kfp, recipe, "iterations=8")
    assert kfp.runs == []


def test_archived_experiment_is_refused(kfp: KfpServer, recipe: Path) -> None:
    started(kfp, recipe)
    kfp.experiments[0]["storage_state"] = "ARCHIVED"
    with pytest.raises(UserError, match="'toy' is archived"):
        started(kfp, recipe)
