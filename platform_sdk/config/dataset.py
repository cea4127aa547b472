"""Settings of a recipe's dataset."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from platform_sdk.config.struct import Struct
from platform_sdk.config.world import WorldSpec

Format = Literal["hotpotqa", "2wikimultihopqa", "musique", "nq", "qald10"]


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class DatasetSpec(Struct):
    """Questions to train and evaluate on, and what Search looks in.

    Paths are relative to the recipe's ``data_dir``, absolute, or ``hf://OWNER/NAME/FILE`` for a file of a dataset on
    the Hugging Face hub. Without ``corpus`` the passages are those of the questions' own contexts; without
    ``triples`` the triples are the questions' gold ones.

    A ``mixed`` dataset is others put together: each entry of ``mixture`` is a dataset of its own, with its own format
    and numbers of questions. One that names only ``eval`` is held out of the training, and one that names only
    ``train`` is not evaluated on.
    """

    format: Literal[Format, "world", "mixed"] = Field(
        description="the official format of the question files, a generated world, or several datasets (mixture)"
    )
    mixture: tuple[DatasetSpec, ...] = Field(default=(), description="format mixed: the datasets that it consists of")
    train: Paths = Field(default=(), description="official question files to train on")
    eval: Paths = Field(default=(), description="official question files to evaluate on")
    corpus: Paths = Field(default=(), description="passages: JSONL of id, title, text")
    triples: Paths = Field(default=(), description="triples: TSV with a header line")
    labels: str | None = Field(default=None, description="qald10: topic_entities.json, the names of the entities")
    train_questions: int | None = Field(
        default=None, ge=0, le=10_000_000, description="how many to draw; all when not given"
    )
    eval_questions: int | None = Field(
        default=None, ge=0, le=10_000_000, description="how many to draw; all when not given"
    )
    seed: int = Field(default=0, description="of the draw of questions")
    skip_invalid: bool = Field(
        default=False, description="leave out malformed records, and list them, instead of failing"
    )
    world: WorldSpec | None = Field(default=None, description="format world: its settings")

    @model_validator(mode="after")
    def _fits_the_format(self) -> Self:
        if self.format in ("world", "mixed"):
            own = (
                ("train_questions", "eval_questions", "seed", "skip_invalid", "world") if self.format == "mixed" else ()
            )
            foreign = ("train", "eval", "corpus", "triples", "labels", *own)
            if given := [name for name in foreign if getattr(self, name)]:
                reason = "is generated" if self.format == "world" else "takes everything from its mixture"
                raise ValueError(f"format {self.format} {reason}; remove {', '.join(given)}")
        if (self.format == "mixed") != bool(self.mixture):
            raise ValueError("mixture: a list of datasets must be given for format mixed, and only for it")
        if any(part.format == "mixed" for part in self.mixture):
            raise ValueError("mixture: its entries cannot be mixed themselves; list them side by side")
        if self.format in ("world", "mixed"):
            return self
        if self.world is not None:
            raise ValueError(f"world is for format world, not {self.format}")
        if not self.eval and not self.train:
            raise ValueError("name question files under train, eval or both")
        if self.labels and self.format != "qald10":
            raise ValueError("labels is for format qald10")
        return self
