"""Settings of training a policy."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from platform_sdk.config.struct import Struct

Share = Annotated[float, Field(ge=0, lt=1)]


class LoraSpec(Struct):
    """Low-rank adapters instead of all parameters (peft)."""

    rank: int = Field(
        default=16, ge=1, le=65_536, description="width of an adapter: more can learn more and needs more memory"
    )
    alpha: float = Field(default=32.0, ge=1e-6, le=1e6, description="the adapter's output is scaled by alpha / rank")
    dropout: float = Field(
        default=0.0, ge=0, lt=1, description="share of an adapter's inputs that each training step leaves out"
    )
    targets: tuple[str, ...] | Literal["all-linear"] = Field(
        default="all-linear", description="names of the modules that get an adapter"
    )


class OptimiserSpec(Struct):
    """Settings that all kinds of training share: the optimiser, the memory and the device.

    Full-parameter training keeps the weights in float32 whatever the precision of the arithmetic: a
    step of 5e-7 is lost in bfloat16's 8 bits.
    """

    learning_rate: float = Field(
        default=5e-7, ge=1e-12, le=10, description="learning rate at the start; it falls along a cosine"
    )
    minimum_learning_rate: float = Field(default=1e-8, ge=0, le=10, description="learning rate at the end")
    warmup_ratio: float = Field(
        default=0.0, ge=0, lt=1, description="share of the steps, at the start, in which the learning rate rises from 0"
    )
    micro_batch_tokens: int = Field(
        default=4096,
        ge=1,
        le=100_000_000,
        description="tokens that a device works on at once; lower it if memory runs out, the result stays the same",
    )
    max_length: int | None = Field(
        default=None, ge=2, le=100_000_000, description="maximum tokens of an example; null: the model's context"
    )
    too_long: Literal["truncate", "drop", "error"] = Field(
        default="truncate", description="what happens to longer examples; counted and reported"
    )
    weight_decay: float = Field(default=0.0, ge=0, le=1000, description="of AdamW, how strongly weights are drawn to 0")
    betas: tuple[Share, Share] = Field(
        default=(0.9, 0.999), description="of AdamW: how slowly the means of gradient and squared gradient forget"
    )
    epsilon: float = Field(default=1e-8, ge=1e-16, le=1, description="of AdamW, keeps its division from 0")
    max_grad_norm: float = Field(
        default=1.0, ge=0, le=1e6, description="a longer gradient is cut to this length; 0: none is"
    )
    lora: LoraSpec | None = Field(
        default=None, description="train low-rank adapters instead of all weights; null: all weights"
    )
    gradient_checkpointing: bool = Field(
        default=False, description="compute activations twice instead of keeping them: less memory, a third more time"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: a GPU if there is one, else the CPU"
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="of the arithmetic; auto: bfloat16 on a GPU, float32 on a CPU"
    )
    attention: Literal["auto", "packed", "varlen", "sdpa", "eager", "flash_attention_2"] = Field(
        default="auto", description="auto: varlen (torch's kernel) in bfloat16 on a GPU, else packed; "
        "these two work a shared prompt through once"
    )  # fmt: skip
    deepspeed: Literal["zero2", "zero3"] | None = Field(
        default=None, description="optimiser states and gradients (zero3: weights too) divided among the processes"
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

    epochs: int = Field(default=1, ge=1, le=100_000, description="how often training goes through all examples")
    batch_size: int = Field(
        default=32, ge=1, le=1_000_000, description="examples per optimiser step, of all processes together"
    )
    normalization: Literal["token", "sequence"] = Field(
        default="token",
        description="mean over the step's agent tokens, or MyGO's formula: "
        "mean over trajectories of the sum over their agent tokens",
    )
