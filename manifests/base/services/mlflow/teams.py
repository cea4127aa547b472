"""Create MLflow's users, workspaces and roles; the job ``mlflow-users`` runs this file.

A password is an entry of the folder ``USERS`` (the Secret ``mlflow-users``): its name is the user's, with ``_at_`` for
``@``, which a Secret's keys cannot contain. Teams are read from the file ``TEAMS``, which holds no secret::

    {
        "teams": {
            "search": {"runs": "search-runs", "members": ["ann@example.com", "bob@example.com"]}
        },
        "auditors": ["carla@example.com"]
    }

``teams``: each team's name, which is also its workspace's. ``runs`` is the user that the team's runs log in as
(default: the team's name), ``members`` are its people. ``auditors`` read all workspaces. Every key but ``teams`` may be
absent. Without the file, all users share the workspace ``default``, as on a server without workspaces.

The file is the whole truth for the roles ``hopforge-runs``, ``hopforge-members`` and ``hopforge-auditors``: a person
who is no longer in it loses the role, and every right to single experiments and models in the team's workspace. A
team's workspace is never deleted. A repeated run changes nothing.
"""

import json
import os
import time
from pathlib import Path

import requests

URL = os.environ["MLFLOW_URL"]
ADMIN = ("admin", os.environ["ADMIN_PASSWORD"])
SHARED = "default"
RUNS, MEMBERS, AUDITORS = "hopforge-runs", "hopforge-members", "hopforge-auditors"
USE = ("workspace", "*", "USE")
READ = (("experiment", "*", "READ"), ("registered_model", "*", "READ"))
GRANTS = {RUNS: {USE}, MEMBERS: {USE, *READ}, AUDITORS: set(READ)}


def main() -> None:
    wait_for_server()
    passwords = read_passwords(Path(os.environ["USERS"]))
    for user, password in passwords.items():
        create_user(user, password)
    path = Path(os.environ["TEAMS"])
    assignments = read_teams(path) if path.is_file() else {(SHARED, MEMBERS): set(passwords)}
    known = {user["username"] for user in call("GET", "2.0/mlflow/users/list")["users"]}
    for workspace in sorted({workspace for workspace, _ in assignments} - {SHARED}):
        create_workspace(workspace)
    for role in call("GET", "3.0/mlflow/roles/list")["roles"]:
        if role["name"] in GRANTS and (role["workspace"], role["name"]) not in assignments:
            assign(role, set())
    withdraw_personal_grants(known, assignments)
    missing = []
    for (workspace, name), users in sorted(assignments.items()):
        role = create_role(workspace, name)
        assign(role, users & known)
        for user in sorted(users - known):
            print(f"{user} has no password in the Secret mlflow-users (entry {user.replace('@', '_at_')})")
            missing += [user] if name == RUNS else []
        print(f"workspace {workspace}: {name}: {', '.join(sorted(users & known)) or 'nobody'}")
    if missing:
        raise SystemExit(f"runs cannot log in as {', '.join(missing)}; add them to the Secret and run the job again")


def read_passwords(folder: Path) -> dict[str, str]:
    """Return the passwords by user: a Secret's key has _at_ for the @ of an address."""
    return {"@".join(entry.name.rsplit("_at_", 1)): entry.read_text().strip() for entry in sorted(folder.glob("[!.]*"))}


def wait_for_server() -> None:
    """Return when MLflow answers; it starts at the same time and takes longer. The job's deadline ends the wait."""
    while True:
        try:
            response = requests.get(URL + "/health", timeout=10)
            if response.ok:
                return
            reason = f"HTTP {response.status_code}"
        except requests.RequestException as error:
            reason = type(error).__name__
        print(f"waiting for MLflow at {URL}: {reason}", flush=True)
        time.sleep(5)


def read_teams(path: Path) -> dict:
    """Return the users of every role of every workspace."""
    content = json.loads(path.read_text())
    auditors = set(content.get("auditors", ()))
    assignments = {}
    for team, entry in content["teams"].items():
        if team == SHARED:
            raise SystemExit(f"{path}: a team cannot have the name {SHARED}, MLflow's own workspace; rename the team")
        runs, members = entry.get("runs", team), set(entry.get("members", ()))
        if runs in members | auditors:
            raise SystemExit(f"{path}: teams.{team}.runs: {runs} is also a person; name another user for the runs")
        assignments |= {(team, RUNS): {runs}, (team, MEMBERS): members, (team, AUDITORS): auditors}
    accounts = [user for (_, role), users in assignments.items() if role == RUNS for user in users]
    if doubled := sorted({user for user in accounts if accounts.count(user) > 1}):
        raise SystemExit(f"{path}: {', '.join(doubled)}: runs of two teams; each team needs a user of its own")
    return assignments


