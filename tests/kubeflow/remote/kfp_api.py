"""A small stateful Kubeflow Pipelines API, as version 2.17.0 behaves.

It keeps pipelines, versions, experiments and runs, and refuses with the recorded answers of a real server: names taken,
unknown objects and parameters, descriptions too long. The latter get HTTP 500, after the run's Workflow was created.
"""

from __future__ import annotations

import email.parser
import email.policy
import json
import uuid
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from ruamel.yaml import YAML

from tests.kubeflow.remote.execution import ENDED, NEVER, Execution
from tests.kubeflow.remote.pipelines import inputs_of
from tests.kubeflow.remote.recorded import HttpError, Item, recorded, refusal

if TYPE_CHECKING:
    from tests.kubeflow.remote.cluster_server import ClusterServer

DUPLICATES = {
    "pipeline": "pipeline-create-duplicate",
    "experiment": "error-experiment-duplicate",
    "pipeline_version": "error-upload-version-duplicate",
}
NOW = "2027-01-15T08:00:00Z"
NUMBERS = ("NUMBER_INTEGER", "NUMBER_DOUBLE")  # a fraction is accepted for an integer
DEFAULT = "0ba9ab88-5506-4797-819a-f00fd91dce97"  # the experiment of runs without one
MOST = 255  # characters of the column Description of runs, experiments and recurring runs
PLUGINS = recorded("run-create-answer")["body"]["plugins_output"]


