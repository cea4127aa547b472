"""Rights of accounts: what their programs ask of the API server, and nothing more."""

from __future__ import annotations

import inspect
import re
import shutil
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from kubeflow.training import TrainingClient
from kubernetes.client import Configuration

from platform_sdk.cli.gc import gc
from platform_sdk.config.cluster import JobSpec, Workspace
from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job import here
from platform_sdk.kubeflow.training_job.backend import BACKENDS, api_for, choose_backend
from platform_sdk.kubeflow.training_job.description import Description
from platform_sdk.kubeflow.training_job.launcher import API_PATIENCE, run_job
from platform_sdk.kubeflow.training_job.reaper import SILENT_SECONDS, reap
from tests.kubeflow.rendered import built
from tests.kubeflow.training_job.api_server import ApiServer
from tests.kubeflow.training_job.virtual_clock import VirtualClock

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "WATCH": "watch"}
Right = tuple[str, str, str]  # group, resource, verb


def granted(account: str, roles: set[str] | None = None) -> set[Right]:
    """Return the rights of a service account, by all roles that are bound to it or by these alone."""
    items = built("base")
    bound = {
        item["roleRef"]["name"]
        for item in items
        if item["kind"] == "RoleBinding" and account in {subject["name"] for subject in item["subjects"]}
    }
    rules = [
        rule
        for item in items
        if item["kind"] == "Role" and item["metadata"]["name"] in (bound if roles is None else bound & roles)
        for rule in item["rules"]
    ]
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def asked(server: ApiServer) -> set[Right]:
    """The rights that the requests took."""
    rights = set()
    for method, path in server.requests:
        parts = path.strip("/").split("/")
        if len(parts) == 3:  # discovery, which every account may ask
            continue
        group, rest = ("", parts[4:]) if parts[0] == "api" else (parts[1], parts[5:])
        assert parts[2 if parts[0] == "api" else 3] == "namespaces"
        resource = "/".join(rest[::2])
        rights.add((group, resource, VERBS.get(method) or ("get" if len(rest) > 1 else "list")))
    return rights


def connection(server: ApiServer) -> TrainingClient:
    return TrainingClient(client_configuration=Configuration(host=server.url))


def follow(backend: Any, server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that fails with its pod, another attempt that replaces it and waits too long, and who owns its pod."""
    indexed = backend == "job"
    spec = JobSpec(backend=None if indexed else backend, image="i", queue="q", queue_timeout_seconds=60)
    job = Description(
        run="r", step="s", namespace="n", module="m", spec_file="/w/s", spec=spec, workspace=Workspace(claim="w"),
        indexed=indexed,
    )  # fmt: skip
    undecided = replace(job, spec=spec.model_copy(update={"backend": None}), indexed=False)
    choose_backend(undecided, connection(server), lambda text: None)
    server.objects["localqueues", "q"] = {"metadata": {"name": "q"}}
    api, clock = api_for(job, connection(server)), VirtualClock(server)
    ended = {"name": "c", "state": {"terminated": {"exitCode": 1}}}
    labels = {BACKENDS[backend].POD_SELECTOR: job.name}

    def fail() -> None:
        server.pods["p"] = {"metadata": {"name": "p", "labels": labels}, "status": {"containerStatuses": [ended]}}
        server.condition(server.job(BACKENDS[backend].PLURAL), "Failed")

    clock.at(1, fail)
    with pytest.raises(UserError, match="exit code 1"):
        run_job(job, api, lambda text: None, clock)
    with pytest.raises(UserError, match="waited for more than 60 s"):
        run_job(job, api, lambda text: None, clock)
    server.pods["step-1"] = {"metadata": {"name": "step-1"}}
    monkeypatch.setenv("KFP_POD_NAME", "step-1")
    here.owner_of_this_pod(api)


def test_step_roles_grant_exactly_the_requests_of_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    used = set()
    for backend in BACKENDS:
        with ApiServer() as server:
            follow(backend, server, monkeypatch)
            used |= asked(server)
    used.add(("argoproj.io", "workflows", "get"))  # kubeflow.shutdown asks whether the run was cancelled
    assert granted("launcher", {"launcher"}) == used
    assert granted("default-editor") == used


def test_reaper_role_grants_exactly_its_requests() -> None:
    used = set()
    for backend in BACKENDS.values():
        with ApiServer() as server:
            labels = {"app.kubernetes.io/managed-by": "hopforge"}
            metadata = {"name": "silent", "labels": labels, "creationTimestamp": "2027-01-15T08:00:00Z"}
            server.objects[backend.PLURAL, "silent"] = {"metadata": metadata}
            server.changed(server.objects[backend.PLURAL, "silent"])
            assert [orphan.name for orphan in reap("n", 2e9, connection=connection(server))] == ["silent"]
            used |= asked(server)
    assert granted("reaper") == used


def test_the_reaper_waits_for_longer_than_a_launcher() -> None:
    """A launcher that waits for the API server writes nothing; and the reaper may be back first."""
    [job] = [item for item in built("base") if item["kind"] == "CronJob" and item["metadata"]["name"] == "reaper"]
    [interval] = re.findall(r"^\*/(\d+) \* \* \* \*$", job["spec"]["schedule"])
    [container] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["hopforge", "gc"]  # with its default, as of
    default = inspect.signature(gc).parameters["silent_minutes"].default
    assert 60 * default == SILENT_SECONDS
    assert default > API_PATIENCE / 60 + int(interval)


def test_pipelines_own_rights_name_their_objects() -> None:
    for item in built("base"):
        for rule in item["rules"] if item["kind"] == "Role" else ():
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            if {"secrets", "configmaps"} & set(rule["resources"]):
                assert rule["verbs"] == ["get"]
                assert rule["resourceNames"]
    beyond = granted("launcher") - granted("launcher", {"launcher"})
    assert {resource for _, resource, _ in beyond} == {"workflowtaskresults", "configmaps", "secrets"}
