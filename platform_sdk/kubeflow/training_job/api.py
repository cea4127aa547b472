"""Client of the cluster's API server for jobs.

The connection is from kubeflow-training's client. Its ``create_job`` has no strict validation (without which unknown
fields are dropped silently) and hides a conflict in a RuntimeError, and its waiting ignores a failed job and times out
on a queued job; so this module makes the calls on that client's connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from platform_sdk.config.errors import UserError

Item = dict[str, Any]

TIMEOUT = (5, 30)  # seconds to connect, and to wait for an answer
KUEUE_GROUP, KUEUE_VERSION = "kueue.x-k8s.io", "v1beta2"
KUEUE = (KUEUE_GROUP, KUEUE_VERSION, "workloads")
KUEUE_PATH = f"/apis/{KUEUE_GROUP}/{KUEUE_VERSION}"
JOB_UID = "kueue.x-k8s.io/job-uid"
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Form of an answer without an object's content, e.g. a Secret's values."""
TRANSIENT = frozenset({429, 500, 502, 503, 504})


class UnexpectedForm(UserError):
    """Error of an answer that has other fields than expected."""


class ApiUnavailable(UserError):
    """Temporary error: the API server did not respond, or reported that it is unavailable; retry."""


class AlreadyThere(Exception):
    """An object of that name exists."""


class WriteConflict(ApiUnavailable):
    """The object has changed since it was read; without a precondition, retry."""


class Forbidden(UserError):
    """Forbidden request of this account; a restarting API server may allow it after a moment.

    An admission policy or webhook also answers 403, but finally: such a refusal is a plain ``UserError``.
    """


@dataclass(frozen=True)
class Selection:
    """Objects to list and watch: a listing method of the API server's client, and its arguments and selectors."""

    method: Callable[..., Any]
    arguments: tuple[str, ...]
    selectors: tuple[tuple[str, str], ...]


