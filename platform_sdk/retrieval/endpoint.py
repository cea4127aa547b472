"""An encoder behind an OpenAI-compatible embeddings endpoint (``openai:MODEL@URL``)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from platform_sdk.config.errors import UserError
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
        key = os.environ.get(api_key_env)
        if not key:
            raise UserError(
                f"encoder {name}: the variable {api_key_env} (retrieval.api_key_env) holds no key; "
                f"set it (to any word if the endpoint needs no key)"
            )
        from openai import OpenAI

        # At these levels the client logs each request, and the HTTP library its headers.
        for noisy in ("openai", "httpx", "httpcore"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        self._model, _, url = name.removeprefix("openai:").partition("@")
        self._client = OpenAI(base_url=url, api_key=key, max_retries=RETRIES, timeout=TIMEOUT)
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
            # The response may quote the key: remove it, and do not chain the original error.
            reason = f"{type(error).__name__}: {str(error).replace(self._client.api_key, '***')[:500]}"
            raise RetrieverFault(f"encoder {self.name}: the endpoint failed ({reason})") from None
        found = sorted(answer.data, key=lambda item: item.index)
        if [item.index for item in found] != list(range(len(texts))):
            raise RetrieverFault(f"encoder {self.name}: {len(found)} vectors returned for {len(texts)} texts")
        vectors = np.array([item.embedding for item in found], dtype=np.float32)
        if self.dimension and vectors.shape[1] != self.dimension:
            raise RetrieverFault(f"encoder {self.name}: a vector has {vectors.shape[1]} numbers, not {self.dimension}")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.all(norms > 0):  # also false for NaN
            raise RetrieverFault(f"encoder {self.name}: the endpoint returned a zero or invalid vector")
        unit: np.ndarray = vectors / norms
        return unit
