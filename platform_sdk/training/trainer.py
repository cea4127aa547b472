"""``transformers.Trainer`` for an objective on packed trajectories.

The library provides the optimiser loop, schedules, mixed precision, DeepSpeed, clipping and the content of checkpoints
(safetensors weights; optimiser, scheduler and RNG states, read with ``weights_only=True``, so that a checkpoint cannot
run code). This module adds the source of steps, the loss from an objective, and atomic checkpoints.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, SequentialSampler
from tqdm import tqdm
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from platform_sdk.processes.shares import wait_for_all
from platform_sdk.training.batches import Batch, Step, pack
from platform_sdk.training.checkpoints import discard_after, discard_older, latest, publish, seal, staging
from platform_sdk.training.examples import Example
from platform_sdk.training.masters import master_weights
from platform_sdk.training.objectives import Objective
from platform_sdk.training.policy import agent_scores
from platform_sdk.training.reference import Reference
from platform_sdk.training.speed import StepSpeed


class NotFinite(RuntimeError):
    """The loss became infinite or not a number."""


class Source(Protocol):
    """Source of the examples of a run's optimiser steps, for one process."""

    def __len__(self) -> int:
        """Return the number of optimiser steps of the run."""

    def __getitem__(self, step: int) -> Sequence[Batch]:
        """Return this process's micro-batches of a step (from 0); every process has the same number.

        Steps are requested in order, once each, after the previous step is done, so they may be sampled with the
        current weights. A resumed run starts at its checkpoint's step.
        """


