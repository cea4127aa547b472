"""Settings of the method program in a recipe."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from platform_sdk.agents.own_reward import RewardName
from platform_sdk.config.code import find_function
from platform_sdk.config.retrieval import Searched
from platform_sdk.config.source import Fault
from platform_sdk.config.struct import Struct
from platform_sdk.config.urls import EndpointUrl, HttpUrl, no_credentials

_POD = ("127.0.0.1", "localhost")


class SessionsSpec(Struct):
    """Sessions of the program with a teacher, a strong model at an OpenAI-compatible URL.

    The key is never a setting: it is read from the environment variable ``api_key_env``.
    """

    url: EndpointUrl = Field(description="base URL of the endpoint with its version, e.g. https://api.openai.com/v1")
    model: str = Field(min_length=1, description="the teacher's name at the endpoint; prefer a dated version")
    api_key_env: str = Field(
        "OPENAI_API_KEY", min_length=1, description="environment variable with the endpoint's key, if required"
    )
    questions: int | None = Field(None, ge=1, le=10_000_000, description="training questions; null: all")
    attempts: int = Field(1, ge=1, le=65_536, description="maximum sessions of one question")
    accepted: int = Field(1, ge=1, le=65_536, description="sessions of one question to train on")
    reward: Literal["f1", "em", "own"] = Field(
        "em", description="reward of a session: token F1, exact match, or agent.reward"
    )
    threshold: float = Field(1.0, ge=0, le=1, description="minimum reward of a session to train on")
    temperature: float | None = Field(None, ge=0, le=2, description="the teacher's temperature; null: not sent")
    max_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="maximum tokens of a completion; null: agent.max_tokens"
    )
    concurrent: int = Field(8, ge=1, le=1024, description="concurrent sessions")
    timeout: float = Field(120.0, gt=0, le=86_400, description="timeout of a request, in seconds")
    retries: int = Field(
        5, ge=0, le=100, description="retries with backoff after a timeout, a lost connection, HTTP 429 or 5xx"
    )


class AgentSpec(Struct):
    """The program that answers questions (a command, a service or a Python function), and the bounds of an attempt."""

    command: tuple[str, ...] | None = Field(
        None, min_length=1, description="command line of the program, run once for each attempt"
    )
    url: Annotated[HttpUrl, no_credentials("let the service read its key from its environment")] | None = Field(
        None, description="URL of a service that gets a POST for each attempt"
    )
    function: str | None = Field(None, description="a Python function, as package.module:function; it may be async")
    image: str | None = Field(
        None,
        min_length=1,
        description="on a cluster: image of the program, in which command runs or which serves url; it has no access "
        "to Secrets, the API server or the workspace",
    )
    environment: tuple[str, ...] = Field((), description="names of environment variables that a command gets too")
    max_tokens: int = Field(256, ge=1, le=1_000_000, description="maximum tokens of a completion")
    seconds: float = Field(120.0, gt=0, le=86_400, description="maximum seconds of an attempt")
    calls: int = Field(100, ge=1, le=100_000, description="maximum completions of an attempt")
    sampled_tokens: int | None = Field(
        None, ge=1, le=100_000_000, description="maximum tokens sampled in an attempt; null: no limit"
    )
    concurrent: int = Field(8, ge=1, le=256, description="maximum requests of an attempt in progress at once")
    request_bytes: int = Field(4_194_304, ge=1024, le=2**30, description="maximum bytes of a request")
    output_bytes: int = Field(1_048_576, ge=1024, le=2**30, description="maximum bytes that the program may print")
    reward: RewardName | None = Field(
        None,
        description="a reward of your own, module:function, from a platform_sdk.records.Rollout to a number; it is "
        "called own in online.reward and selection.reward",
    )
    answer_opening: str | None = Field(
        None,
        min_length=1,
        description="text with which the policy begins an answer after its other turns, for online.credit.type "
        "information_gain",
    )
    failures: float = Field(
        0.5, ge=0, le=1, description="share of failed attempts above which the run stops, once there are 20 attempts"
    )

    @property
    def reward_names(self) -> tuple[str, ...]:
        """Return the names of a rollout's rewards, for the settings that name one."""
        return ("em", "f1", "answered", *(["own"] if self.reward else []))

    @field_validator("function")
    @classmethod
    def _is_function(cls, value: str | None) -> str | None:
        if value is not None:
            find_function(value, may_be_async=True)
        return value

    @model_validator(mode="after")
    def _is_one_program(self) -> Self:
        if sum(value is not None for value in (self.command, self.url, self.function)) != 1:
            raise ValueError("a program is a command, a url or a function; set exactly one of them")
        if self.environment and (self.command is None or self.image is not None):
            raise ValueError("environment is for a command without an image; leave it out")
        if self.image is not None and self.function is not None:
            raise ValueError("image is for a command or a url; a function runs in hopforge's own processes")
        if self.image is not None and self.url is not None and urlsplit(self.url).hostname not in _POD:
            raise ValueError("url of an image must be one of the pod itself: http://127.0.0.1:PORT/…")
        return self

    def misfit(self, environment: str, searched: Searched) -> Fault | None:
        """Return the fault if a program cannot search with the retrieval method, else None."""
        return searched.scope_fault("a program")
