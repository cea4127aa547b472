"""The commands of docs/teams.md."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.document import read_as
from platform_sdk.config.recipe import load_recipe
from platform_sdk.planning.cluster import plan_on_cluster
from platform_sdk.planning.jobs import Place
from platform_sdk.teams import mlflow
from platform_sdk.teams.check import RUN_ACCESS
from platform_sdk.teams.folder import read_teams, render_into
from tests.kubeflow.documented import blocks, run_all, secrets_made
from tests.teams.files import MANIFESTS

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

PAGE = MANIFESTS.parent / "docs/teams.md"
SERVICES = "hopforge-services"


def test_documented_teams_have_no_warning_and_their_documented_runs_can_work(tmp_path: Path) -> None:
    text = PAGE.read_text()
    [content] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "teams.yaml").write_text(content)
    rendering = render_into(tmp_path / "teams.yaml", tmp_path / "cluster")
    assert (rendering.warnings, rendering.teams) == ((), ("reading", "search"))
    runs = re.findall(r"hopforge (plan|submit) (\S+) --namespace (\S+) --cluster (\S+)", text)
    assert {command for command, *_ in runs} == {"plan", "submit"}
    for _, recipe, namespace, cluster in runs:
        spec = read_as(ClusterSpec, tmp_path / cluster)
        assert spec.environment["MLFLOW_WORKSPACE"] == namespace
        planned = plan_on_cluster(load_recipe(MANIFESTS.parent / recipe, (), spec.environment), Place(spec, namespace))
        assert planned.jobs
        assert planned.problems == ()


def test_documented_secrets_are_those_that_services_and_runs_of_every_team_read(tmp_path: Path) -> None:
    [commands] = [block for block in blocks(PAGE.read_text()) if "secrets/" in block]
    run_all(tmp_path, [commands, "cp secrets.json first.json", commands])
    first, second = (secrets_made(tmp_path / name) for name in ("first.json", "secrets.json"))
    assert second == first, "repeated commands keep passwords"
    spec = read_teams(MANIFESTS / "teams.yaml")
    assert set(first) == {
        *((SERVICES, name) for name in ("retriever-tokens", "log-tokens", "mlflow-users")),
        *((team, "run-access") for team in spec.teams),
    }
    for team in spec.teams:
        access = first[team, "run-access"]
        assert set(access) == set(RUN_ACCESS)
        assert access["retriever-token"] == first[SERVICES, "retriever-tokens"][team]
        assert access["log-token"] == first[SERVICES, "log-tokens"][team]
        assert access["mlflow-username"] == mlflow.users(spec)["teams"][team]["runs"]
        assert access["mlflow-password"] == first[SERVICES, "mlflow-users"][team]
    assert len(set(first[SERVICES, "retriever-tokens"].values())) == len(spec.teams)
    users = {name.replace("_at_", "@") for name in first[SERVICES, "mlflow-users"]} - set(spec.teams)
    assert users <= {user for team in spec.teams.values() for _, user, _ in team.members.roles()}
