"""Read a cluster's objects, and distinguish missing objects from objects that this account may not read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.api import ApiUnavailable, ClusterApi, connect

Item = dict[str, Any]
# Without values, which nobody who checks a cluster needs to see.
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class UnseenError(Exception):
    """An object that cannot be read, and why."""


@dataclass
class Cluster:
    """The API server in KUBECONFIG.

    Args:
        connection: A ``kubeflow.training.TrainingClient``.
    """

    connection: Any

    @classmethod
    def here(cls) -> Cluster:
        """Return the cluster of KUBECONFIG or of this pod.

        Raises:
            UserError: there is none.
        """
        return cls(connect())

    def get(self, path: str, *, selector: str = "", accept: str = "application/json") -> Item | None:
        """Return the API server's object at a path, or None.

        Args:
            path: Path of an object, of a collection or of an API group.
            selector: Labels of the objects of a collection.
            accept: Form of the answer.

        Raises:
            UnseenError: this account may not read it, or the API server gives no answer that can be read.
        """
        query = [("labelSelector", selector)] if selector else []
        try:
            answer: Any = ClusterApi.call(
                self.connection.core_api.api_client.call_api, path, "GET", {}, query, {"Accept": accept},
                auth_settings=["BearerToken"], _return_http_data_only=True, _preload_content=False,
            )  # fmt: skip
            found = json.loads(answer.data)
        except UserError as error:
            if getattr(error.__cause__, "status", None) == 404:
                return None
            raise UnseenError(str(error)) from error
        except ApiUnavailable as error:
            raise UnseenError(str(error)) from error
        except ValueError as error:
            raise UnseenError(f"the API server's answer at {path} is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise UnseenError(f"the API server's answer at {path} is not an object")
        return found

    def items(self, path: str, *, selector: str = "") -> list[Item]:
        """Return the objects of a collection; empty if the cluster does not serve their kind.

        Raises:
            UnseenError: see ``get``.
        """
        return list((self.get(path, selector=selector) or {}).get("items") or ())
