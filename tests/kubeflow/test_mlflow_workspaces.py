"""MLflow's workspaces: the manifest's server and its job, two teams with a member each, and an auditor."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import typer

from platform_sdk.cli import teams as command
from platform_sdk.teams.cluster import Cluster
from platform_sdk.teams.folder import read_teams
from platform_sdk.teams.usage import Usage, duration, read_usage
from platform_sdk.tracking import server as tracking_server
from tests.kubeflow.mlflow_server import Server, mlflow_server
from tests.kubeflow.rendered import MANIFESTS
from tests.teams.api_server import Server as ApiServer
from tests.teams.test_role_table import table

pytestmark = [
    pytest.mark.slow,  # every request hashes a password
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

PASSWORD = "a-password-of-{}"
TEAMS = {
    "teams": {
        "search": {"runs": "search-runs", "members": ["ann@example.com", "without-password@example.com"]},
        "maths": {"members": ["bob@example.com"]},
    },
    "auditors": ["carla@example.com"],
}
RUNS, MEMBER, AUDITOR = "search-runs", "ann@example.com", "carla@example.com"
OTHER_RUNS, OTHER_MEMBER = "maths", "bob@example.com"
USERS = (RUNS, MEMBER, AUDITOR, OTHER_RUNS, OTHER_MEMBER)
PASSWORDS = {user.replace("@", "_at_"): PASSWORD.format(user) for user in USERS}

Answer = requests.Response


class Client:
    """Requests of one user in one workspace."""

    def __init__(self, server: Server, user: str, workspace: str | None = "search") -> None:
        self.server, self.user = server, user
        self._headers = {} if workspace is None else {"X-MLFLOW-WORKSPACE": workspace}

    def get(self, path: str, **parameters: Any) -> Answer:
        return self._request("GET", f"api/2.0/mlflow/{path}", params=parameters)

    def post(self, path: str, **body: Any) -> Answer:
        return self._request("POST", f"api/2.0/mlflow/{path}", json=body)

    def patch(self, path: str, **body: Any) -> Answer:
        return self._request("PATCH", f"api/2.0/mlflow/{path}", json=body)

    def delete(self, path: str, **body: Any) -> Answer:
        return self._request("DELETE", f"api/2.0/mlflow/{path}", json=body)

    def workspaces(self) -> Any:
        return self._request("GET", "api/3.0/mlflow/workspaces").json()

    def file(self, method: str, path: str, **content: Any) -> Answer:
        return self._request(method, f"api/2.0/mlflow-artifacts/artifacts/{path}", **content)

    def file_of_run(self, run: str, path: str) -> Answer:
        return self._request("GET", "get-artifact", params={"run_id": run, "path": path})

    def _request(self, method: str, path: str, **content: Any) -> Answer:
        auth = (self.user, PASSWORD.format(self.user))
        return requests.request(
            method, f"{self.server.url}/{path}", auth=auth, headers=self._headers, timeout=30, **content
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("flask_wtf", reason="the extra [cluster] is not installed")
    folder = tmp_path_factory.mktemp("mlflow")
    with mlflow_server(folder) as server:
        first = server.create_users(folder / "users", PASSWORDS, TEAMS)
        assert first.returncode == 0, first.stderr
        assert "without-password@example.com has no password in the Secret mlflow-users" in first.stdout
        roles = grants_of(server)
        second = server.create_users(folder / "users", PASSWORDS, TEAMS)
        assert (second.returncode, second.stdout) == (0, first.stdout)
        assert grants_of(server) == roles
        yield server


def grants_of(server: Server) -> Any:
    """Return the names and grants of all roles, as the administrator."""
    answer = requests.get(f"{server.url}/api/3.0/mlflow/roles/list", auth=server.admin, timeout=30)
    return answer.json()["roles"]


@pytest.fixture(scope="module")
def content(server: Server) -> dict[str, str]:
    return make_content(Client(server, RUNS))


def make_content(client: Client) -> dict[str, str]:
    """Create a run with a metric and a file, and a registered model with a version."""
    made = client.post("experiments/create", name="mygo")
    assert made.ok, made.text
    experiment = made.json()["experiment_id"]
    run = client.post("runs/create", experiment_id=experiment).json()["run"]["info"]
    assert client.post("runs/log-metric", run_id=run["run_id"], key="em", value=0.5, timestamp=1).ok
    path = run["artifact_uri"].removeprefix("mlflow-artifacts:/")
    assert client.file("PUT", f"{path}/report.html", data=b"report").ok
    assert client.post("registered-models/create", name="agent").ok
    assert client.post("model-versions/create", name="agent", source=run["artifact_uri"], run_id=run["run_id"]).ok
    return {"experiment": experiment, "run": run["run_id"], "path": path}


def reads(client: Client, content: dict[str, str]) -> dict[str, bool]:
    """Return the reading requests that gave something of the team's."""
    experiment, run, path = content["experiment"], content["run"], content["path"]
    search = {"experiment_ids": [experiment], "max_results": 10}
    return {
        "get experiment": client.get("experiments/get", experiment_id=experiment).ok,
        "experiment by name": client.get("experiments/get-by-name", experiment_name="mygo").ok,
        "list experiments": "mygo" in client.post("experiments/search", max_results=10).text,
        "get run": client.get("runs/get", run_id=run).ok,
        "search runs": run in client.post("runs/search", **search).text,
        "metric history": client.get("metrics/get-history", run_id=run, metric_key="em").ok,
        "list artifacts": client.get("artifacts/list", run_id=run).ok,
        "download artifact": client.file("GET", f"{path}/report.html").ok,
        "artifact by run": client.file_of_run(run, "report.html").ok,
        "get model": client.get("registered-models/get", name="agent").ok,
        "list models": "agent" in client.get("registered-models/search").text,
        "get version": client.get("model-versions/get", name="agent", version="1").ok,
        "list versions": "agent" in client.get("model-versions/search").text,
        "version's files": client.get("model-versions/get-download-uri", name="agent", version="1").ok,
    }