class ClusterApi:
    """Jobs of one kind in one namespace.

    Args:
        group, version, plural: of the kind of job, as PyTorchJobs.
        selector: the label by which the operator names a job's pods.
        connection: a ``kubeflow.training.TrainingClient``; by default from this pod's account, or from KUBECONFIG.

    Raises:
        UserError: no cluster is configured.
    """

    def __init__(
        self, namespace: str, *, group: str, version: str, plural: str, selector: str, connection: Any = None
    ) -> None:
        self.namespace, self._selector = namespace, selector
        self._place = (group, version, namespace, plural)
        self._connection = connection or connect()
        self._custom, self._core = self._connection.custom_api, self._connection.core_api
        self._absent = False  # the cluster does not serve the kind

    def create(self, body: dict[str, Any], *, dry_run: bool = False) -> None:
        """Create a job; with ``dry_run`` it is validated and admitted, but not stored.

        Raises:
            AlreadyThere: a job of that name exists.
            UserError: the API server refuses it.
            ApiUnavailable: no answer from the API server; all methods raise it.
        """
        options = {"field_validation": "Strict"} | ({"dry_run": "All"} if dry_run else {})
        self.call(self._custom.create_namespaced_custom_object, *self._place, body, **options)

    def get(self, name: str) -> Item | None:
        found: Item | None = self.found(self._custom.get_namespaced_custom_object, *self._place, name)
        return found

    def jobs(self, labels: str) -> list[Item]:
        """Return the jobs with these labels; empty if the cluster does not serve the kind.

        Raises:
            UserError: this account may not list them.
        """
        if self._absent:
            return []
        try:
            found = self.found(self._custom.list_namespaced_custom_object, *self._place, label_selector=labels)
        except UserError as error:
            # The API server checks the right to list before the kind, so only discovery shows if the kind is served.
            if getattr(error.__cause__, "status", None) != 403 or self._is_served():
                raise
            self._absent = True
            return []
        with expected_form(f"the list of {self._place[3]}"):
            return list(found["items"]) if found else []

    def _is_served(self) -> bool:
        group, version, _, plural = self._place
        try:
            return serves(self._connection, group, version, plural)
        except UserError:
            return True  # unknown, so the missing right is reported

    def delete(self, name: str, version: str | None = None) -> None:
        """Start the deletion of a job and its pods; a missing job is no error.

        Args:
            version: delete the job only if its ``resourceVersion`` is still this one.

        Raises:
            WriteConflict: the ``resourceVersion`` differs.
        """
        # All options go into the body, since the API server ignores the query of a request with a body.
        options: Item = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
        if version is not None:
            options["preconditions"] = {"resourceVersion": version}
        self.found(self._custom.delete_namespaced_custom_object, *self._place, name, body=options)

    def annotate(self, name: str, annotations: dict[str, str]) -> None:
        """Set annotations of a job; a missing job is no error."""
        patch = {"metadata": {"annotations": annotations}}
        self.found(self._custom.patch_namespaced_custom_object, *self._place, name, patch)

    def job_selection(self, name: str) -> Selection:
        """Return the selection of one job."""
        selector = ("field_selector", f"metadata.name={name}")
        return Selection(self._custom.list_namespaced_custom_object, self._place, (selector,))

    def pods_selection(self, name: str) -> Selection:
        """Return the selection of a job's pods."""
        return self.labelled_pods(f"{self._selector}={name}")

    def labelled_pods(self, labels: str) -> Selection:
        """Return the selection of the namespace's pods with these labels."""
        return Selection(self._core.list_namespaced_pod, (self.namespace,), (("label_selector", labels),))

    def workload_selection(self, uid: str) -> Selection:
        """Return the selection of Kueue's object for the job with this uid."""
        group, version, plural = KUEUE
        selector = ("label_selector", f"{JOB_UID}={uid}")
        return Selection(
            self._custom.list_namespaced_custom_object, (group, version, self.namespace, plural), (selector,)
        )

    def list_objects(self, selection: Selection) -> tuple[list[Item], str]:
        """Return the selected objects and the version at which to start watching them."""
        answer = self.call(selection.method, *selection.arguments, **dict(selection.selectors), _preload_content=False)
        with expected_form("a list of objects"):
            listed = json.loads(answer.data)
            return list(listed["items"]), str(listed["metadata"]["resourceVersion"])

    def open_watch(self, selection: Selection, version: str, seconds: int) -> Any:
        """Return the open answer of a watch that the API server ends after ``seconds``; its lines are events."""
        return self.call(
            selection.method, *selection.arguments, **dict(selection.selectors), watch=True, resource_version=version,
            timeout_seconds=seconds, allow_watch_bookmarks=True, _preload_content=False,
            _request_timeout=(TIMEOUT[0], seconds + TIMEOUT[1]),
        )  # fmt: skip

    def workload(self, uid: str) -> Item | None:
        """Return Kueue's object for the job with this uid; None without one, or without Kueue."""
        group, version, plural = KUEUE
        listed = self._custom.list_namespaced_custom_object
        found = self.found(listed, group, version, self.namespace, plural, label_selector=f"{JOB_UID}={uid}")
        items = found["items"] if found else []
        return items[0] if items else None

    def no_queue(self, name: str) -> str | None:
        """Return why no job can wait in this LocalQueue, or None if it exists.

        Raises:
            Forbidden: this account may not see it.
        """
        place = (KUEUE_GROUP, KUEUE_VERSION, self.namespace, "localqueues", name)
        try:
            self.call(self._custom.get_namespaced_custom_object, *place)
        except UserError as error:
            if not absent(error.__cause__):
                raise
            if _status(error.__cause__):
                return f"there is no LocalQueue {name} (kubectl -n {self.namespace} get localqueues lists them)"
            # For an unknown kind the API server responds in plain text.
            return f"the cluster has no Kueue that serves {KUEUE_GROUP}/{KUEUE_VERSION} (0.15 or later)"
        return None

    def pod(self, name: str) -> Item:
        """Return a pod of the namespace."""
        answer = self.call(self._core.read_namespaced_pod, name, self.namespace, _preload_content=False)
        return dict(json.loads(answer.data))

    def pods(self, name: str) -> list[Item]:
        """Return the pods of a job."""
        return self.list_objects(self.pods_selection(name))[0]

    def log(self, pod: str, container: str, lines: int, *, previous: bool = False) -> str:
        """Return the last lines of a container's log, or of the container that it replaced; empty without a log."""
        answer = self.found(
            self._core.read_namespaced_pod_log, pod, self.namespace, container=container, tail_lines=lines,
            previous=previous, _preload_content=False,
        )  # fmt: skip
        return answer.data.decode(errors="replace") if answer else ""

    def warnings(self, names: Iterable[str], job: Item) -> list[str]:
        """Return ``warning_events``, each in one line."""
        return [
            " ".join(f"{event.get('reason', '')}: {event.get('message', '')}".split())
            for event in self.warning_events(names, job)
        ]

    def warning_events(self, names: Iterable[str], job: Item) -> list[Item]:
        """Return the warnings in the events of objects with these names since the job's creation, oldest first.

        An earlier attempt's job and pods have the same names.
        """
        since = job["metadata"]["creationTimestamp"][:19]
        events: list[Item] = []
        for name in names:
            selector = f"involvedObject.name={name},type=Warning"
            answer = self.call(
                self._core.list_namespaced_event, self.namespace, field_selector=selector, _preload_content=False
            )
            events += json.loads(answer.data)["items"]
        return sorted((event for event in events if _time(event) >= since), key=_time)

    def found(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the result of the call, or None if the object or kind does not exist."""
        try:
            return self.call(method, *arguments, **options)
        except UserError as error:
            if absent(error.__cause__):
                return None
            raise

    @staticmethod
    def call(method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method of the API server's client, with errors as above."""
        from kubernetes.client.rest import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return method(*arguments, **{"_request_timeout": TIMEOUT, **options})
        except ApiException as error:
            if error.status == 409 and _status(error).get("reason") == "AlreadyExists":
                raise AlreadyThere from error
            if error.status == 409 and _status(error).get("reason") == "Conflict":
                raise WriteConflict(f"the API server answered 409: {_message(error)}") from error
            if error.status in TRANSIENT or not error.status:
                raise ApiUnavailable(f"the API server answered {error.status}: {error.reason}") from error
            message = _message(error)
            # The authorizer names the user; without any message, a proxy may have answered.
            unauthorized = error.status == 403 and ('User "' in message or message == error.reason)
            kind = Forbidden if unauthorized else UserError
            raise kind(f"the API server refuses: HTTP {error.status}: {message}") from error
        except (HTTPError, OSError) as error:
            raise ApiUnavailable(f"the API server cannot be reached: {type(error).__name__}: {error}") from error


def read_object(connection: Any, path: str, *, selector: str = "", accept: str = JSON) -> Item | None:
    """Return the object or collection at a path of the API server; None if it does not exist.

    Args:
        selector: labels of the objects of a collection.
        accept: form of the answer.

    Raises:
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    query = [("labelSelector", selector)] if selector else []
    try:
        answer = ClusterApi.call(
            connection.core_api.api_client.call_api, path, "GET", {}, query, {"Accept": accept},
            auth_settings=["BearerToken"], _return_http_data_only=True, _preload_content=False,
        )  # fmt: skip
    except UserError as error:
        if absent(error.__cause__):
            return None
        raise
    return dict(json.loads(answer.data))


def serves(connection: Any, group: str, version: str, plural: str) -> bool:
    """Return True if the API server serves this kind.

    Raises:
        Forbidden: this account may not list the kinds of a group.
        UserError, ApiUnavailable: see ``ClusterApi``.
    """
    try:
        answer = ClusterApi.call(connection.custom_api.get_api_resources, group, version, _preload_content=False)
    except UserError as error:
        if absent(error.__cause__):
            return False
        raise
    with expected_form(f"the list of kinds of {group}/{version}"):
        return plural in [resource["name"] for resource in json.loads(answer.data)["resources"]]


@contextmanager
def expected_form(what: str) -> Iterator[None]:
    """Read an answer of the API server in the body.

    Raises:
        UnexpectedForm: the answer is another version's object, or no object.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fault = f"{type(error).__name__}: {error}"
        raise UnexpectedForm(
            f"{what} has an unexpected form ({fault}); the cluster may have another version, or KUBECONFIG may name "
            "another server, e.g. with a login page"
        ) from error


def connect() -> Any:
    """Return kubeflow-training's client for this pod's cluster or for KUBECONFIG.

    Raises:
        UserError: neither exists, KUBECONFIG cannot be read, or the package is not installed.
    """
    try:
        from kubeflow.training import TrainingClient
        from kubernetes.config import ConfigException
        from yaml import YAMLError
    except ImportError as error:
        raise UserError("a cluster needs kubeflow-training; pip install hopforge[cluster]") from error
    try:
        return TrainingClient()
    except ConfigException as error:
        raise UserError(f"no cluster found: {error}; set KUBECONFIG, or run inside a pod") from error
    except (YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        fault = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(f"KUBECONFIG cannot be read: {fault}; correct the file, or name another one") from error


def absent(error: BaseException | None) -> bool:
    """Return True for a missing object or kind, or for a log of a container that does not exist (HTTP 400)."""
    missing = ("waiting to start", "previous terminated container")
    return getattr(error, "status", None) == 404 or any(words in _message(error) for words in missing)


def _message(error: BaseException | None) -> str:
    return str(_status(error).get("message") or getattr(error, "reason", "") or error)


def _time(event: Item) -> str:
    """Return when an event was last seen: in the field of the older or of the newer API, without fractions."""
    time = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(time or "")[:19]


def _status(error: BaseException | None) -> dict[str, Any]:
    try:
        status = json.loads(getattr(error, "body", None) or "{}")
    except json.JSONDecodeError:
        return {}
    return status if isinstance(status, dict) else {}
