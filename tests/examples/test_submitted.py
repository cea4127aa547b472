"""The example programs' recipes on a cluster: refused with the remedy, or planned and submitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kfp.kubernetes", reason="the extra [cluster] is not installed")
pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.kubeflow.remote.connection import Server
from platform_sdk.kubeflow.remote.submit import submit
from platform_sdk.methods.faults import errors
from platform_sdk.planning.cluster import plan_on_cluster
from platform_sdk.planning.jobs import Place
from tests.kubeflow.remote.kfp_server import KfpServer

ROOT = Path(__file__).parents[2]
RECIPES = [*sorted((ROOT / "examples/programs").glob("*.yaml")), ROOT / "pipelines/program/world.yaml"]
SHIPPED = read_as(ClusterSpec, ROOT / "pipelines/cluster.yaml")
RETRIEVER = "retrieval.url=http://retriever.hopforge-services:8080"
IMAGE = "agent.image=registry.example/team/agent:1"


def one_gpu() -> ClusterSpec:
    """Return the shipped cluster with one process in a job."""
    return with_job(resources=SHIPPED.job.resources.model_copy(update={"gpus": 1}))


def with_job(**changes: Any) -> ClusterSpec:
    """Return the shipped cluster with changes of its jobs, which are PyTorchJobs."""
    return SHIPPED.model_copy(update={"job": SHIPPED.job.model_copy(update={"backend": "pytorchjob", **changes})})


@pytest.fixture
def kfp(monkeypatch: pytest.MonkeyPatch) -> Iterator[KfpServer]:
    for name in ("ENDPOINT", "UI_ENDPOINT", "TOKEN", "COOKIES", "SA_TOKEN_PATH", "SSL_CA_CERT"):
        monkeypatch.delenv(f"KF_PIPELINES_{name}", raising=False)
    with KfpServer(namespaces=("team-a",)) as server:
        yield server


def images(value: Any) -> Iterator[str]:
    """Yield the images of the containers in an object."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from images(item)
    if isinstance(value, dict) and isinstance(value.get("image"), str):
        yield value["image"]


def ids(path: Any) -> str:
    return path.stem if isinstance(path, Path) else ""


@pytest.mark.parametrize("recipe", RECIPES, ids=ids)
def test_example_is_refused_only_where_several_processes_would_search_vectors(recipe: Path) -> None:
    assert errors(load_recipe(recipe), SHIPPED) == [], "the method lexical searches words"
    [problem] = errors(load_recipe(recipe, ["retrieval.method=passages"]), SHIPPED)
    assert problem.field == "parameters.retrieval"
    for remedy in ("retrieval.url (hopforge serve retriever)", "take one process", "job.resources.gpus"):
        assert remedy in problem.message


@pytest.mark.parametrize("recipe", RECIPES, ids=ids)
@pytest.mark.parametrize(
    ("cluster", "overrides"),
    [(one_gpu(), ()), (with_job(), ()), (with_job(), (RETRIEVER,)), (with_job(), (RETRIEVER, IMAGE))],
    ids=["one process", "several", "retriever", "image"],
)
def test_example_is_planned_and_submitted(
    recipe: Path, cluster: ClusterSpec, overrides: tuple[str, ...], kfp: KfpServer
) -> None:
    loaded = load_recipe(recipe, overrides, cluster.environment)
    assert errors(loaded, cluster) == []
    plan = plan_on_cluster(loaded, Place(cluster, "team-a"), None)
    assert plan.problems == ()
    sidecars = [
        image for job in plan.jobs for image in images(job.manifest) if image.startswith("registry.example/team")
    ]
    assert bool(sidecars) == (IMAGE in overrides)
    submit(Server(kfp.url, sleep=lambda _: None), recipe, overrides, cluster, namespace="team-a")
    started = kfp.run()
    assert started["display_name"].startswith(loaded.name)
    parameters = started["runtime_config"]["parameters"]
    assert parameters["b1_model_start"] == loaded.parameters["model"]
    assert parameters["c1_method_updates"] == loaded.parameters["online"]["updates"]
