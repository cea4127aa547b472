"""Settings of training a policy."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from platform_sdk.config.struct import Struct

Share = Annotated[float, Field(ge=0, lt=1)]


class LoraSpec(Struct):
    """Low-rank adapters instead of all parameters (peft)."""

    rank: int = Field(
        default=16, ge=1, le=65_536, description="rank of an adapter; a higher rank learns more and needs more memory"
    )
    alpha: float = Field(
        default=32.0, ge=1e-6, le=1e6, description="scale: the adapter's output is multiplied by alpha / rank"
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout of an adapter's inputs")
    targets: tuple[str, ...] | Literal["all-linear"] = Field(
        default="all-linear", description="names of the modules with an adapter"
    )

    @field_validator("targets")
    @classmethod
    def _names_a_module(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        if not value:
            raise ValueError("targets names no module; name one, or set all-linear")
        return value


class OptimiserSpec(Struct):
    """Settings that all kinds of training share: the optimiser, the memory and the device.

    Full-parameter training keeps the weights in float32 whatever the precision of the arithmetic: a
    step of 5e-7 is lost in bfloat16's 8 bits.
    """

    learning_rate: float = Field(
        default=5e-7, ge=1e-12, le=10, description="initial learning rate; cosine decay to minimum_learning_rate"
    )
    minimum_learning_rate: float = Field(default=1e-8, ge=0, le=10, description="final learning rate")
    warmup_ratio: float = Field(
        default=0.0, ge=0, lt=1, description="share of the steps for linear warm-up of the learning rate"
    )
    micro_batch_tokens: int = Field(
        default=4096,
        ge=1,
        le=100_000_000,
        description="tokens per device and forward pass; lower it if memory runs out (the result is the same)",
    )
    max_length: int | None = Field(
        default=None, ge=2, le=100_000_000, description="maximum tokens of an example; null: the model's context"
    )
    too_long: Literal["truncate", "drop", "error"] = Field(
        default="truncate", description="what to do with longer examples; they are counted and reported"
    )
    weight_decay: float = Field(default=0.0, ge=0, le=1000, description="weight decay of AdamW")
    betas: tuple[Share, Share] = Field(default=(0.9, 0.999), description="β1 and β2 of AdamW")
    epsilon: float = Field(default=1e-8, ge=1e-16, le=1, description="ε of AdamW")
    max_grad_norm: float = Field(
        default=1.0, ge=0, le=1e6, description="gradient clipping: maximum norm; 0: no clipping"
    )
    lora: LoraSpec | None = Field(default=None, description="train low-rank adapters (LoRA); null: train all weights")
    gradient_checkpointing: bool = Field(
        default=False, description="gradient checkpointing: less memory, a third more time"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: a GPU if available, else the CPU")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="number format of the forward pass; auto: bfloat16 on a GPU, float32 on a CPU"
    )
    attention: Literal["auto", "packed", "varlen", "sdpa", "eager", "flash_attention_2"] = Field(
        default="auto", description="auto: varlen (torch's kernel) in bfloat16 on a GPU, else packed; "
        "these two process a shared prompt only once"
    )  # fmt: skip
    deepspeed: Literal["zero2", "zero3"] | None = Field(
        default=None, description="partition optimiser states and gradients (zero3: also weights) across processes"
    )
    processes: int | None = Field(
        default=None, ge=1, le=1024, description="training processes; null: one per visible GPU, 1 on a CPU"
    )
    threads: int = Field(default=1, ge=1, le=1024, description="CPU threads of each process")
    checkpoint_steps: int = Field(default=50, ge=1, le=1_000_000, description="optimiser steps between checkpoints")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.minimum_learning_rate > self.learning_rate:
            raise ValueError(
                f"minimum_learning_rate {self.minimum_learning_rate} is above learning_rate {self.learning_rate}"
            )
        return self


class TrainSpec(OptimiserSpec):
    """The settings of one training run on given examples. The defaults are MyGO's iterations on one device."""

    epochs: int = Field(default=1, ge=1, le=100_000, description="passes over all examples")
    batch_size: int = Field(
        default=32, ge=1, le=1_000_000, description="examples per optimiser step over all processes"
    )
    normalization: Literal["token", "sequence"] = Field(
        default="token",
        description="mean over the step's agent tokens, or MyGO's formula: "
        "mean over trajectories of the sum over their agent tokens",
    )
