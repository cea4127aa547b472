"""Read a cluster's objects, and distinguish missing objects from objects that this account may not read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.api import JSON, ApiUnavailable, Item, connect, expected_form, read_object


class UnseenError(Exception):
    """An object that cannot be read, with the reason."""


@dataclass
class Cluster:
    """The API server in KUBECONFIG.

    Args:
        connection: A ``kubeflow.training.TrainingClient``.
    """

    connection: Any
    _answered: bool = field(default=False, init=False)

    @classmethod
    def here(cls) -> Cluster:
        """Return the cluster of KUBECONFIG or of this pod.

        Raises:
            UserError: no cluster is configured.
        """
        return cls(connect())

    def get(self, path: str, *, selector: str = "", accept: str = JSON) -> Item | None:
        """Return the API server's object at a path; None if it does not exist.

        Args:
            path: Path of an object, of a collection or of an API group.
            selector, accept: See ``read_object``.

        Raises:
            UnseenError: this account may not read it, or the API server's answer is an error or cannot be read, or a
                later request than the first got no answer.
            UserError: the API server cannot be reached, or does not accept the credentials.
        """
        try:
            with expected_form(f"the API server's answer at {path}"):
                found = read_object(self.connection, path, selector=selector, accept=accept)
        except UserError as error:
            status = getattr(error.__cause__, "status", None)
            if isinstance(error, ApiUnavailable) and not status and not self._answered:
                raise UserError(f"{error}; check KUBECONFIG, and that the cluster runs") from error
            if status == 401:
                raise UserError(f"{error}; log in again, or set KUBECONFIG") from error
            self._answered = True
            raise UnseenError(str(error)) from error
        self._answered = True
        return found

    def items(self, path: str, *, selector: str = "") -> list[Item]:
        """Return the objects of a collection; empty if the cluster does not serve their kind.

        Raises:
            UnseenError, UserError: see ``get``.
        """
        return list((self.get(path, selector=selector) or {}).get("items") or ())
