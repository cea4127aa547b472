"""Settings of training a policy."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from platform_sdk.config.struct import Struct


class LoraSpec(Struct):
    """Low-rank adapters instead of all parameters (peft)."""

    rank: int = Field(default=16, ge=1, le=65_536)
    alpha: float = Field(default=32.0, gt=0, le=1e6, description="the adapter's output is scaled by alpha / rank")
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: tuple[str, ...] | Literal["all-linear"] = Field(
        default="all-linear", description="names of the modules that get an adapter"
    )


class OptimiserSpec(Struct):
    """Settings that all kinds of training share: the optimiser, the memory and the device.

    Full-parameter training keeps the weights in float32 whatever the precision of the arithmetic: a
    step of 5e-7 is lost in bfloat16's 8 bits.
    """

    learning_rate: float = Field(default=5e-7, gt=0, le=10, description="where the cosine starts")
    minimum_learning_rate: float = Field(default=1e-8, ge=0, le=10, description="where the cosine ends")
    warmup_ratio: float = Field(default=0.0, ge=0, lt=1, description="share of the steps with a rising rate")
    micro_batch_tokens: int = Field(
        default=4096,
        ge=1,
        le=100_000_000,
        description="tokens a device works on at once; more examples are accumulated",
    )
    max_length: int | None = Field(
        default=None, ge=2, le=100_000_000, description="tokens per example; null: the model's context"
    )
    too_long: Literal["truncate", "drop", "error"] = Field(
        default="truncate", description="what happens to longer examples; counted and reported"
    )
    weight_decay: float = Field(default=0.0, ge=0, le=1000)
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = Field(default=1e-8, gt=0, le=1)
    max_grad_norm: float = Field(default=1.0, ge=0, le=1e6, description="0: no clipping")
    lora: LoraSpec | None = None
    gradient_checkpointing: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="of the arithmetic; auto: bfloat16 on a GPU, float32 on a CPU"
    )
    attention: Literal["auto", "packed", "sdpa", "eager", "flash_attention_2"] = Field(
        default="auto", description="auto: flash_attention_2 where it is installed with a GPU, else packed"
    )
    deepspeed: Literal["zero2", "zero3"] | None = Field(
        default=None, description="optimiser states and gradients (zero3: weights too) divided among the processes"
    )
    processes: int | None = Field(default=None, ge=1, le=1024, description="null: one per visible GPU, 1 on a CPU")
    threads: int = Field(default=1, ge=1, le=1024, description="of torch, on a CPU")
    checkpoint_steps: int = Field(default=50, ge=1, le=1_000_000_000, description="optimiser steps between checkpoints")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.minimum_learning_rate > self.learning_rate:
            raise ValueError(
                f"minimum_learning_rate {self.minimum_learning_rate} is above learning_rate {self.learning_rate}"
            )
        return self


class TrainSpec(OptimiserSpec):
    """The settings of one training run on given examples. The defaults are MyGO's iterations on one device."""

    epochs: int = Field(default=1, ge=1, le=100_000, description="how often every example is learned from")
    batch_size: int = Field(
        default=32, ge=1, le=1_000_000, description="examples per optimiser step, over all processes"
    )
    normalization: Literal["token", "sequence"] = Field(
        default="token",
        description="mean over the step's agent tokens, or MyGO's formula: "
        "mean over trajectories of the sum over their agent tokens",
    )