class KfpApi:
    """Workflows and pods are in ``cluster``, if there is one. Without ``stores`` it fails to store runs, and without
    ``plugins`` it is a server older than 2.17.
    """

    def __init__(self, namespaces: tuple[str, ...], token: str | None) -> None:
        self.namespaces, self.token = namespaces, token
        self.pipelines: list[Item] = []
        self.versions: list[Item] = []
        self.experiments: list[Item] = []
        self.runs: list[Item] = []
        self.executions: dict[str, Execution] = {}
        self.cluster: ClusterServer | None = None
        self.stores = True
        self.plugins = True
        self._number = 0

    def answer(self, method: str, path: str, query: dict[str, str], headers: Any, body: bytes) -> Any:
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            raise fault_answer(401, "Request header error: there is no user identity header.")
        parts = path.removeprefix("/apis/v2beta1/").split("/")
        match method, parts:
            case "GET", ["healthz"]:
                return recorded("healthz")["body"] | {"multi_user": bool(self.namespaces)}
            case "GET", ["pipelines"]:
                namespace = query.get("namespace", "")
                self._check_namespace(namespace, needed=False)
                found = [one for one in self.pipelines if one.get("namespace", "") == namespace]
                return _page("pipelines", found, query)
            case "POST", ["pipelines"]:
                return self._make(self.pipelines, "pipeline", json.loads(body), needs_namespace=False)
            case "GET", ["pipelines", id_]:
                return self._get(self.pipelines, "pipeline", id_)
            case "GET", ["pipelines", id_, "versions"]:
                found = [one for one in self.versions if one["pipeline_id"] == id_]
                return _page("pipeline_versions", found, query)
            case "GET", ["pipelines", _, "versions", id_]:
                return self._get(self.versions, "version", id_)
            case "POST", ["pipelines", "upload_version"]:
                return self._upload(query, headers, body)
            case "GET", ["experiments"]:
                self._check_namespace(query.get("namespace", ""), needed=True)
                namespace = query.get("namespace", "")
                found = [one for one in self.experiments if one.get("namespace", "") == namespace]
                return _page("experiments", found, query)
            case "POST", ["experiments"]:
                made = self._make(self.experiments, "experiment", json.loads(body), needs_namespace=True)
                made |= {"storage_state": "AVAILABLE", "last_run_created_at": NEVER}
                return made
            case "GET", ["experiments", id_]:
                return self._get(self.experiments, "experiment", id_)
            case "GET", ["runs"]:
                found = self.runs
                if "experiment_id" in query:
                    found = [one for one in found if one["experiment_id"] == query["experiment_id"]]
                else:
                    self._check_namespace(query.get("namespace", ""), needed=True)
                return _page("runs", found[::-1], query)
            case "POST", ["runs"]:
                return self._start(json.loads(body))
            case "GET", ["runs", id_]:
                return self._get(self.runs, "run", id_)
            case "POST", ["runs", call] if call.endswith(":terminate"):
                return self._terminate(call.removesuffix(":terminate"))
            case "POST", ["runs", call] if call.endswith(":retry"):
                return self._retry(call.removesuffix(":retry"))
        raise refusal("error-unknown-path")

    def run(self) -> Item:
        """The only run there is."""
        [found] = self.runs
        return found

    @property
    def execution(self) -> Execution:
        """The execution of the only run there is."""
        return self.executions[self.run()["run_id"]]

    def start(self, specification: Item, name: str, namespace: str = "", **form: Any) -> Item:
        """Start a run of a pipeline that is given as its intermediate representation."""
        version = {"pipeline_version_id": f"{len(self.versions)}", "display_name": "v", "pipeline_id": "p"}
        self.versions.append(version | {"pipeline_spec": specification})
        if not self.experiments:
            self._make(
                self.experiments, "experiment", {"display_name": "e", "namespace": namespace}, needs_namespace=True
            )
        reference = {"pipeline_id": "p", "pipeline_version_id": version["pipeline_version_id"]}
        return self._start({
            "display_name": name, "experiment_id": self.experiments[0]["experiment_id"],
            "pipeline_version_reference": reference, "runtime_config": {"parameters": form},
        })  # fmt: skip

    def inputs(self, run: Item, step: str) -> Item:
        """The inputs that a step of a run gets."""
        version = self._get(self.versions, "version", run["pipeline_version_reference"]["pipeline_version_id"])
        return inputs_of(version["pipeline_spec"], step, run["runtime_config"]["parameters"], run["run_id"])

    def _upload(self, query: dict[str, str], headers: Any, body: bytes) -> Item:
        if not any(one["pipeline_id"] == query["pipelineid"] for one in self.pipelines):
            raise refusal("error-upload-version-pipeline-unknown")
        message = email.parser.BytesParser(policy=email.policy.default).parsebytes(
            b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body
        )
        [part] = [one for one in message.iter_parts() if one.get_param("name", header="content-disposition")]
        content = part.get_content()
        text = content.decode() if isinstance(content, bytes) else content
        documents = [one for one in YAML(typ="safe").load_all(text) if one]
        if not documents or not isinstance(documents[0], dict):
            raise refusal("error-upload-no-pipeline")
        json_format.ParseDict(documents[0], pipeline_spec_pb2.PipelineSpec())
        spec = {"pipeline_spec": documents[0], "platform_spec": documents[1]} if documents[1:] else documents[0]
        taken = [one for one in self.versions if one["pipeline_id"] == query["pipelineid"]]
        version = {
            "pipeline_id": query["pipelineid"], "display_name": query["name"],
            "description": query.get("description", ""), "pipeline_spec": spec,
        }  # fmt: skip
        return self._add(self.versions, taken, "pipeline_version", version)

    def _start(self, body: Item) -> Item:
        """Create the run's Workflow, then store the run, as the real server does."""
        if not body.get("display_name"):
            raise refusal("error-json-broken")
        if "plugins_input" in body and not self.plugins:  # as protobuf's JSON says it of an unknown field
            raise fault_answer(400, 'proto: (line 1:2): unknown field "plugins_input"')
        experiment = body.get("experiment_id", "")
        if experiment and not any(one["experiment_id"] == experiment for one in self.experiments):
            raise refusal("error-run-experiment-unknown", id=experiment)
        reference = body.get("pipeline_version_reference")
        if not reference:
            raise refusal("error-run-no-pipeline")
        id_ = reference["pipeline_version_id"]
        versions = [one for one in self.versions if one["pipeline_version_id"] == id_]
        if not versions:
            raise refusal("error-run-version-unknown", id=id_)
        _check_parameters(versions[0]["pipeline_spec"], (body.get("runtime_config") or {}).get("parameters") or {})
        self._number += 1
        run_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"run {self._number}"))
        if self.cluster is not None:
            self.cluster.add_workflow(run_id, body["display_name"], versions[0]["pipeline_spec"])
        if len(body.get("description") or "") > MOST:
            raise refusal("error-run-description-too-long", name=body["display_name"])
        if not self.stores:
            raise fault_answer(500, "Failed to create a new run: InternalServerError: invalid connection")
        run = {
            "service_account": "pipeline-runner", "experiment_id": DEFAULT, **body, "run_id": run_id,
            "storage_state": "AVAILABLE", "created_at": NOW, "scheduled_at": NOW, "finished_at": NEVER,
            "state": "PENDING", "state_history": [{"update_time": NOW, "state": "PENDING"}], "plugins_output": PLUGINS,
        }  # fmt: skip
        self.runs.append(run)
        self.executions[run_id] = Execution(run, self.cluster)
        return run

    def _terminate(self, id_: str) -> Item:
        run = next((one for one in self.runs if one["run_id"] == id_), None)
        if run is None:
            raise refusal("error-terminate-not-found", id=id_)
        if run["state"] in ENDED:
            raise refusal("error-terminate-of-succeeded", id=id_)
        self.executions[id_].state("CANCELING")
        return {}

    def _retry(self, id_: str) -> Item:
        run = next((one for one in self.runs if one["run_id"] == id_), None)
        if run is None:
            raise refusal("error-retry-not-found", id=id_)
        if run["state"] != "FAILED":
            raise refusal("error-retry-of-succeeded", id=id_)
        self.executions[id_].retry()
        return {}

    def _make(self, items: list[Item], kind: str, body: Item, *, needs_namespace: bool) -> Item:
        namespace = body.get("namespace") or ""
        self._check_namespace(namespace, needed=needs_namespace)
        taken = [one for one in items if one.get("namespace", "") == namespace]
        if kind == "experiment" and len(body.get("description") or "") > MOST:
            raise refusal("error-run-description-too-long", name=body["display_name"])
        return self._add(items, taken, kind, {**body, "namespace": namespace})

    def _add(self, items: list[Item], taken: list[Item], kind: str, body: Item) -> Item:
        if any(one["display_name"] == body["display_name"] for one in taken):
            raise refusal(DUPLICATES[kind], name=body["display_name"])
        self._number += 1
        body = {"created_at": NOW, "name": body["display_name"], **body}
        items.append(body | {f"{kind}_id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind} {self._number}"))})
        return items[-1]

    def _get(self, items: list[Item], kind: str, id_: str) -> Item:
        for one in items:
            if one["pipeline_version_id" if kind == "version" else f"{kind}_id"] == id_:
                return one
        raise refusal(f"error-{kind}-not-found", id=id_)

    def _check_namespace(self, namespace: str, *, needed: bool) -> None:
        if not self.namespaces and namespace:
            raise fault_answer(400, "Invalid input error: In single-user mode, namespaces are not to be given.")
        if self.namespaces and needed and not namespace:
            raise fault_answer(
                400, "Invalid input error: An experiment cannot have an empty namespace in multi-user mode"
            )
        if namespace and namespace not in self.namespaces:
            raise fault_answer(403, f"User 'me' is not authorized with reason: (request: namespace {namespace})")


def fault_answer(status: int, message: str) -> HttpError:
    return HttpError(status, {"code": 13, "message": message, "details": []})


def _check_parameters(specification: Item, given: Item) -> None:
    spec = specification.get("pipeline_spec", specification)
    form = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    for name, value in given.items():
        if name not in form:
            raise refusal("error-run-parameter-unknown", name=name)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if form[name]["parameterType"] in NUMBERS and not number:
            raise refusal("error-run-parameter-wrong-type", name=name)


def _page(field: str, found: list[Item], query: dict[str, str]) -> Item:
    for predicate in json.loads(query.get("filter") or "{}").get("predicates", ()):
        assert predicate["operation"] == "EQUALS"
        if predicate["key"] not in ("display_name", "name", "state"):
            raise refusal("error-filter-bad-key", name=predicate["key"])
        found = [one for one in found if one[predicate["key"]] == predicate["stringValue"]]
    if not (query.get("page_token") or "0").isdigit():
        raise refusal("error-page-token-bad")
    start = int(query.get("page_token") or 0)
    end = start + int(query.get("page_size") or 10)
    page: Item = {field: found[start:end], "total_size": len(found)} if found else {}
    return page | ({"next_page_token": str(end)} if end < len(found) else {})
