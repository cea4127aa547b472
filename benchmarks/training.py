"""Tokens per second of hopforge's trainer and of TRL's SFTTrainer, on the same model and examples.

    python benchmarks/training.py [--steps 8] [--rounds 3] [--json]

One process, one thread, float32. Every trainer starts from the same weights, sees the same 32 examples
in each optimiser step, with the same AdamW, schedule and clipping, loss on the same tokens, no gradient
checkpointing and no saving within the measured time; the rounds are interleaved. TRL gets tokenised
examples with labels, its own fused language-model head, and several divisions of a step (padded batches
of 32 and of 8, padding-free ones of 4); it is judged by its best. Seconds are the process's CPU seconds
(on an idle core: all that pass), so that what else the machine does counts little, from the begin of the
first step to the end of the last. The loss curves must agree, or the benchmark fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
from transformers.utils import logging as transformers_logging
from trl import SFTConfig, SFTTrainer

from platform_sdk.config.training import TrainSpec
from platform_sdk.training.batches import plan
from platform_sdk.training.examples import Example
from platform_sdk.training.run import train

VOCABULARY, BATCH = 2000, 32
SEED = 0
RATIO_WANTED = 1.15
TOLERANCE = 2e-3


@dataclass(frozen=True)
class Run:
    seconds: float
    losses: list[float]


def make_model(path: Path) -> None:
    """A Llama of 2.6M parameters with random weights."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=192, intermediate_size=512, num_hidden_layers=5, num_attention_heads=6,
        num_key_value_heads=6, max_position_embeddings=1024, tie_word_embeddings=True, pad_token_id=0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(path)
    words = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w3"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="w0", eos_token="w2").save_pretrained(path)


def make_examples(count: int) -> list[Example]:
    """Dialogues of 120 to 280 tokens, a third of them the agent's, from a bigram language that can be learned."""
    rng = random.Random(SEED)
    follow = [[rng.randrange(3, VOCABULARY) for _ in range(4)] for _ in range(VOCABULARY)]
    examples = []
    for number in range(count):
        length = rng.randint(120, 280)
        tokens = [rng.randrange(3, VOCABULARY)]
        while len(tokens) < length:
            tokens.append(rng.choice(follow[tokens[-1]]))
        mask = tuple(int((j // 30) % 3 == 2) for j in range(length))
        examples.append(Example(f"e{number}", tuple(tokens), mask, (0.0,) * length, "none"))
    return examples


SPEC = TrainSpec(
    learning_rate=2e-3, minimum_learning_rate=2e-4, batch_size=BATCH, micro_batch_tokens=2048, device="cpu",
    checkpoint_steps=10**6,
)  # fmt: skip


def run_hopforge(model: Path, examples: list[Example], folder: Path) -> Run:
    clock = Clock()
    result = train(
        SPEC, examples, model, folder / "model", seed=SEED, checkpoints=folder / "checkpoints", callbacks=[clock]
    )
    return Run(clock.seconds, [entry.loss for entry in result.curve])


class Clock(TrainerCallback):
    """CPU seconds from the begin of the first step to the last log of one, before anything is saved."""

    def __init__(self) -> None:
        self.start: float | None = None
        self.seconds = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = self.start or time.process_time()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        if "loss" in logs and self.start is not None:
            self.seconds = time.process_time() - self.start


def run_trl(model: Path, examples: list[Example], folder: Path, micro: int, padding_free: bool) -> Run:
    steps = plan(examples, batch_size=BATCH, micro_batch_tokens=SPEC.micro_batch_tokens, epochs=1, seed=SEED)
    order = [index for step in steps for part in step.shares[0] for index in part.examples]
    rows = [
        {
            "input_ids": list(examples[i].token_ids),
            "labels": [t if m else -100 for t, m in zip(examples[i].token_ids, examples[i].agent_mask, strict=True)],
        }
        for i in order
    ]
    clock = Clock()
    config = SFTConfig(
        output_dir=str(folder), per_device_train_batch_size=micro, gradient_accumulation_steps=BATCH // micro,
        max_steps=len(steps), learning_rate=SPEC.learning_rate, lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr": SPEC.minimum_learning_rate}, optim="adamw_torch_fused",
        weight_decay=SPEC.weight_decay, max_grad_norm=SPEC.max_grad_norm, gradient_checkpointing=False, bf16=False,
        use_cpu=True, train_sampling_strategy="sequential", save_strategy="no", logging_steps=1, report_to=[],
        disable_tqdm=True, seed=SEED, padding_free=padding_free, max_length=None, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = SFTTrainer(
        LlamaForCausalLM.from_pretrained(model, dtype=torch.float32), config, train_dataset=Dataset.from_list(rows),
        processing_class=PreTrainedTokenizerFast.from_pretrained(model), callbacks=[clock],
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return Run(clock.seconds, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    examples = make_examples(BATCH * options.steps)
    tokens = sum(len(example.token_ids) for example in examples)
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        model = base / "model"
        make_model(model)
        trainers = {
            "hopforge": lambda folder: run_hopforge(model, examples, folder),
            "trl 32 padded": lambda folder: run_trl(model, examples, folder, 32, False),
            "trl 8 padded": lambda folder: run_trl(model, examples, folder, 8, False),
            "trl 4 padding-free": lambda folder: run_trl(model, examples, folder, 4, True),
        }
        for round_number in range(options.rounds):
            for number, (trainer, run) in enumerate(trainers.items()):
                runs.setdefault(trainer, []).append(run(base / f"{round_number}-{number}"))
    speeds = {trainer: [tokens / run.seconds for run in done] for trainer, done in runs.items()}
    ours = runs["hopforge"][0].losses
    apart = max(
        abs(a - b) / b for trainer, done in runs.items() for run in done for a, b in zip(ours, run.losses, strict=True)
    )
    peers = [trainer for trainer in speeds if trainer != "hopforge"]
    # Within a round, against TRL's best of that round: a busy machine slows both.
    ratios = [speeds["hopforge"][r] / max(speeds[peer][r] for peer in peers) for r in range(options.rounds)]
    figures = {
        "tokens_per_second": {trainer: median(values) for trainer, values in speeds.items()},
        "ratio_to_best_trl": median(ratios),
        "ratios": ratios,
        "loss_first_last": [ours[0], ours[-1]],
        "largest_relative_loss_difference": apart,
    }
    if options.json:
        print(json.dumps(figures))
    else:
        for trainer, values in speeds.items():
            print(f"{trainer:20s} {median(values):8.0f} tokens/s   (rounds: {', '.join(f'{v:.0f}' for v in values)})")
        print(
            f"ratio to TRL's best: {median(ratios):.2f} (wanted {RATIO_WANTED}; rounds {[round(r, 2) for r in ratios]})"
        )
        print(f"loss {ours[0]:.4f} to {ours[-1]:.4f}; largest relative difference of the curves {apart:.1e}")
    assert apart < TOLERANCE, f"the loss curves differ by {apart:.1e}"
    return 0 if median(ratios) >= RATIO_WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