class PolicyTrainer(Trainer):  # type: ignore[misc]
    """A Trainer whose steps come from a source and whose loss comes from an objective.

    Args:
        temperature: temperature of the policy and the reference in the objective.
        entropy: log the policy's entropy.
    """

    def __init__(
        self, model: Any, args: TrainingArguments, *, source: Source, objective: Objective,
        reference: Reference | None = None, temperature: float = 1.0, entropy: bool = False,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:  # fmt: skip
        self._source = source
        self._objective = objective
        self._reference = reference
        self._temperature, self._entropy = temperature, entropy
        self._statistics: dict[str, torch.Tensor] = {}
        self._begun = 0.0
        super().__init__(model, args, train_dataset=source, callbacks=list(callbacks))
        self.remove_callback(PrinterCallback)
        self._speed = StepSpeed(model, self.accelerator)

    def resume(self) -> None:
        """Train to the end, from the latest intact checkpoint if any."""
        folder = Path(str(self.args.output_dir))
        checkpoint = latest(folder)
        wait_for_all()
        if self.args.should_save:
            discard_after(folder, checkpoint)
        wait_for_all()
        self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader with one item per step: this process's share, which accelerate must not split again."""
        source: Any = self._source
        return DataLoader(source, batch_size=1, sampler=SequentialSampler(source), collate_fn=_micro_batches)

    def training_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Accumulate the gradient of a whole step; return the step's loss.

        Additional statistics, as means over agent tokens: the policy's ``entropy`` if enabled; and
        ``logprob_difference``, the distance of its log-probabilities from the sampling engine's, which is the engine's
        error in the first step. With scaled logits of another temperature than 1, which engines do not report, it is
        the distance from the recomputed log-probabilities.

        Gradients are averaged over processes, so each loss is multiplied by their number: the sum over micro-batches
        and processes is the step's loss for any division.
        """
        self._begun = time.perf_counter()
        self._speed.begin()
        model.train()
        micro_batches: Sequence[Batch] = inputs["micro_batches"]
        total = torch.zeros((), device=self.args.device)
        statistics: dict[str, torch.Tensor] = {}
        for number, batch in enumerate(micro_batches, start=1):
            last = number == len(micro_batches)
            self.accelerator.gradient_state._set_sync_gradients(last)
            local = contextlib.nullcontext() if last or self.is_deepspeed_enabled else self.accelerator.no_sync(model)
            batch = batch.to(self.args.device)
            self._speed.add(batch)
            if self._reference is not None:
                batch = replace(batch, reference_logprobs=self._reference.logprobs(batch, self._temperature))
            with local:
                logprobs, entropies = agent_scores(model, batch, self._temperature, entropy=self._entropy)
                loss, named = self._objective(logprobs, batch)
                loss = loss * self.args.world_size
                self.accelerator.backward(loss, **({"scale_wrt_gas": False} if self.is_deepspeed_enabled else {}))
            if self._entropy:
                named = {**named, "entropy": entropies.sum() / batch.step_tokens}
            sampled = batch.old_logprobs
            if batch.engine_logprobs is not None and self._temperature == 1:  # the engine's are at temperature 1
                sampled = batch.engine_logprobs
            if sampled is not None:
                off = (logprobs.detach() - sampled).abs().sum() / batch.step_tokens
                named = {**named, "logprob_difference": off}
            total += loss.detach()
            for name, value in named.items():
                statistics[name] = statistics.get(name, 0) + value.detach()
        if not torch.isfinite(total):
            raise NotFinite(
                f"the loss of step {self.state.global_step + 1} is {total.item()}; lower learning_rate, or look for "
                "damaged weights in the model it started from"
            )
        self._statistics = statistics
        return total

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the step's seconds and speed, and the objective's statistics, summed over processes."""
        if "loss" in logs:
            for name, value in self._statistics.items():
                logs[name] = self.accelerator.reduce(value, reduction="sum").item()
            logs["seconds"] = time.perf_counter() - self._begun
            logs |= self._speed.figures(logs["seconds"])
        super().log(logs, start_time)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        folder = Path(str(self.args.output_dir))
        name = f"checkpoint-{self.state.global_step}"
        written = folder / f".{name}.writing"
        if self.args.should_save:
            staging(folder / name)
        wait_for_all()
        self.args.output_dir = str(written)
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.output_dir = str(folder)
        wait_for_all()
        if self.args.should_save:
            seal(written / name)
            publish(written / name, folder / name)
            shutil.rmtree(written)
            discard_older(folder)
        wait_for_all()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model; under DeepSpeed with its float32 masters, except for adapters and checkpoints."""
        if _internal_call or not self.is_deepspeed_enabled or hasattr(self.model, "peft_config"):
            super().save_model(output_dir, _internal_call)
            return
        self._save(output_dir, master_weights(self.model, keep=self.args.should_save))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None) -> None:
        """Save without ``training_args.bin``, an unused pickle."""
        super()._save(output_dir, state_dict)
        Path(output_dir or str(self.args.output_dir), "training_args.bin").unlink(missing_ok=True)


class PlannedSteps:
    """Source of planned steps: a process's share of each step, packed on request."""

    def __init__(self, steps: Sequence[Step], examples: Sequence[Example], process: int) -> None:
        self._steps, self._examples, self._process = steps, examples, process

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: int) -> list[Batch]:
        step = self._steps[index]
        return [pack(self._examples, micro, step) for micro in step.shares[self._process]]


def _micro_batches(items: list[Sequence[Batch]]) -> dict[str, Sequence[Batch]]:
    return {"micro_batches": items[0]}


def speed_line(logs: Mapping[str, float]) -> str:
    """Return a step's speed for a line of progress."""
    share = f", MFU {logs['mfu']:.0%}" if "mfu" in logs else ""
    return f"{logs['tokens_per_second']:,.0f} tokens/s{share}"


class Progress(TrainerCallback):  # type: ignore[misc]
    """A progress bar with loss and speed."""

    def __init__(self) -> None:
        self._bar: tqdm[Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self._bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step")

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if self._bar is not None and logs and "loss" in logs:
            self._bar.set_postfix_str(f"loss {logs['loss']:.4f}, {speed_line(logs)}", refresh=False)
            self._bar.update(state.global_step - self._bar.n)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._bar is not None:
            self._bar.close()
