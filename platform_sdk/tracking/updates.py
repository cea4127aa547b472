"""``updates.jsonl`` in the folder of an online phase: one line for each update of the policy, with its digest."""

from __future__ import annotations

import hashlib
import operator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from platform_sdk.config.errors import UserError
from platform_sdk.files import REMEDY, append_line, whole_lines, write_text
from platform_sdk.run_dir import PhaseDir

FILE = PhaseDir.updates
TIMES: dict[str, Any] = {
    "sampling_seconds": True, "training_seconds": True, "sync_seconds": True, "preparation": {"seconds"},
    "sampled_per_second": True, "speed": True,
}  # fmt: skip
"""Times, excluded from the digest, so that runs with equal results have equal digests."""


class Preparation(BaseModel):
    """Cost of a credit's preparation: requests to the engine, and their sampled or scored tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: int
    tokens: int
    seconds: float


class Update(BaseModel):
    """One update. The optimiser's figures are means over the iterations on its rollouts.

    ``rewards`` and ``mean_reward`` are means over the first group of each question; rewards prepared by a credit are
    means over the trained groups. ``zero_variance`` is the share of groups without a gradient (GRPO: all rewards are
    equal). ``rollouts`` and ``tokens_sampled`` count everything sampled, ``trajectories`` the trained dialogues and
    branches, ``tokens_trained`` their agents' tokens in all iterations; ``truncated`` and ``dropped`` are trajectories
    beyond the length, ``masked`` trajectories excluded since a token limit ended them, ``replaced`` groups replaced by
    others.
    ``weights`` is the digest of the sampling weights. ``statistics`` are further statistics of the objective:
    ``entropy`` (nats, a mean over the agent's tokens), ``effective_sample_size`` (of the ratios, as a share),
    ``ratio_tail`` (share of tokens whose ratio is above 2 or below 1/2), and more.
    ``sampled_per_second`` are sampled tokens; ``speed`` is the training speed (see ``training.speed``). ``preparation``
    is not included in the cost of the rollouts, and excluded if a credit prepares nothing. ``optimizer_steps`` are the
    steps on the update's rollouts; older versions did not record them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    update: int
    mean_reward: float
    rewards: dict[str, float]
    zero_variance: float
    rollouts: int
    trajectories: int
    tokens_sampled: int
    tokens_trained: int
    truncated: int
    dropped: int
    loss: float
    kl: float | None
    clip_fraction: float | None
    statistics: dict[str, float]
    learning_rate: float
    grad_norm: float | None
    sampling_seconds: float
    training_seconds: float
    sync_seconds: float
    weights: str
    sampled_per_second: float | None = None
    speed: dict[str, float] = {}
    masked: int = Field(default=0, exclude_if=operator.not_)
    replaced: int = Field(default=0, exclude_if=operator.not_)
    optimizer_steps: int | None = Field(default=None, exclude_if=lambda count: count is None)
    preparation: Preparation | None = Field(default=None, exclude_if=lambda cost: cost is None)

    def digest(self) -> str:
        return hashlib.sha256(self.model_dump_json(exclude=TIMES).encode()).hexdigest()


class _Line(Update):
    sha256: str | None = None  # lines written before there were digests have none


def read_updates(folder: Path) -> list[Update]:
    """Return the updates of a phase in order; empty if it is not an online phase.

    A last line without a newline is ignored: it is still being written, or a kill cut it short.

    Raises:
        UserError: a line is invalid or was altered.
    """
    path = folder / FILE
    return [_read(path, number, line) for number, line in enumerate(whole_lines(path)[0], start=1)]


def append_update(folder: Path, update: Update) -> None:
    """Append an update durably."""
    append_line(folder / FILE, _line(update))


def keep_updates(folder: Path, last: int) -> None:
    """Delete the updates after ``last``, from which the run resumes."""
    lines = "".join(f"{_line(update)}\n" for update in read_updates(folder) if update.update <= last)
    write_text(folder / FILE, lines)


def _line(update: Update) -> str:
    return _Line(**update.model_dump(), sha256=update.digest()).model_dump_json()


def _read(path: Path, number: int, line: bytes) -> Update:
    try:
        read = _Line.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "line"
        raise UserError(f"{path}:{number}: {where}: {first['msg']}, so it was altered; {REMEDY}") from error
    update = Update(**read.model_dump(exclude={"sha256"}))
    if read.sha256 is not None and read.sha256 != update.digest():
        raise UserError(f"{path}:{number}: was altered after it was written; {REMEDY}")
    return update
