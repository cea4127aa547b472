"""What an online phase wrote of each of its updates."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from platform_sdk.config.errors import UserError

FILE = "updates.jsonl"


class Update(BaseModel):
    """One update. ``zero_variance`` is the share of groups whose rewards were all equal, and so taught nothing.

    ``trajectories`` counts the dialogues trained on. Loss and what belongs to it are None where no group taught.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    update: int
    mean_reward: float
    rewards: dict[str, float] = {}
    zero_variance: float | None = None
    rollouts: int
    trajectories: int
    tokens_sampled: int
    tokens_trained: int
    loss: float | None = None
    kl: float | None = None
    clip_fraction: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    sampling_seconds: float
    training_seconds: float
    sync_seconds: float = 0.0


def read_updates(folder: Path) -> list[Update]:
    """Return the updates of a phase in their order; none if it is not an online phase.

    An update that was made again after a kill stands there twice: the later line counts. A last line without its
    end is still being written.

    Raises:
        UserError: a line is not what it should be.
    """
    path = folder / FILE
    if not path.is_file():
        return []
    found: dict[int, Update] = {}
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith("\n"):
                break
            try:
                update = Update.model_validate_json(line)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"])) or "line"
                raise UserError(f"{path}:{number}: {where}: {first['msg']}") from error
            found[update.update] = update
    return [found[number] for number in sorted(found)]
