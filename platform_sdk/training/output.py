"""Directory of a trained model with its training figures, written atomically."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict
from transformers import Trainer

from platform_sdk.config.errors import UserError
from platform_sdk.files import read_model
from platform_sdk.processes.shares import wait_for_all
from platform_sdk.sampling.models import load_tokenizer, resolve
from platform_sdk.training.checkpoints import publish, staging

RESULT = "training.json"


class TrainedModel(BaseModel):
    """A trained model: its directory, and the digest of all training inputs."""

    model_config = ConfigDict(frozen=True)

    model: str
    inputs: str


M = TypeVar("M", bound=TrainedModel)


def completed(output: Path, inputs: str, kind: type[M]) -> M | None:
    """Return the result in ``output`` if it has the same inputs, else None."""
    file = output / RESULT
    if not file.exists():
        return None
    result = read_model(file, kind)
    return result.model_copy(update={"model": str(output)}) if result.inputs == inputs else None


def read_back(output: Path, inputs: str, kind: type[M]) -> M:
    """Return the result that ``write_model`` has written.

    Raises:
        UserError: the result is not visible, since the processes do not share a directory.
    """
    result = completed(output, inputs, kind)
    if result is None:
        raise UserError(f"{output}: written by the main process, but not visible to this one; use a shared directory")
    return result


def write_model(trainer: Trainer, parent: str | Path, output: Path, describe: Callable[[Path], TrainedModel]) -> None:
    """Write the trainer's model and ``parent``'s tokenizer to ``output``, as one atomic step. Every process calls this.

    Args:
        describe: builds the result from the directory of the written model; called on the main process.
    """
    written = output.with_name(f".{output.name}.writing")
    if trainer.args.should_save:
        staging(output)
    wait_for_all()
    trainer.save_model(str(written))
    wait_for_all()
    if trainer.args.should_save:
        load_tokenizer(parent).save_pretrained(written)
        (written / RESULT).write_text(describe(written).model_dump_json(indent=1))
        publish(written, output)
    wait_for_all()


def pass_through(model: str | Path, output: Path, result: TrainedModel) -> None:
    """Write the input model as the output model, with a result that gives the reason."""
    written = staging(output)
    shutil.copytree(resolve(model), written, dirs_exist_ok=True)
    load_tokenizer(model).save_pretrained(written)
    (written / RESULT).write_text(result.model_dump_json(indent=1))
    publish(written, output)