def changes(client: Client, content: dict[str, str]) -> dict[str, bool]:
    """Return the changing requests that succeeded."""
    tag = {"key": "a", "value": "b"}
    experiment, run, path = content["experiment"], content["run"], content["path"]
    return {
        "rename experiment": client.post("experiments/update", experiment_id=experiment, new_name="x").ok,
        "tag experiment": client.post(
            "experiments/set-experiment-tag", experiment_id=experiment, key="a", value="b"
        ).ok,
        "create run": client.post("runs/create", experiment_id=experiment).ok,
        "end run": client.post("runs/update", run_id=run, status="FAILED").ok,
        "log metric": client.post("runs/log-metric", run_id=run, key="em", value=1.0, timestamp=2).ok,
        "tag run": client.post("runs/set-tag", run_id=run, **tag).ok,
        "overwrite artifact": client.file("PUT", f"{path}/report.html", data=b"changed").ok,
        "delete artifact": client.file("DELETE", f"{path}/report.html").ok,
        "create version": client.post(
            "model-versions/create", name="agent", source=f"mlflow-artifacts:/{path}", run_id=run
        ).ok,
        "tag version": client.post("model-versions/set-tag", name="agent", version="1", **tag).ok,
        "set alias": client.post("registered-models/alias", name="agent", alias="champion", version="1").ok,
        "describe model": client.patch("registered-models/update", name="agent", description="x").ok,
        "delete version": client.delete("model-versions/delete", name="agent", version="1").ok,
        "rename model": client.post("registered-models/rename", name="agent", new_name="x").ok,
        "delete model": client.delete("registered-models/delete", name="x").ok,
        "delete run": client.post("runs/delete", run_id=run).ok,
        "delete experiment": client.post("experiments/delete", experiment_id=experiment).ok,
    }


def creates(client: Client) -> dict[str, bool]:
    """Return the creating requests that succeeded."""
    name = f"of-{client.user}"
    return {
        "experiment": client.post("experiments/create", name=name).ok,
        "model": client.post("registered-models/create", name=name).ok,
    }


@pytest.mark.parametrize(
    ("user", "workspace"),
    [(OTHER_RUNS, "search"), (OTHER_RUNS, "maths"), (OTHER_MEMBER, "search"), (OTHER_MEMBER, None)],
)
def test_another_team_reads_and_changes_nothing(
    server: Server, content: dict[str, str], user: str, workspace: str | None
) -> None:
    client = Client(server, user, workspace)
    assert [request for request, done in reads(client, content).items() if done] == []
    assert [request for request, done in changes(client, content).items() if done] == []


@pytest.mark.parametrize("user", [OTHER_RUNS, OTHER_MEMBER, AUDITOR])
def test_only_the_team_creates_in_its_workspace(server: Server, user: str) -> None:
    for workspace in ("search", None):
        assert not any(creates(Client(server, user, workspace)).values())


