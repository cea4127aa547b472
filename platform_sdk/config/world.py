"""What a recipe may say about a generated world."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class WorldSpec(BaseModel):
    """The settings of a generated world; equal settings give an equal world.

    ``split`` keeps worlds of two uses apart: a name that may be, say, a film in one split is never a
    film in the other, so that no (subject, relation) pair of a ``base`` world (the language the
    shipped base model learned) can occur in an ``evaluation`` world, whatever the seeds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 7
    entities: int = Field(default=240, ge=12, description="people, films, books, companies, cities and countries")
    train_questions: int = Field(default=600, ge=0)
    eval_questions: int = Field(default=200, ge=0)
    hops: tuple[int, ...] = Field(default=(1, 2, 3, 4), min_length=1, description="chain lengths, equally frequent")
    comparisons: float = Field(default=0.1, ge=0, le=1, description="share of yes/no questions about two entities")
    split: Literal["evaluation", "base"] = "evaluation"
