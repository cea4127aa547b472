"""The table *Who may do what* of docs/teams.md, cell by cell, for the teams that the page describes.

Rights are evaluated on the rendered objects (``rights``). The row of MLflow's workspaces is tried on the real server
(``tests/kubeflow/test_mlflow_workspaces.py``), the row of Kubeflow's MLflow on its plugin
(``tests/kubeflow/test_mlflow_of_kubeflow.py``).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from platform_sdk.config.service import ServiceSpec
from tests.teams.files import MANIFESTS, kustomized, read, render
from tests.teams.rights import READ, WRITE, Request, Rights, Subject

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

PAGE = (MANIFESTS.parent / "docs/teams.md").read_text()
OWN, OTHER = "search", "reading"
SUBJECTS = {
    "owner, admin": (Subject("ann@example.com"),),
    "edit": (Subject("bob@example.com"),),
    "view": (Subject("eve@example.com"),),
    "auditor": (Subject("carla@example.com"),),
    "a run's account": (Subject("default-editor", OWN), Subject("launcher", OWN)),
}
JOBS = (
    ("", "pods"), ("", "pods/log"), ("batch", "jobs"), ("kubeflow.org", "pytorchjobs"),
    ("trainer.kubeflow.org", "trainjobs"),
)  # fmt: skip
RUNS = (*JOBS, ("argoproj.io", "workflows"))
SECRETS = (("", "secrets"),)
PEOPLE = (("rbac.authorization.k8s.io", "rolebindings"),)
Cells = dict[str, str]


def table() -> dict[str, Cells]:
    """Return the cells by row and column."""
    lines = [line for line in PAGE[PAGE.index("## Who may do what") :].splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    folder = tmp_path_factory.mktemp("teams")
    return folder, render(yaml.safe_load(text), folder)


@pytest.fixture(scope="module")
def rights(files: tuple[Path, dict[str, str]]) -> Rights:
    folder, written = files
    profiles = [item for name in (OWN, OTHER) for item in read(written[f"profiles/{name}.yaml"])]
    return Rights((*kustomized(folder), *profiles))


def allowed(rights: Rights, subject: Subject, kinds: Any, namespace: str) -> set[tuple[str, str]]:
    """Return the allowed verbs and resources."""
    return {
        (verb, resource)
        for group, resource in kinds
        for verb in (*READ, *WRITE)
        if rights.allow(subject, Request(verb, resource, group, namespace))
    }


def every(verbs: tuple[str, ...], kinds: Any) -> set[tuple[str, str]]:
    return {(verb, resource) for _, resource in kinds for verb in verbs}


def test_table_has_the_tested_rows_and_columns() -> None:
    rows = table()
    assert all(list(cells) == list(SUBJECTS) for cells in rows.values())
    assert list(rows) == [
        "runs, jobs and logs of the account's team", "runs, jobs and logs of another team", "totals of all queues",
        "Secrets of the account's namespace", "people of the team", "the retriever", "MLflow: the team's workspace",
        "the same with `mlflow: kubernetes`",
    ]  # fmt: skip


@pytest.mark.parametrize("column", SUBJECTS)
def test_cells_about_runs_are_the_rendered_rights(rights: Rights, column: str) -> None:
    own, other = (table()[f"runs, jobs and logs of {team} team"][column] for team in ("the account's", "another"))
    for subject in SUBJECTS[column]:
        found, elsewhere = (allowed(rights, subject, RUNS, namespace) for namespace in (OWN, OTHER))
        if own == "make and delete jobs, read pods":
            assert {("create", "pytorchjobs"), ("delete", "pytorchjobs"), ("get", "pods"), ("get", "pods/log")} <= found
            assert not found & every(WRITE, (("", "pods"), ("", "pods/log")))
        else:
            verbs = {"all": (*READ, *WRITE), "read": READ, "read, of every team": READ}[own]
            assert found == every(verbs, RUNS)
        assert elsewhere == {"nothing": set(), "read": every(READ, RUNS)}[other]


@pytest.mark.parametrize("column", SUBJECTS)
def test_cells_about_queues_secrets_and_people_are_the_rendered_rights(rights: Rights, column: str) -> None:
    rows = {name: cells[column] for name, cells in table().items()}
    for subject in SUBJECTS[column]:
        totals = rights.allow(subject, Request("list", "clusterqueues", "kueue.x-k8s.io"))
        assert totals == {"read": True, "nothing": False}[rows["totals of all queues"]]
        secrets = allowed(rights, subject, SECRETS, OWN)
        of_file = "its pods may mount `run-access` and the team's `secrets`"  # it reads none through the API server
        expected = {"all": every((*READ, *WRITE), SECRETS), "nothing": set(), of_file: set()}
        assert secrets == expected[rows["Secrets of the account's namespace"]]
        people = {verb for verb, _ in allowed(rights, subject, PEOPLE, OWN)} & set(WRITE)
        assert people == {"add, remove": set(WRITE), "nothing": set()}[rows["people of the team"]]


def test_cells_about_the_retriever_are_the_rendered_collections(files: tuple[Path, dict[str, str]]) -> None:
    cells = table()["the retriever"]
    assert cells.pop("a run's account") == "the team's collections"
    assert set(cells.values()) == {"nothing"}  # its tokens are those of the teams' runs
    served = ServiceSpec.model_validate(yaml.safe_load(files[1]["cluster/service.yaml"]))
    assert {one.name: set(one.teams or ()) for one in served.collections} == {"hotpotqa": {OWN, OTHER}}
