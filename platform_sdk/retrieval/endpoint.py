"""An encoder at an OpenAI-compatible embeddings endpoint (``openai:MODEL@URL``)."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from platform_sdk.config.errors import UserError
from platform_sdk.endpoints import open_client, reason, secret
from platform_sdk.retrieval.encoders import Encoder
from platform_sdk.sampling.rollout import RetrieverFault

RETRIES = 5  # the client's own, with exponential backoff and the server's Retry-After
TIMEOUT = 60.0  # seconds
IN_FLIGHT = 4  # batches


class EndpointEncoder(Encoder):
    """Embeddings over HTTP, in batches.

    An endpoint's weights are unknown: the digest covers its URL, the model's name and the prefix. Opening a collection
    therefore compares a stored vector with the endpoint. A text's vector may depend on its batch in the last bits.
    """

    def __init__(self, name: str, *, query_prefix: str, passage_prefix: str, batch_size: int, api_key_env: str) -> None:
        super().__init__(name, query_prefix, passage_prefix)
        key = secret(api_key_env, f"encoder {name}")
        if not key:
            raise UserError(
                f"encoder {name}: the variable {api_key_env} (retrieval.api_key_env) holds no key; "
                "set it (to any word if the endpoint needs no key)"
            )
        self._model, _, url = name.removeprefix("openai:").partition("@")
        self._client = open_client(f"encoder {name}", url, key, retries=RETRIES, timeout=TIMEOUT)
        self._batch_size = batch_size
        self.dimension = 0  # set by the first response
        try:
            self.dimension = self._request(["dimension"]).shape[1]
        except RetrieverFault as error:
            raise UserError(f"{error}; check the address, the model's name and the key in {api_key_env}") from error
        self.digest = hashlib.sha256(json.dumps([name, passage_prefix, self.dimension]).encode()).hexdigest()

    def _embed(self, texts: list[str]) -> np.ndarray:
        batches = [texts[start : start + self._batch_size] for start in range(0, len(texts), self._batch_size)]
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            return np.concatenate(list(pool.map(self._request, batches)))

    def _request(self, texts: list[str]) -> np.ndarray:
        from openai import OpenAIError

        try:
            # By default the client requests base64, which some servers do not support.
            answer = self._client.embeddings.create(model=self._model, input=texts, encoding_format="float")
        except OpenAIError as error:
            why = reason(error, self._client)  # the original error may quote the key
            raise RetrieverFault(f"encoder {self.name}: the endpoint failed ({why})") from None
        except (ValueError, RecursionError) as error:  # raised by the client for a body that is not JSON
            raise RetrieverFault(f"encoder {self.name}: the response is not JSON") from error
        try:
            found = sorted(answer.data, key=lambda item: item.index)
            indices = [item.index for item in found]
            vectors = np.array([item.embedding for item in found], dtype=np.float32)
            _, width = vectors.shape
        except (ValueError, TypeError, AttributeError) as error:
            raise RetrieverFault(f"encoder {self.name}: the response holds no embeddings") from error
        if indices != list(range(len(texts))):
            raise RetrieverFault(f"encoder {self.name}: {len(found)} vectors returned for {len(texts)} texts")
        if self.dimension and width != self.dimension:
            raise RetrieverFault(f"encoder {self.name}: a vector has {width} numbers, not {self.dimension}")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.all((norms > 0) & np.isfinite(norms)):
            raise RetrieverFault(f"encoder {self.name}: the endpoint returned a zero or invalid vector")
        unit: np.ndarray = vectors / norms
        return unit
