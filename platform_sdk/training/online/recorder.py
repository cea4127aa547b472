"""Callback of an online run: records every update and reports progress."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import TrainerCallback

from platform_sdk.config.errors import UserError
from platform_sdk.files import REMEDY
from platform_sdk.record_files import check_log
from platform_sdk.tracking.updates import FILE, Update, append_update, keep_updates, read_updates
from platform_sdk.training.objectives import effective_sample_size
from platform_sdk.training.online.source import OnlineSource, SampledUpdate
from platform_sdk.training.speed import FIGURES
from platform_sdk.training.trainer import speed_line

logger = logging.getLogger(__name__)
Logs = dict[str, float]
MOMENTS = ("ratio_moment1", "ratio_moment2")
NOT_STATISTICS = {*Update.model_fields, *FIGURES, *MOMENTS, "seconds", "epoch", "step"}


class Recorder(TrainerCallback):  # type: ignore[misc]
    """Record of each finished update in a file, the log and a progress bar.

    It also settles the source before a checkpoint is written.
    """

    def __init__(self, source: OnlineSource, folder: Path) -> None:
        self._source, self._folder = source, folder
        self._logs: list[Logs] = []
        self._bar: tqdm[Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            total, done = (steps // self._source.steps_each for steps in (state.max_steps, state.global_step))
            self._check_learned(done)
            keep_updates(self._folder, done)
            self._bar = tqdm(total=total, initial=done, desc="online", unit="update")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % args.save_steps == 0:
            self._source.settle()

    def on_log(self, args: Any, state: Any, control: Any, logs: Logs | None = None, **_: Any) -> None:
        if self._bar is None or not logs or "loss" not in logs:
            return
        self._logs.append(dict(logs))
        if state.global_step % self._source.steps_each == 0:
            assert self._source.current is not None
            self._record(_update(self._source.current, self._logs))
            self._logs = []

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._bar is not None:
            self._bar.close()

    def _check_learned(self, done: int) -> None:
        """Check that the data of the updates in the checkpoint is intact, since it is not sampled again."""
        for update in range(1, done + 1):
            if not any((self._folder / "rollouts").glob(f"{update:04d}*.jsonl")):
                raise UserError(f"{self._folder / 'rollouts' / f'{update:04d}.jsonl'}: is missing; {REMEDY}")
        for path in sorted((self._folder / "rollouts").rglob("*.jsonl")):
            if path.name[:4].isdigit() and int(path.name[:4]) <= done:
                check_log(path)
        if len(read_updates(self._folder)) < done:
            raise UserError(f"{self._folder / FILE}: lacks updates that the checkpoint has, so it was cut; {REMEDY}")

    def _record(self, update: Update) -> None:
        assert self._bar is not None
        append_update(self._folder, update)
        shown = f"reward {update.mean_reward:.3f}, loss {update.loss:.4f}, {speed_line(update.speed)}"
        self._bar.set_postfix_str(shown, refresh=False)
        self._bar.update()
        with logging_redirect_tqdm():
            logger.info("%s", _told(update))


def _update(sampled: SampledUpdate, logs: Sequence[Logs]) -> Update:
    def mean(name: str) -> float:
        return sum(entry[name] for entry in logs) / len(logs)

    def mean_if_there(name: str) -> float | None:
        return mean(name) if name in logs[0] else None

    return Update(
        update=sampled.update,
        mean_reward=sampled.rewards[sampled.reward],
        rewards=sampled.rewards,
        zero_variance=sampled.zero_variance,
        rollouts=sampled.rollouts,
        trajectories=sampled.trajectories,
        tokens_sampled=sampled.tokens_sampled,
        tokens_trained=sampled.agent_tokens * len(logs) // len(sampled.mini_batches),
        truncated=sampled.truncated,
        dropped=sampled.dropped,
        loss=mean("loss"),
        kl=mean_if_there("kl"),
        clip_fraction=mean_if_there("clip_fraction"),
        masked=sampled.masked,
        replaced=sampled.replaced,
        statistics={
            **{name: mean(name) for name in logs[0] if name not in NOT_STATISTICS},
            "effective_sample_size": sum(effective_sample_size(*map(entry.__getitem__, MOMENTS)) for entry in logs)
            / len(logs),
        },
        learning_rate=logs[-1]["learning_rate"],
        grad_norm=mean_if_there("grad_norm"),
        sampling_seconds=round(sampled.sampling_seconds, 3),
        training_seconds=round(sum(entry["seconds"] for entry in logs), 3),
        sync_seconds=round(sampled.sync_seconds, 3),
        sampled_per_second=sampled.tokens_sampled / sampled.sampling_seconds if sampled.sampling_seconds else None,
        speed={name: mean(name) for name in FIGURES if name in logs[0]},
        weights=sampled.weights,
        optimizer_steps=len(logs),
        preparation=sampled.preparation,
    )


def _told(update: Update) -> str:
    rewards = ", ".join(f"{name} {value:.3f}" for name, value in update.rewards.items())
    figures = {"kl": update.kl, "clip_fraction": update.clip_fraction, **update.statistics}
    statistics = ", ".join(f"{name} {value:.4g}" for name, value in figures.items() if value is not None)
    cost = update.preparation
    prepared = f"{cost.tokens} for credit in {cost.seconds:.1f} s, " if cost is not None else ""
    return (
        f"update {update.update}: reward {update.mean_reward:.3f} ({rewards}); "
        f"{update.zero_variance:.0%} of the groups teach nothing; "
        f"loss {update.loss:.4f}, {statistics}, rate {update.learning_rate:.2e}; "
        f"{update.tokens_sampled} tokens sampled in {update.sampling_seconds:.1f} s, {prepared}"
        f"trained in {update.training_seconds:.1f} s ({speed_line(update.speed)}), "
        f"weights handed over in {update.sync_seconds:.1f} s"
    )
