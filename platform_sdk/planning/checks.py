"""Checks of a planned run against a cluster's API server; nothing is created.

A check that this account may not make, or whose object cannot be read, is reported as unseen and is no failure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from platform_sdk.config.cluster import ClusterSpec
from platform_sdk.config.errors import UserError
from platform_sdk.config.struct import Struct
from platform_sdk.kubeflow.training_job import trainjob
from platform_sdk.kubeflow.training_job.api import (
    JSON,
    KUEUE_GROUP,
    KUEUE_PATH,
    KUEUE_VERSION,
    METADATA,
    AlreadyThere,
    ApiUnavailable,
    ClusterApi,
    Forbidden,
    Item,
    UnexpectedForm,
    expected_form,
    read_object,
    serves,
)
from platform_sdk.kubeflow.training_job.backend import BACKENDS, api_of
from platform_sdk.kubeflow.training_job.runtime import runtimes
from platform_sdk.planning.jobs import PlannedJob

State = Literal["ok", "failed", "unseen"]
LAUNCHER_VERBS = ("create", "get", "list", "watch", "patch", "delete")
REVIEWS = "/apis/authorization.k8s.io/v1"


class Check(Struct):
    """Outcome of a check: its subject, and the result, with a remedy if it failed."""

    subject: str
    state: State
    message: str = ""


class Unseen(UserError):
    """A check that cannot be made, for another reason than missing rights."""


@dataclass(frozen=True)
class Site:
    """The connection, namespace and cluster file of the checks.

    Raises:
        UserError, Forbidden, ApiUnavailable: by all methods; see ``ClusterApi``.
    """

    connection: Any
    namespace: str
    cluster: ClusterSpec

    def get(self, path: str, *, accept: str = JSON) -> Item | None:
        """Return the API server's object at a path; None if it does not exist."""
        return read_object(self.connection, path, accept=accept)

    def review(self, kind: str, spec: Item) -> bool:
        """Return True if an access review allows the request in ``spec``."""
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        answer = ClusterApi.call(
            self.connection.core_api.api_client.call_api, f"{REVIEWS}/{kind.lower()}s", "POST", {}, [],
            {"Accept": JSON, "Content-Type": JSON}, body=body, auth_settings=["BearerToken"],
            _return_http_data_only=True, _preload_content=False,
        )  # fmt: skip
        return bool(json.loads(answer.data)["status"].get("allowed"))


def checks(site: Site, jobs: Sequence[PlannedJob]) -> Iterator[Check]:
    """Yield the checks of a planned run: rights, Secrets, volume, queue, priority, images, runtimes, distinct jobs.

    Raises:
        ApiUnavailable: the API server cannot be reached.
    """
    yield from _rights(site, jobs)
    for name, keys in sorted(_secrets(site.cluster).items()):
        yield _made(f"Secret {name}", partial(_secret, site, name, keys))
    claim = site.cluster.workspace.claim
    yield _made(f"PersistentVolumeClaim {claim}", partial(_claim, site, claim))
    if queue := site.cluster.job.queue:
        yield _made(f"LocalQueue {queue}", partial(_queue, site, queue))
    if priority := site.cluster.job.priority:
        yield _made(f"WorkloadPriorityClass {priority}", partial(_priority, site, priority))
    images = {site.cluster.launcher_image, *(image for job in jobs for image in _values(job.manifest or {}, "image"))}
    for image in sorted(images):
        yield _made(f"image {image}", partial(_image, site, image))
    named = {job.manifest["spec"]["runtimeRef"]["name"] for job in jobs if job.manifest and job.kind == trainjob.KIND}
    for runtime in runtimes(site.cluster):
        if (name := runtime["metadata"]["name"]) in named:
            yield _made(f"{runtime['kind']} {name}", partial(_runtime, site, runtime))
    for job in distinct(jobs):
        yield _made(f"{job.kind} of step {job.step}", partial(_dry_run, site, job))