def create_user(name: str, password: str) -> None:
    if name == ADMIN[0]:
        raise SystemExit(f"user {name}: is MLflow's administrator; rename the team or the person")
    user = {"username": name, "password": password}
    response = send("POST", "2.0/mlflow/users/create", json=user)
    if "RESOURCE_ALREADY_EXISTS" in response.text:
        response = send("PATCH", "2.0/mlflow/users/update-password", json=user)
    if not response.ok:
        raise SystemExit(f"user {name}: HTTP {response.status_code}: {response.text}")
    print("user", name, "may log in")


def create_workspace(name: str) -> None:
    response = send("POST", "3.0/mlflow/workspaces", json={"name": name})
    if not response.ok and "RESOURCE_ALREADY_EXISTS" not in response.text:
        raise SystemExit(f"workspace {name}: HTTP {response.status_code}: {response.text}")


def create_role(workspace: str, name: str) -> dict:
    """Return the role with exactly its grants; create it unless it exists."""
    roles = call("GET", "3.0/mlflow/roles/list", params={"workspace": workspace})["roles"]
    role = next((role for role in roles if role["name"] == name), None)
    if role is None:
        role = call("POST", "3.0/mlflow/roles/create", json={"workspace": workspace, "name": name})["role"]
    grants = call("GET", "3.0/mlflow/roles/permissions/list", params={"role_id": role["id"]})["role_permissions"]
    present = {(grant["resource_type"], grant["resource_pattern"], grant["permission"]): grant for grant in grants}
    for grant in sorted(present.keys() - GRANTS[name]):
        call("DELETE", "3.0/mlflow/roles/permissions/remove", json={"role_permission_id": present[grant]["id"]})
    for kind, pattern, permission in sorted(GRANTS[name] - present.keys()):
        grant = {"role_id": role["id"], "resource_type": kind, "resource_pattern": pattern, "permission": permission}
        call("POST", "3.0/mlflow/roles/permissions/add", json=grant)
    return role


def assign(role: dict, users: set) -> None:
    """Give the role to these users and take it from all others."""
    assignments = call("GET", "3.0/mlflow/roles/users/list", params={"role_id": role["id"]})["assignments"]
    names = {user["id"]: user["username"] for user in call("GET", "2.0/mlflow/users/list")["users"]}
    present = {names[assignment["user_id"]] for assignment in assignments}
    for user in sorted(users - present):
        call("POST", "3.0/mlflow/roles/assign", json={"username": user, "role_id": role["id"]})
    for user in sorted(present - users):
        call("DELETE", "3.0/mlflow/roles/unassign", json={"username": user, "role_id": role["id"]})
        print(f"workspace {role['workspace']}: {role['name']}: {user} removed")


def withdraw_personal_grants(known: set, assignments: dict) -> None:
    """Remove the rights to single objects, which MLflow gives to their creator, from users who left a workspace."""
    present = call("GET", "3.0/mlflow/roles/list")["roles"]
    managed = {role["workspace"] for role in present if role["name"] in GRANTS} - {SHARED}
    for user in sorted(known):
        own = {workspace for (workspace, role), users in assignments.items() if role != AUDITORS and user in users}
        for grant in call("GET", "3.0/mlflow/users/permissions/list", params={"username": user})["permissions"]:
            if grant["role_name"].startswith("__user_") and grant["workspace"] in managed - own:
                revoked = {"username": user, "resource_type": grant["resource_type"]}
                revoked["resource_id"] = grant["resource_pattern"]
                header = {"X-MLFLOW-WORKSPACE": grant["workspace"]}
                call("POST", "3.0/mlflow/users/permissions/revoke", json=revoked, headers=header)
                kind = grant["resource_type"]
                print(f"workspace {grant['workspace']}: {kind} {grant['resource_pattern']}: {user} removed")


def call(method: str, path: str, **content: object) -> dict:
    """Return the response to a request that has to succeed."""
    response = send(method, path, **content)
    if not response.ok:
        raise SystemExit(f"{method} {path}: HTTP {response.status_code}: {response.text}")
    return response.json() if response.content else {}


def send(method: str, path: str, **content: object) -> requests.Response:
    return requests.request(method, f"{URL}/api/{path}", auth=ADMIN, timeout=60, **content)


if __name__ == "__main__":
    main()
