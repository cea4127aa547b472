"""Reading of single objects from a cluster's API server."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.api import KUEUE_GROUP, KUEUE_VERSION, ClusterApi, absent

Item = dict[str, Any]
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Answer without an object's content, e.g. a Secret's values."""
KUEUE_PATH = f"/apis/{KUEUE_GROUP}/{KUEUE_VERSION}"


class ApiReader:
    """Objects by their path on the API server.

    Args:
        connection: a ``kubeflow.training.TrainingClient``.

    Raises:
        UserError, Forbidden, ApiUnavailable: by all methods; see ``ClusterApi``.
    """

    def __init__(self, connection: Any) -> None:
        client = connection.core_api.api_client
        self._call = partial(
            client.call_api, auth_settings=["BearerToken"], _return_http_data_only=True, _preload_content=False
        )

    def get(self, path: str, *, accept: str = JSON) -> Item | None:
        """Return the object at a path; None if it does not exist."""
        try:
            answer = ClusterApi.call(self._call, path, "GET", {}, [], {"Accept": accept})
        except UserError as error:
            if absent(error.__cause__):
                return None
            raise
        return dict(json.loads(answer.data))

    def post(self, path: str, body: Item) -> Item:
        """Return the answer to a request, e.g. an access review."""
        headers = {"Accept": JSON, "Content-Type": JSON}
        return dict(json.loads(ClusterApi.call(self._call, path, "POST", {}, [], headers, body=body).data))
