"""Supervised fine-tuning: tokens per second and MFU of hopforge's trainer and of a bare loop. Goal: MFU 45 % at 3B–8B.

    python -m benchmarks.gpu.sft [--model 3B] [--dry-run] [--json FILE]

The bare loop has transformers' model under autocast, its own loss over rows of equal length, and AdamW with the same
settings but for the schedule of the learning rate. hopforge's tokens per second are those of its training steps,
without the packing of rows, which the bare loop does not need.
"""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from benchmarks.gpu.harness import Setup, dialogues, main
from benchmarks.gpu.model import predicted_mfu
from platform_sdk.config.training import TrainSpec
from platform_sdk.sizing.flops import training_operations
from platform_sdk.training.run import train

LENGTH, MICRO_BATCH, STEP, STEPS = 2048, 8192, 32768, 6
SKIPPED = 2  # steps in which kernels are chosen and memory is found


def measure(case: Setup) -> list[dict[str, Any]]:
    length, micro, step = (32, 64, 128) if case.dry else (LENGTH, MICRO_BATCH, STEP)
    examples = dialogues(case.shape.vocabulary, step // length * STEPS, length // 2, length // 2)
    spec = TrainSpec(
        batch_size=step // length, micro_batch_tokens=micro, learning_rate=1e-5, device=case.device,
        checkpoint_steps=1_000_000, gradient_checkpointing=case.shape.parameters > 2e9,
    )  # fmt: skip
    result = train(spec, examples, case.path, case.path.with_name("out"), seed=0, checkpoints=case.path.with_name("c"))
    ours = median(point.speed["tokens_per_second"] for point in result.curve[SKIPPED:])
    bare = _bare(case, [example.token_ids for example in examples], micro // length, step // length, spec)
    figures: dict[str, Any] = {"model": case.name, "tokens/s": ours, "bare tokens/s": bare, "ratio": ours / bare}
    if case.card is not None:
        of_token = training_operations(case.shape, 1, 0, 0).body
        figures |= {
            "MFU": of_token * ours / case.card.peak,
            "predicted MFU": predicted_mfu(
                case.shape, case.card, tokens=step, learned=step // 2, length=length, micro_batch=micro,
                recomputed=spec.gradient_checkpointing,
            ),
            "goal": 0.45,
        }  # fmt: skip
    return [figures]


def _bare(case: Setup, rows: list[tuple[int, ...]], at_once: int, in_step: int, spec: TrainSpec) -> float:
    """Return the tokens per second of a loop of transformers' model, torch's optimiser and nothing else."""
    model = case.load()
    if spec.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True)
    ids = torch.tensor(rows, device=case.device)
    labels = ids.clone()
    labels[:, : ids.shape[1] // 2] = -100
    ends = []
    for step in range(len(rows) // in_step):
        for start in range(step * in_step, (step + 1) * in_step, at_once):
            part = slice(start, start + at_once)
            with case.autocast():
                loss = model(input_ids=ids[part], labels=labels[part], use_cache=False).loss
            (loss * at_once / in_step).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        loss.item()  # waits for the device
        ends.append(time.perf_counter())
    return in_step * ids.shape[1] / median(after - before for before, after in pairwise(ends[SKIPPED - 1 :]))


if __name__ == "__main__":
    main(__doc__ or "", measure)
