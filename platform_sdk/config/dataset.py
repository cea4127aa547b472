"""What a recipe may say about its dataset."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from platform_sdk.config.world import WorldSpec

Format = Literal["hotpotqa", "2wikimultihopqa", "musique", "nq", "qald10"]


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class DatasetSpec(BaseModel):
    """Questions to train and evaluate on, and what Search looks in.

    Paths are relative to the recipe's ``data_dir``, absolute, or ``hf://OWNER/NAME/FILE`` for a file of a dataset on
    the Hugging Face hub. Without ``corpus`` the passages are those of the questions' own contexts; without
    ``triples`` the triples are the questions' gold ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[Format, "world"] = Field(
        description="the official format of the question files, or a generated world"
    )
    train: Paths = Field(default=(), description="official question files to train on")
    eval: Paths = Field(default=(), description="official question files to evaluate on")
    corpus: Paths = Field(default=(), description="passages: JSONL of id, title, text")
    triples: Paths = Field(default=(), description="triples: TSV with a header line")
    labels: str | None = Field(default=None, description="qald10: topic_entities.json, the names of the entities")
    train_questions: int | None = Field(default=None, ge=0, description="how many to draw; all when not given")
    eval_questions: int | None = Field(default=None, ge=0, description="how many to draw; all when not given")
    seed: int = Field(default=0, description="of the draw of questions")
    skip_invalid: bool = Field(
        default=False, description="leave out malformed records, and list them, instead of failing"
    )
    world: WorldSpec | None = Field(default=None, description="format world: its settings")

    @model_validator(mode="after")
    def _fits_the_format(self) -> Self:
        if self.format == "world":
            given = [name for name in ("train", "eval", "corpus", "triples", "labels") if getattr(self, name)]
            if given:
                raise ValueError(f"format world is generated; remove {', '.join(given)}")
        elif self.world is not None:
            raise ValueError(f"world is for format world, not {self.format}")
        elif not self.eval and not self.train:
            raise ValueError("name question files under train, eval or both")
        if self.labels and self.format != "qald10":
            raise ValueError("labels is for format qald10")
        return self
