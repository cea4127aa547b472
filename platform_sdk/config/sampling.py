"""Settings of the sampling engine."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from platform_sdk.config.struct import Struct
from platform_sdk.config.urls import no_credentials

SAMPLER_URL = "HOPFORGE_SAMPLER_URL"
"""Environment variable with the URL of the vLLM server that a step or job starts for its processes."""
SAMPLER_HOST, SAMPLER_HEALTH = "127.0.0.1", "/health"
"""Address of that server, and the route that answers once it is ready."""
PROGRAM_RUNNER = "HOPFORGE_PROGRAM_RUNNER"
"""Environment variable with the address, HOST:PORT, of the runner in the image of a job's program."""
VLLM_PYTHON = "HOPFORGE_VLLM_PYTHON"
"""Environment variable with the Python of an environment with vLLM, for an environment without vLLM."""
PLACING = frozenset({"processes", "gpus", "url", "searching"})
"""Settings of where sampling runs; they do not affect its result."""
PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size")
"""Arguments of vLLM whose product is the number of GPUs that an engine takes."""


def gpus_of(arguments: Mapping[str, Any]) -> int:
    """Return how many GPUs vLLM takes with these arguments."""
    return prod(int(arguments.get(name, 1)) for name in PARALLEL)


ServerUrl = Annotated[str, no_credentials("put the server's key into the environment variable OPENAI_API_KEY")]


class EngineSpec(Struct):
    """Choice and size of the sampling engine."""

    engine: Literal["transformers", "vllm", "openai"] = Field(
        "transformers",
        description="transformers: CPU or GPU; vllm: in the sampling processes; openai: a vLLM server, at `url`, "
        "or one that the step starts.",
    )
    live: int = Field(64, ge=1, le=65_536, description="Concurrent requests per process.")
    searching: int = Field(
        0, ge=0, le=65_536, description="Additional rollouts beyond `live`, so that the engine stays busy while others "
        "search in threads. 0: searches wait until as many rollouts search as sample and are sent as one batch; only "
        "0 is bitwise repeatable. For retrieval.url."
    )  # fmt: skip
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="Number format of weights and key-value cache during sampling."
    )
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="Sampling device: cpu or cuda.")
    threads: int | None = Field(
        1,
        ge=1,
        le=512,
        description="CPU threads of torch; null: torch's default. Only one thread is bitwise repeatable.",
    )
    max_model_len: int | None = Field(
        None, ge=32, le=100_000_000, description="Maximum tokens of a dialogue; null: the model's context length."
    )
    processes: int | None = Field(
        None, ge=1, le=1024,
        description="Sampling processes of a step on this machine; null: one per visible GPU, 1 on a CPU "
        "and for `openai`. On a cluster the job has one per GPU."
    )  # fmt: skip
    url: ServerUrl | None = Field(
        None,
        description="URL of a running server for `openai`: http://host:port (without /v1); null: the step starts one.",
    )
    gpus: int | None = Field(
        None, ge=1, le=1024,
        description="Number of this machine's GPUs for the server that the step starts; null: one, shared "
        "with the step's processes if there is no other. On a cluster: job.sampler.resources.gpus."
    )  # fmt: skip
    extra: dict[str, Any] = Field(
        default_factory=dict,
        description="Additional vLLM arguments (of vllm.LLM or of the server that the step starts).",
    )

    @property
    def brings_server(self) -> bool:
        """Return whether the step starts its own server."""
        return self.engine == "openai" and self.url is None

    @property
    def gpus_each(self) -> int:
        """Return the number of GPUs that an engine in a process takes."""
        return gpus_of(self.extra)

    @property
    def beside_training_fault(self) -> str | None:
        """Reason why this engine cannot sample in the processes that train, or None."""
        if self.engine != "vllm" or self.device == "cpu" or "gpu_memory_utilization" in self.extra:
            return None
        return (
            "vllm takes nearly all memory of the GPU that the policy is trained on; set engine to openai without a url "
            "(the step brings a server, with GPUs of its own where there are several), or set "
            "extra.gpu_memory_utilization to the share that the training leaves"
        )

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
        for name in PARALLEL:
            size = self.extra.get(name, 1)
            # Kubeflow Pipelines hands whole numbers over as floats.
            if isinstance(size, bool) or not isinstance(size, int | float) or size < 1 or size != int(size):
                raise ValueError(f"extra.{name} must be a whole number from 1, not {size!r}")
        return self


class SamplingSpec(Struct):
    """Settings of sampling rollouts: the engine and the policy's distribution."""

    engine: EngineSpec = Field(EngineSpec(), description="the sampling engine")
    temperature: float = Field(
        1.0,
        ge=0,
        le=100,
        description="sampling temperature; 1: the model's probabilities, 0: greedy",
    )
    top_p: float = Field(
        1.0, gt=0, le=1, description="sample from the most probable tokens with this total probability; 1: all tokens"
    )
    top_k: int = Field(0, ge=0, le=1_000_000, description="sample from this many most probable tokens; 0: all tokens")


class EvaluationSpec(Struct):
    """An evaluation run: one attempt at every evaluation question."""

    temperature: float = Field(0.0, ge=0, le=100, description="sampling temperature of the answers; 0: greedy")
    top_p: float = Field(
        1.0, gt=0, le=1, description="sample from the most probable tokens with this total probability; 1: all tokens"
    )
    greedy: bool = Field(False, description="also answer greedily if the temperature is above 0: em_greedy, f1_greedy")

    @property
    def both(self) -> bool:
        """True if the questions are answered both sampled and greedily."""
        return self.greedy and self.temperature > 0
