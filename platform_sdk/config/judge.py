"""Settings of a language model that judges answers."""

from __future__ import annotations

from pydantic import Field

from platform_sdk.config.struct import Struct
from platform_sdk.config.urls import EndpointUrl

NO_VERDICT = "no_verdict"
"""Share of answers with an unparsable judgement, in an evaluation's metrics and a rollout's rewards."""


class JudgeSpec(Struct):
    """LLM judge: a chat model at an OpenAI-compatible endpoint that judges whether an answer is correct.

    The key is never a setting: it is read from the environment variable ``api_key_env``.
    """

    url: EndpointUrl = Field(description="Base URL of the endpoint with its version, e.g. https://api.openai.com/v1.")
    model: str = Field(min_length=1, description="The model's name at the endpoint; prefer a dated version.")
    api_key_env: str = Field(
        "OPENAI_API_KEY",
        min_length=1,
        description="Environment variable with the endpoint's key, if required.",
    )
    concurrency: int = Field(8, ge=1, le=1024, description="Concurrent requests.")
    timeout: float = Field(60.0, gt=0, le=86_400, description="Timeout of a request, in seconds.")
    retries: int = Field(
        5, ge=0, le=100, description="Retries with backoff after a timeout, a lost connection, HTTP 429 or 5xx."
    )
    max_tokens: int | None = Field(
        1024, ge=1, le=1_000_000, description="Maximum tokens of a verdict, reasoning included; null: not sent."
    )
    unparsable: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Maximum share of items without a verdict: from 100 items on, a larger share stops the run.",
    )
    cache: str | None = Field(
        None, description="Directory of cached verdicts; null: hopforge/judge in the user's cache directory."
    )