def distinct(jobs: Sequence[PlannedJob]) -> list[PlannedJob]:
    """Return the first job of each kind, size and program; later jobs differ from it in names and files only."""
    return list({_shape(job): job for job in reversed(jobs) if job.manifest is not None}.values())[::-1]


def _shape(job: PlannedJob) -> tuple[object, ...]:
    text = str(sorted(job.requests.items()))
    images = sorted(_values(job.manifest, "image"))
    modules = [word for command in _values(job.manifest, "command") for word in command if "platform_sdk" in word]
    return job.kind, job.pods, text, *images, *modules


def _values(item: Any, key: str) -> Iterator[Any]:
    """Yield the values of a key in nested objects."""
    for name, value in item.items() if isinstance(item, dict) else enumerate(item):
        if name == key:
            yield value
        elif isinstance(value, dict | list):
            yield from _values(value, key)


def _made(subject: str, check: Callable[[], str]) -> Check:
    """Return the outcome of a check, which returns a note, or raises."""
    try:
        with expected_form("the API server's answer"):
            return Check(subject=subject, state="ok", message=check())
    except ApiUnavailable:
        raise
    except (Forbidden, Unseen, UnexpectedForm) as error:
        return Check(subject=subject, state="unseen", message=f"not checked: {error}")
    except UserError as error:
        if getattr(error.__cause__, "status", None) == 401:
            raise ApiUnavailable(f"{error}; log in again, or set KUBECONFIG") from error
        return Check(subject=subject, state="failed", message=str(error))


def _rights(site: Site, jobs: Sequence[PlannedJob]) -> Iterator[Check]:
    account = site.cluster.service_account
    for kind in sorted({job.kind for job in jobs if job.manifest is not None}):
        backend = next(one for one in BACKENDS.values() if kind == one.KIND)
        attributes = {"namespace": site.namespace, "group": backend.GROUP, "resource": backend.PLURAL}
        yield _made(f"own right to create {backend.PLURAL}", partial(_own, site, attributes, backend.PLURAL))
        if account is not None:
            yield _made(
                f"rights of service account {account} to {backend.PLURAL}",
                partial(_launcher, site, account, attributes, backend.PLURAL),
            )


def _own(site: Site, attributes: Item, plural: str) -> str:
    if site.review("SelfSubjectAccessReview", {"resourceAttributes": attributes | {"verb": "create"}}):
        return ""
    raise Unseen(f"you may not create {plural} in {site.namespace}, so their dry run may be refused; runs use "
                    "the launcher's account")  # fmt: skip


def _launcher(site: Site, account: str, attributes: Item, plural: str) -> str:
    refused = []
    for verb in LAUNCHER_VERBS:
        spec = {
            "user": f"system:serviceaccount:{site.namespace}:{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{site.namespace}", "system:authenticated"],
            "resourceAttributes": attributes | {"verb": verb},
        }
        if not site.review("SubjectAccessReview", spec):
            refused.append(verb)
    if refused:
        raise UserError(
            f"service account {account} may not {', '.join(refused)} {plural} in {site.namespace}; apply the roles of "
            "manifests/base/team (docs/cluster.md), or set service_account in the cluster file"
        )
    return ""


def _secrets(cluster: ClusterSpec) -> dict[str, list[str]]:
    """Return the keys that the steps and jobs of a cluster file use, by Secret."""
    keys: dict[str, list[str]] = {}
    for entry in (*cluster.secrets.values(), *cluster.job.secrets.values()):
        name, _, key = entry.partition("/")
        if key not in keys.setdefault(name, []):
            keys[name].append(key)
    return keys


def _secret(site: Site, name: str, keys: Sequence[str]) -> str:
    if site.get(f"/api/v1/namespaces/{site.namespace}/secrets/{name}", accept=METADATA) is not None:
        return ""
    values = " ".join(f"--from-literal={key}=VALUE" for key in keys)
    raise UserError(
        f"does not exist in {site.namespace}; run: kubectl -n {site.namespace} create secret generic {name} {values}"
    )


