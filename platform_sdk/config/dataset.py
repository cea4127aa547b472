"""Settings of a recipe's dataset."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from platform_sdk.config.code import find_definition
from platform_sdk.config.source import suggestion
from platform_sdk.config.struct import Struct, equal_to
from platform_sdk.config.world import WorldSpec

HUB = "hf://"
"""Prefix of a file's name on the Hugging Face hub."""

FORMATS = {
    name: f"platform_sdk.data.formats.{module}"
    for name, module in (
        ("jsonl", "jsonl"), ("hotpotqa", "hotpotqa"), ("2wikimultihopqa", "twowiki"), ("musique", "musique"),
        ("nq", "nq"), ("triviaqa", "triviaqa"), ("popqa", "popqa"), ("bamboogle", "bamboogle"), ("qald10", "qald10"),
    )
}  # fmt: skip
"""The shipped formats of question files, each with its module."""
WITH_SENTENCES = ("hotpotqa", "2wikimultihopqa")
"""The shipped formats that annotate the sentences that support an answer."""
WITH_ENTITIES = ("jsonl", "2wikimultihopqa", "qald10")
"""The shipped formats whose questions can name the entities with which a search in a knowledge graph starts."""
_NAMES = [*FORMATS, "world", "mixed"]
_OWN = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"


def format_module(name: str) -> str:
    """Return the module of a format of question files; a user's own is its dotted name."""
    return FORMATS.get(name, name)


def _listed(value: Any) -> Any:
    if isinstance(value, str):  # also of a form in the Kubeflow UI, where a list is one line
        return tuple(path.strip() for path in value.split(",") if path.strip())
    return tuple(value) if isinstance(value, list) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...])]


class DatasetSpec(Struct):
    """Questions to train and evaluate on, and the corpus to search.

    Several paths are a list, or one text with commas. They are relative to the recipe's ``data_dir``, absolute, or
    ``hf://OWNER/NAME/FILE`` for a file of a dataset on the Hugging Face hub. Without ``corpus`` the corpus consists of
    the questions' own passages; without ``triples`` there is no knowledge graph to search.

    A ``mixed`` dataset combines several datasets: each entry of ``mixture`` has its own format and numbers of
    questions. An entry with only ``eval`` files is held out of the training, and an entry with only ``train`` files is
    not evaluated on. The mixed dataset's ``corpus``, if set, replaces the passages of its entries.
    """

    format: str = Field(
        description="the question files' official format, jsonl for your own (docs/own-data.md), a generated world, "
        "mixed: several datasets (mixture), or the dotted name of a module with a FORMAT of your own",
        json_schema_extra={"anyOf": [{"type": "string", "enum": [*_NAMES]}, {"type": "string", "pattern": _OWN}]},
    )
    mixture: tuple[DatasetSpec, ...] = Field(default=(), description="format mixed: its datasets")
    train: Paths = Field(
        default=(),
        description="question files to train on, e.g. hotpotqa/hotpot_train.json",
        examples=["hotpotqa/hotpot_train.json", "hf://OWNER/NAME/FILE"],
    )
    eval: Paths = Field(default=(), description="question files to evaluate on")
    corpus: Paths = Field(
        default=(), description="passages: JSONL of id, title, text, or of id, contents", examples=["corpus.jsonl"]
    )
    triples: Paths = Field(default=(), description="triples: TSV with a header line", examples=["triples.tsv"])
    labels: str | None = Field(
        default=None,
        description="file with names of entities: topic_entities.json for qald10; id_aliases.json for 2wikimultihopqa, "
        "whose aliases are accepted answers too",
    )
    train_questions: int | None = Field(
        default=None, ge=0, le=10_000_000, description="number of training questions, drawn at random; null: all"
    )
    train_skip: int = Field(
        default=0,
        ge=0,
        le=10_000_000,
        exclude_if=equal_to(0),
        description="number of training questions to leave out before train_questions are drawn: those of a run with "
        "this number as train_questions, and with the same files and seed",
    )
    eval_questions: int | None = Field(
        default=None, ge=0, le=10_000_000, description="number of evaluation questions, drawn at random; null: all"
    )
    seed: int = Field(default=0, description="seed of the draw")
    context_passages: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        exclude_if=equal_to(None),
        description="number of the question's own passages to provide: the gold ones, filled up with randomly drawn "
        "ones; null: all",
    )
    skip_invalid: bool = Field(default=False, description="skip and list malformed records instead of failing")
    licence: str | None = Field(
        default=None,
        min_length=1,
        exclude_if=equal_to(None),
        description="licence of the question files, e.g. CC BY 4.0, which the manifest records; null: the licence that "
        "the authors of an official format state, else unknown",
    )
    world: WorldSpec | None = Field(default=None, description="format world: settings of the generated world")

    @field_validator("format")
    @classmethod
    def _format_is_known(cls, value: str) -> str:
        if value in _NAMES:
            return value
        if "." not in value:
            raise ValueError(f"there is no format {value}; {suggestion(value, _NAMES, module=True)}")
        find_definition(f"{value}:FORMAT")
        return value

    @model_validator(mode="after")
    def _fits_the_format(self) -> Self:
        if self.format in ("world", "mixed"):
            counted = (
                "train_questions",
                "train_skip",
                "eval_questions",
                "seed",
                "context_passages",
                "skip_invalid",
                "world",
            )
            own = {"world": ("corpus", "context_passages"), "mixed": counted}[self.format]
            foreign = ("train", "eval", "triples", "labels", "licence", *own)
            default = {name: field.default for name, field in type(self).model_fields.items()}
            if given := [name for name in foreign if getattr(self, name) != default[name]]:
                reason = "is generated" if self.format == "world" else "takes its questions from its mixture"
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
        if self.labels and self.format not in ("qald10", "2wikimultihopqa") and "." not in self.format:
            raise ValueError("labels is for formats qald10 and 2wikimultihopqa, and your own")
        return self
