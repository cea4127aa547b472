"""Settings of the sampling engine."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from platform_sdk.config.struct import Struct
from platform_sdk.credentials import refuse_credentials

SAMPLER_URL = "HOPFORGE_SAMPLER_URL"
"""The environment variable by which processes are told of the vLLM server that their step or job brings."""
PLACING = frozenset({"processes", "gpus", "url"})
"""The settings that say where is sampled, and not what."""


class EngineSpec(Struct):
    """Choice and size of the sampling engine."""

    engine: Literal["transformers", "vllm", "openai"] = Field(
        "transformers",
        description="transformers: CPU or GPU; vllm: in the sampling processes; openai: a vLLM server, at `url` or, "
        "without one, one that the step brings.",
    )
    live: int = Field(64, ge=1, le=65_536, description="Requests that are sampled side by side, in each process.")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="Of weights and caches.")
    device: str = Field("cpu", description="cpu or cuda.")
    threads: int | None = Field(
        1,
        ge=1,
        le=1024,
        description="CPU threads of torch; null leaves its own choice. Only one thread repeats bit for bit.",
    )
    max_model_len: int | None = Field(
        None, ge=32, le=100_000_000, description="The most tokens of a dialogue; null takes the model's own limit."
    )
    processes: int | None = Field(
        None, ge=1, le=1024,
        description="Of a step that only samples, on this machine; null: one per visible GPU, 1 on a CPU "
        "and for `openai`. On a cluster the job has one per GPU."
    )  # fmt: skip
    url: str | None = Field(
        None, description="Of a standing server, for `openai`: http://host:port (without /v1); null: the step's own."
    )
    gpus: int | None = Field(
        None, ge=1, le=1024,
        description="How many of this machine's GPUs the step's own server gets, the last ones; null: one, "
        "which it shares with the step's processes if there is no other. On a cluster: job.sampler.resources.gpus."
    )  # fmt: skip
    extra: dict[str, Any] = Field(
        default_factory=dict, description="Further arguments of vLLM (of vllm.LLM, or of the step's own server)."
    )

    @property
    def brings_server(self) -> bool:
        """Return whether the step starts a server of its own."""
        return self.engine == "openai" and self.url is None

    @property
    def gpus_each(self) -> int:
        """Return the number of GPUs that an engine in a process takes."""
        return int(self.extra.get("tensor_parallel_size", 1)) * int(self.extra.get("pipeline_parallel_size", 1))

    @field_validator("url")
    @classmethod
    def _url_holds_no_key(cls, value: str | None) -> str | None:
        if value is None:
            return None
        return refuse_credentials(value, "put the server's key into the environment variable OPENAI_API_KEY")

    @model_validator(mode="after")
    def _fits_the_engine(self) -> Self:
        if self.url is not None and self.engine != "openai":
            raise ValueError("url is of a server: it is only for the engine `openai`")
        if self.gpus is not None and not self.brings_server:
            raise ValueError(
                "gpus is what the step's own server gets: it is only for the engine `openai` without a url"
            )
        if self.extra and not (self.engine == "vllm" or self.brings_server):
            raise ValueError("extra holds arguments of vLLM: for the engine `vllm`, or `openai` without a url")
        return self


class SamplingSpec(Struct):
    """Settings of sampling rollouts: the engine and the policy's distribution."""

    engine: EngineSpec = EngineSpec()
    temperature: float = Field(1.0, ge=0, le=100, description="of the policy; 1: the trained distribution itself")
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, le=1_000_000, description="0: all tokens")


class EvaluationSpec(Struct):
    """An evaluation run: one attempt at every evaluation question."""

    temperature: float = Field(0.0, ge=0, le=100, description="of the evaluated policy; 0: the most probable token")
    top_p: float = Field(1.0, gt=0, le=1)