def _claim(site: Site, name: str) -> str:
    found = site.get(f"/api/v1/namespaces/{site.namespace}/persistentvolumeclaims/{name}")
    if found is None:
        raise UserError(
            f"does not exist in {site.namespace}; apply manifests/base/team (docs/cluster.md), or set workspace.claim "
            "in the cluster file"
        )
    phase = (found.get("status") or {}).get("phase", "")
    if phase == "Lost":
        raise UserError(f"has lost its volume (phase {phase}); restore the volume and create the claim again")
    return "" if phase == "Bound" else f"has no volume yet (phase {phase or 'unknown'})"


def _queue(site: Site, name: str) -> str:
    if site.get(f"{KUEUE_PATH}/namespaces/{site.namespace}/localqueues/{name}") is None:
        if not serves(site.connection, KUEUE_GROUP, KUEUE_VERSION, "localqueues"):
            raise Unseen(f"the cluster does not serve {KUEUE_GROUP}/{KUEUE_VERSION}; install Kueue 0.15 or later")
        raise UserError(
            f"does not exist in {site.namespace}; ask for the queue's name (kubectl -n {site.namespace} get "
            "localqueues) and set job.queue in the cluster file"
        )
    return ""


def _priority(site: Site, name: str) -> str:
    if site.get(f"{KUEUE_PATH}/workloadpriorityclasses/{name}") is None:
        raise UserError(
            "does not exist; take one of kubectl get workloadpriorityclasses, or leave out job.priority in the "
            "cluster file"
        )
    return ""


def _image(site: Site, image: str) -> str:
    """Look for an image on the nodes; only a pull by a node can show whether a registry has it."""
    nodes = (site.get("/api/v1/nodes") or {}).get("items") or ()
    having = sum(
        any(name == image or name.endswith(f"/{image}") for kept in node["status"].get("images") or ()
            for name in kept.get("names") or ())
        for node in nodes
    )  # fmt: skip
    if having:
        return f"on {having} of {len(nodes)} nodes"
    registry = image.partition("/")[0]
    if registry.endswith(".example"):
        raise UserError(
            f"is on no node, and {registry} is a placeholder; push the images to your registry (docs/cluster.md) and "
            "name it in the cluster file"
        )
    return "on no node yet, so its first pod pulls it"


def _runtime(site: Site, wanted: Item) -> str:
    """Compare the cluster file with the fields of the runtime that a TrainJob cannot change."""
    name = wanted["metadata"]["name"]
    remedy = "python -m platform_sdk.kubeflow.training_job.runtime CLUSTER.yaml | kubectl apply -f - (docs/cluster.md)"
    found = site.get(f"/apis/{trainjob.GROUP}/{trainjob.VERSION}/clustertrainingruntimes/{name}")
    if found is None:
        raise UserError(f"does not exist; run {remedy}, or set job.backend to pytorchjob in the cluster file")
    has = {one["name"]: one for one in _init_containers(found)}
    for container in _init_containers(wanted):
        present = has.get(container["name"], {})
        for field in ("image", "resources"):
            if present.get(field) != container[field]:
                raise UserError(
                    f"the {field} of container {container['name']} is {present.get(field)}, not {container[field]} "
                    f"as in the cluster file; run {remedy}"
                )
    return ""


def _init_containers(runtime: Item) -> list[Item]:
    [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return list(job["template"]["spec"]["template"]["spec"].get("initContainers", ()))


def _dry_run(site: Site, job: PlannedJob) -> str:
    backend = next(name for name, kind in BACKENDS.items() if job.kind == kind.KIND)
    assert job.manifest is not None
    try:
        api_of(backend, site.namespace, site.connection).create(job.manifest, dry_run=True)
    except AlreadyThere:
        return ""
    return "accepted in a dry run"