@pytest.mark.parametrize("user", [MEMBER, AUDITOR])
def test_members_and_auditors_read_all_of_the_teams_runs_and_change_nothing(
    server: Server, content: dict[str, str], user: str
) -> None:
    client = Client(server, user)
    assert [request for request, done in reads(client, content).items() if not done] == []
    assert [request for request, done in changes(client, content).items() if done] == []


def test_members_and_runs_create_in_their_own_workspace_with_names_of_another_team(
    server: Server, content: dict[str, str]
) -> None:
    assert all(creates(Client(server, MEMBER)).values())
    for user in (OTHER_RUNS, OTHER_MEMBER):
        client = Client(server, user, "maths")
        assert all(creates(client).values())


def test_runs_read_and_change_all_of_their_own(server: Server) -> None:
    """Names are those of the other team's experiment and model."""
    client = Client(server, OTHER_RUNS, "maths")
    own = make_content(client)
    assert [request for request, done in reads(client, own).items() if not done] == []
    assert [request for request, done in changes(client, own).items() if not done] == []


@pytest.mark.parametrize("column", ["owner, admin", "edit", "view", "auditor", "a run's account"])
def test_documented_cell_is_what_the_user_may_do(server: Server, content: dict[str, str], column: str) -> None:
    """The row of docs/teams.md about a team's workspace; MLflow does not know the roles of members."""
    row = table()["MLflow: the team's workspace"]
    said = row["owner, admin"] if row[column] == "the same" else row[column]
    reading, writing, creating = {
        "read; write to what they log themselves": (True, False, True),
        "read, of every team": (True, False, False),
        "write": (True, True, True),
    }[said]
    client = Client(server, {"auditor": AUDITOR, "a run's account": RUNS}.get(column, MEMBER))
    assert set(reads(client, content).values()) == {reading}
    assert client.post("runs/log-metric", run_id=content["run"], key="em", value=0.5, timestamp=1).ok == writing
    assert client.post("runs/set-tag", run_id=content["run"], key="a", value="b").ok == writing
    assert client.post("experiments/create", name=f"of {column}").ok == creating
    if not writing:
        assert not any(changes(client, content).values())


