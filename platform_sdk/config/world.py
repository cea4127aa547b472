"""Settings of a generated world."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from platform_sdk.config.struct import Struct


class WorldSpec(Struct):
    """Settings of a generated world; equal settings give an equal world.

    ``split`` keeps worlds of two uses apart: a name that may be, say, a film in one split is never a
    film in the other, so that no (subject, relation) pair of a ``base`` world (the language the
    shipped base model learned) can occur in an ``evaluation`` world, whatever the seeds.
    """

    seed: int = Field(default=7, description="seed of the world")
    entities: int = Field(
        default=240, ge=12, le=100_000, description="people, films, books, companies, cities and countries"
    )
    train_questions: int = Field(default=600, ge=0, le=100_000, description="questions to train on")
    eval_questions: int = Field(default=200, ge=0, le=100_000, description="questions to evaluate on")
    hops: tuple[Annotated[int, Field(ge=1, le=8)], ...] = Field(
        default=(1, 2, 3, 4),
        min_length=1,
        max_length=100,
        description="numbers of facts that questions join, drawn with equal probability",
    )
    comparisons: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="share of yes/no questions about two entities among the questions that are not about years",
    )
    # Left out where it is 0, so that the digests of worlds without years stay the same.
    years: float = Field(
        default=0, ge=0, le=1, exclude_if=lambda share: not share,
        description="share of questions about the years between two events; if above 0, people, films, books "
        "and companies have a year",
    )  # fmt: skip
    context: int = Field(
        default=0, ge=0, le=1000, description="passages given with each question, the gold passages included; 0: none"
    )
    split: Literal["evaluation", "base"] = Field(
        default="evaluation", description="base: the names and facts that the shipped base model was trained on"
    )

    @model_validator(mode="after")
    def _context_holds_the_gold_passages(self) -> Self:
        gold = max(*self.hops, 2 if self.comparisons or self.years else 1)
        if self.context and not gold <= self.context <= self.entities:
            raise ValueError(
                f"context: must be 0, or from {gold} (the gold passages of a question) to {self.entities} (all "
                f"passages), but is {self.context}"
            )
        return self
