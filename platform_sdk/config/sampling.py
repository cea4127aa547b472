"""What a recipe may say about the sampling engine."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class EngineSpec(BaseModel):
    """Which engine samples, and how it is sized."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: Literal["transformers", "vllm", "openai"] = Field(
        "transformers",
        description="transformers: CPU or one GPU; vllm: in this process; openai: a vLLM server at `url`.",
    )
    live: int = Field(64, ge=1, description="Requests that are sampled side by side.")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="Of weights and caches.")
    device: str = Field("cpu", description="cpu or cuda.")
    threads: int | None = Field(
        1, ge=1, description="CPU threads of torch; null leaves its own choice. Only one thread repeats bit for bit."
    )
    max_model_len: int | None = Field(
        None, ge=32, description="The most tokens of a dialogue; null takes the model's own limit."
    )
    url: str | None = Field(None, description="Of the server, for `openai`: http://host:port (without /v1).")
    extra: dict[str, Any] = Field(default_factory=dict, description="Further arguments of vllm.LLM.")

    @model_validator(mode="after")
    def _fits_the_engine(self) -> Self:
        if (self.engine == "openai") != (self.url is not None):
            raise ValueError("url must be given for the engine `openai`, and only for it")
        if self.extra and self.engine != "vllm":
            raise ValueError("extra holds arguments of vllm.LLM: it is only for the engine `vllm`")
        return self
