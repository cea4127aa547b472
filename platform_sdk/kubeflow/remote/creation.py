"""Creation of a run by one request.

Pipelines accepts a second run of the same name. So after an unclear response (a timeout, a lost connection, a temporary
fault) the run is looked up by its unique name, and the request is repeated only if it had no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.connection import PAUSES, Conflict, Server, TransientError
from platform_sdk.kubeflow.remote.versions import equals, listed
from platform_sdk.kubeflow.remote.workflows import Workflow, Workflows

PLUGINS = "plugins_input"
"""Field of a run with settings of Pipelines' plugins, which version 2.17 introduced."""


def create_run(server: Server, body: Any, workflows: Callable[[], Workflows]) -> Any:
    """Create a run with a unique ``display_name``.

    Args:
        body: A ``V2beta1Run``.
        workflows: Called after an unclear answer, to see whether the server created the run's Workflow.

    Raises:
        UserError: the server refuses, or it is unknown whether the run was created.
    """
    for pause in (*PAUSES, None):
        try:
            return server.once(server.api.runs.run_service_create_run, body)
        except TransientError as error:
            if not error.unsent:
                if (run := _found(server, body, error)) is not None:
                    return run
                _require_no_workflow(body.display_name, workflows, error)
            if pause is None:
                raise UserError(f"{error}; no run was created: repeat the command") from error
            server.sleep(pause)
        except (UserError, Conflict) as error:
            if PLUGINS in str(error) and body.plugins_input is not None:  # a server older than 2.17
                body.plugins_input = None
                return create_run(server, body, workflows)
            raise UserError(f"{error}{_left_behind(body.display_name, workflows)}") from error
    raise AssertionError


def _found(server: Server, body: Any, error: TransientError) -> Any | None:
    """Return the run of this name; retry until the server must have stored it.

    Raises:
        UserError: the server does not list its runs.
    """
    for pause in (*PAUSES, None):
        try:
            for run in _runs(server, body):
                if run.display_name == body.display_name:
                    return run
        except UserError as unseen:
            raise _unknown(body.display_name, error, f"Kubeflow Pipelines does not list its runs ({unseen})") from error
        if pause is not None:
            server.sleep(pause)
    return None


def _runs(server: Server, body: Any) -> Iterator[Any]:
    method, named = server.api.runs.run_service_list_runs, equals(body.display_name)
    return listed(server, method, "runs", experiment_id=body.experiment_id, filter=named)


def _require_no_workflow(name: str, workflows: Callable[[], Workflows], error: TransientError) -> None:
    """Return if the cluster certainly has no Workflow of the run.

    Raises:
        UserError: it has one, or this cannot be seen.
    """
    try:
        cluster = workflows()
        workflow = cluster.of_run(name)
    except UserError as unseen:
        reason = f"Kubeflow Pipelines does not list it, and the cluster's Workflows cannot be read ({unseen})"
        raise _unknown(name, error, reason) from error
    if workflow is not None:
        raise UserError(f"{error}{_left(workflow, cluster.namespace)}") from error


def _unknown(name: str, error: TransientError, reason: str) -> UserError:
    return UserError(
        f"{error}; whether run {name} was started is unknown: {reason}; look for the run in the UI before you repeat "
        "the command"
    )


def _left_behind(name: str, workflows: Callable[[], Workflows]) -> str:
    """Return a note about the Workflow of a run that the server refused to store, if the Workflow exists."""
    try:
        cluster = workflows()
        workflow = cluster.of_run(name)
    except UserError:
        return ""  # the refusal is the error to report
    return "" if workflow is None else _left(workflow, cluster.namespace)


def _left(workflow: Workflow, namespace: str) -> str:
    return (
        f"; Workflow {workflow.name} was started without a run: delete it (kubectl -n {namespace} delete workflow "
        f"{workflow.name}, or later hopforge gc -n {namespace} --workflows)"
    )