def test_status_prints_the_gpu_hours_of_each_workspace(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kubeflow.training import TrainingClient
    from kubernetes.client import Configuration

    client = Client(server, OTHER_RUNS, "maths")
    experiment = client.post("experiments/create", name="printed").json()["experiment_id"]
    log_run(client, experiment, int(time.time() * 1000), 2.25, whole=True)
    file = tmp_path / "teams.yaml"
    file.write_text((MANIFESTS / "teams.yaml").read_text().replace("  reading:", "  maths:"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", OTHER_MEMBER)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD.format(OTHER_MEMBER))
    with ApiServer({}) as kueue:  # a cluster without queues
        connection = TrainingClient(client_configuration=Configuration(host=kueue.url))
        monkeypatch.setattr(Cluster, "here", classmethod(lambda kind: Cluster(connection)))
        with pytest.raises(typer.Exit) as left:
            command.status(file, "7d", as_json=False)
    assert left.value.exit_code == 3  # the queues and the other workspace could not be read
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines() if line.endswith(".25")] == ["maths"]
    assert "GPU-hours of search: MLflow shows this user no workspace of that name" in printed.err


def test_gpu_hours_of_teams_are_those_of_the_runs_that_a_user_may_see(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking_server, "PAGE", 2)  # several pages of runs
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    team = next(iter(read_teams(MANIFESTS / "teams.yaml").teams.values()))
    spec = read_teams(MANIFESTS / "teams.yaml").model_copy(update={"teams": {"search": team, "maths": team}})

    def usage_for(user: str) -> Usage:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", user)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD.format(user))
        return read_usage(spec, duration("7d"))

    before = {one.team: one for one in usage_for(AUDITOR).teams}  # other tests log runs on this server too
    now = int(time.time() * 1000)
    for user, workspace, hours in ((RUNS, "search", (0.5, 3.0, None)), (OTHER_RUNS, "maths", (1.25,))):
        client = Client(server, user, workspace)
        experiment = client.post("experiments/create", name="hours").json()["experiment_id"]
        for used in hours:
            log_run(client, experiment, now, used, whole=True)
        log_run(client, experiment, now, 100.0, whole=False)
        log_run(client, experiment, now - 8 * DAY, 100.0, whole=True)
    logged = {"maths": (1, 1.25), "search": (3, 3.5)}
    for user, teams in ((AUDITOR, ("maths", "search")), (MEMBER, ("search",)), (OTHER_MEMBER, ("maths",))):
        usage = usage_for(user)
        new = {
            one.team: (one.runs - before[one.team].runs, one.gpu_hours - before[one.team].gpu_hours)
            for one in usage.teams
        }
        assert new == {name: logged[name] for name in teams}
        assert len(usage.unseen) == 2 - len(teams)


DAY = 24 * 3600 * 1000


def log_run(client: Client, experiment: str, start: int, gpu_hours: float | None, *, whole: bool) -> None:
    """Log a run as hopforge does: ``whole``, or of a step."""
    tags = [{"key": "hopforge.run_dir", "value": "/workspace/runs/r"}] if whole else []
    made = client.post("runs/create", experiment_id=experiment, start_time=start, tags=tags)
    run = made.json()["run"]["info"]["run_id"]
    if gpu_hours is not None:
        assert client.post("runs/log-metric", run_id=run, key="gpu_hours", value=gpu_hours, timestamp=start).ok


def test_a_user_lists_only_the_workspaces_of_its_roles(server: Server) -> None:
    lists = {user: Client(server, user).workspaces() for user in USERS}
    names = {user: {one["name"] for one in content["workspaces"]} for user, content in lists.items()}
    assert names == {
        RUNS: {"search"}, MEMBER: {"search"}, OTHER_RUNS: {"maths"}, OTHER_MEMBER: {"maths"},
        AUDITOR: {"search", "maths"},
    }  # fmt: skip


def test_no_user_of_a_team_administers_users_roles_or_workspaces(server: Server) -> None:
    role = grants_of(server)[0]["id"]
    for user in USERS:
        client = Client(server, user)
        assert client.post("users/create", username="x", password="a-long-password").status_code == 403
        for path, body in {
            "roles/create": {"workspace": "search", "name": "x"},
            "roles/assign": {"username": user, "role_id": role},
            "workspaces": {"name": "x-team"},
            "users/permissions/grant": {
                "username": user, "resource_type": "experiment", "resource_id": "*", "permission": "MANAGE"
            },
        }.items():  # fmt: skip
            answer = client._request("POST", f"api/3.0/mlflow/{path}", json=body)
            assert answer.status_code in (400, 403), (user, path, answer.text)


def test_a_person_who_left_the_file_loses_everything_in_the_workspace(tmp_path: Path) -> None:
    pytest.importorskip("flask_wtf", reason="the extra [cluster] is not installed")
    with mlflow_server(tmp_path) as server:
        users = tmp_path / "users"
        assert server.create_users(users, PASSWORDS, TEAMS).returncode == 0
        member, auditor = Client(server, MEMBER), Client(server, AUDITOR)
        experiment = member.post("experiments/create", name="own").json()["experiment_id"]
        assert member.post("runs/create", experiment_id=experiment).ok
        assert auditor.get("experiments/get", experiment_id=experiment).ok
        search = {"runs": "search-runs", "members": []}
        done = server.create_users(users, {}, {"teams": {"search": search}})
        assert done.returncode == 0, done.stderr
        for client in (member, auditor):
            assert client.get("experiments/get", experiment_id=experiment).status_code == 403
            assert client.post("runs/create", experiment_id=experiment).status_code == 403
            assert not any(creates(client).values())
        # The team maths is no longer in the file: its users may not use its workspace, which remains.
        assert not any(creates(Client(server, OTHER_RUNS, "maths")).values())
        assert all(creates(Client(server, RUNS)).values())
        listed = requests.get(f"{server.url}/api/3.0/mlflow/workspaces", auth=server.admin, timeout=30).json()
        assert "maths" in {one["name"] for one in listed["workspaces"]}


@pytest.mark.parametrize(
    ("teams", "message"),
    [
        ({"teams": {"default": {}}}, "a team cannot have the name default"),
        ({"teams": {"search": {"members": ["search"]}}}, "teams.search.runs: search is also a person"),
        ({"teams": {"a1": {"runs": "x"}, "b1": {"runs": "x"}}}, "x: runs of two teams"),
        ({"teams": {"other": {"runs": "other-runs"}}}, "runs cannot log in as other-runs"),
    ],
)
def test_a_wrong_file_of_teams_stops_the_job(
    server: Server, tmp_path: Path, teams: dict[str, Any], message: str
) -> None:
    done = server.create_users(tmp_path / "users", {}, teams)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
