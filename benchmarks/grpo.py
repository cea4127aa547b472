"""Time and memory of a GRPO step, generation aside: hopforge's trainer and TRL's GRPOTrainer, on the same samples.

    python benchmarks/grpo.py [--updates 3] [--rounds 3] [--json]

One process, one thread, float32, a vocabulary of 32,000. Both start from the same weights, are given the same groups
of completions with the same rewards, and do all the rest: advantages, log-probabilities of a frozen reference, the
clipped loss with KL (k3, beta 0.04) over the step's tokens, and AdamW with the same schedule and clipping. TRL's
weighting of the KL term by the ratio is off. No gradient checkpointing, no saving within the measured time. TRL scores
the whole padded rows on a CPU and the completions alone on a GPU; here it does either, with a step's completions at
once and in parts, and is judged by its best.

Seconds are the process's CPU seconds (on an idle core: all that pass; those are shown beside them), less what stands
for generation: TRL's look-up of the samples, and here the old log-probabilities, which a sampling engine records.
Memory is the highest resident size of a process that was forked for the one run, above that of its parent. The
rounds are interleaved. The losses must agree, or the benchmark fails.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
import trl.trainer.grpo_trainer as grpo_trainer
import trl.trainer.utils as trl_utils
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer

from platform_sdk.config.credit import GdpoCreditSpec, GroupCreditSpec
from platform_sdk.config.online import CispoClip, GspoClip, OnlineSpec
from platform_sdk.training.advantages import gdpo_advantages, update_advantages
from platform_sdk.training.arguments import set_steps, training_arguments
from platform_sdk.training.batches import Batch, pack, shared_step
from platform_sdk.training.examples import Example
from platform_sdk.training.objectives import GroupRelative
from platform_sdk.training.policy import agent_logprobs, load_policy
from platform_sdk.training.reference import reference_for
from platform_sdk.training.trainer import PolicyTrainer

VOCABULARY, SEED, END = 32_000, 0, 2
RATIO_WANTED = 2.0
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Group:
    """Completions of one prompt, and their rewards; ``style`` is a second reward, for GDPO."""

    prompt: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    rewards: tuple[float, ...]
    style: tuple[float, ...] = ()


Updates = Sequence[Sequence[Group]]


@dataclass
class Run(TrainerCallback):
    """Cost of one training: a stopwatch that begins with the training and stops where generation goes on."""

    cpu: float = 0.0
    wall: float = 0.0
    losses: list[float] = field(default_factory=list)
    peak: int = 0

    def __post_init__(self) -> None:
        self._aside = [0.0, 0.0]

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._start = [time.process_time(), time.perf_counter()]

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        if "loss" in logs:
            self.losses.append(logs["loss"])
            self.cpu = time.process_time() - self._start[0] - self._aside[0]
            self.wall = time.perf_counter() - self._start[1] - self._aside[1]

    @contextmanager
    def generation(self) -> Any:
        began = time.process_time(), time.perf_counter()
        yield
        self._aside[0] += time.process_time() - began[0]
        self._aside[1] += time.perf_counter() - began[1]


class Recorded:
    """A trainer's source that has every update's samples, and their log-probabilities of the policy at that time."""

    def __init__(self, updates: Updates, spec: OnlineSpec, policy: Any, run: Run, temperature: float) -> None:
        self._updates, self._spec, self._policy, self._run = updates, spec, policy, run
        self._temperature = temperature
        self._steps: list[list[Batch]] = []

    def __len__(self) -> int:
        return len(self._updates) * self._spec.steps_each

    def __getitem__(self, step: int) -> Sequence[Batch]:
        if step % self._spec.steps_each == 0:
            groups = self._updates[step // self._spec.steps_each]
            advantages = _advantages(groups, self._spec)
            examples = [
                _examples(f"q{number}", *each) for number, each in enumerate(zip(groups, advantages, strict=True))
            ]
            count = self._spec.mini_batches
            self._steps = [self._step([e for each in examples[n::count] for e in each]) for n in range(count)]
        return self._steps[step % self._spec.mini_batches]

    def _step(self, examples: Sequence[Example]) -> list[Batch]:
        shown = [each for each in examples if not self._spec.mask_truncated or each.token_ids[-1] == END]
        masked = len(examples) - len(shown)
        planned = shared_step(shown, 1, self._spec.micro_batch_tokens, share_prompts=True, masked=masked)
        batches = [pack(shown, micro, planned) for micro in planned.shares[0]]
        with self._run.generation(), torch.no_grad():
            return [
                replace(
                    batch,
                    old_logprobs=agent_logprobs(self._policy, batch, self._temperature),
                    engine_logprobs=batch.old_logprobs,
                )
                for batch in batches
            ]


def _advantages(groups: Sequence[Group], spec: OnlineSpec) -> list[list[float]]:
    if isinstance(spec.credit, GdpoCreditSpec):
        return gdpo_advantages([{"gain": group.rewards, "style": group.style} for group in groups], spec.credit)
    assert isinstance(spec.credit, GroupCreditSpec)
    return update_advantages([group.rewards for group in groups], spec.credit)


def _engine_logprobs(completion: Sequence[int]) -> list[float]:
    """Return what an engine that is unlike the trainer might report: about log 1/60, and off by up to 1."""
    return [-4.1 + math.sin(7 * token) for token in completion]


def _examples(name: str, group: Group, advantages: Sequence[float]) -> list[Example]:
    prompt = len(group.prompt)
    return [
        Example(
            id=f"{name}#{number}",
            token_ids=group.prompt + completion,
            agent_mask=(0,) * prompt + (1,) * len(completion),
            logprobs=((0.0,) * prompt + tuple(_engine_logprobs(completion))),
            weights="",
            advantages=(0.0,) * prompt + (advantage,) * len(completion),
        )
        for number, (completion, advantage) in enumerate(zip(group.completions, advantages, strict=True))
    ]


def run_hopforge(model: Path, updates: Updates, spec: OnlineSpec, folder: Path, *, temperature: float = 1.0) -> Run:
    run = Run()
    args = training_arguments(spec, folder, SEED, "cpu")
    set_steps(args, spec, len(updates) * spec.steps_each)
    args.save_strategy = "no"
    policy = load_policy(model, spec, attention="packed")
    trainer = PolicyTrainer(
        policy,
        args,
        source=Recorded(updates, spec, policy, run, temperature),
        objective=GroupRelative.of(spec),
        reference=reference_for(model, policy, spec, "cpu"),
        temperature=temperature,
        callbacks=[run],
    )
    trainer.train()
    return run


def run_trl(
    model: Path, updates: Updates, spec: OnlineSpec, folder: Path, *, parts: int = 1, completions_only: bool = False,
    temperature: float = 1.0,
) -> Run:  # fmt: skip
    """TRL on the same samples; a step's completions at once or in ``parts``, the mini-batches in hopforge's order."""
    run = Run()
    groups = {f"u{u}q{q}": group for u, update in enumerate(updates) for q, group in enumerate(update)}
    size = len(updates[0][0].completions)

    def rollout(prompts: list[str], _trainer: Any) -> dict[str, list[Any]]:
        with run.generation():
            chosen = [(groups[name], place % size) for place, name in enumerate(prompts)]
            return {
                "prompt_ids": [list(group.prompt) for group, _ in chosen],
                "completion_ids": [list(group.completions[number]) for group, number in chosen],
                "logprobs": [_engine_logprobs(group.completions[number]) for group, number in chosen],
                "gain": [group.rewards[number] for group, number in chosen],
                "style": [(group.style or group.rewards)[number] for group, number in chosen],
            }

    def gain(completions: list[str], gain: list[float], **_: Any) -> list[float]:
        return gain

    def style(completions: list[str], style: list[float], **_: Any) -> list[float]:
        return style

    rewards: list[Any] = [gain, style] if isinstance(spec.credit, GdpoCreditSpec) else [gain]
    questions, steps = len(updates[0]), len(updates) * spec.steps_each
    order = [n * size + k for part in range(spec.mini_batches) for n in range(part, questions, spec.mini_batches)
             for k in range(size)]  # fmt: skip
    config = GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=questions * size // spec.mini_batches // parts,
        gradient_accumulation_steps=parts, steps_per_generation=parts * spec.mini_batches,
        num_generations=size, num_iterations=spec.iterations, max_steps=steps,
        shuffle_dataset=False, beta=spec.beta, temperature=temperature, mask_truncated_completions=spec.mask_truncated,
        use_bias_correction_kl=False, **_trl_options(spec),
        learning_rate=spec.learning_rate, lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": spec.minimum_learning_rate / spec.learning_rate},
        warmup_steps=round(spec.warmup_ratio * steps), optim="adamw_torch_fused",
        weight_decay=spec.weight_decay, adam_epsilon=spec.epsilon, max_grad_norm=spec.max_grad_norm,
        gradient_checkpointing=False, bf16=False,
        use_cpu=True, save_strategy="no", logging_steps=1, report_to=[], disable_tqdm=True, seed=SEED,
        dataloader_pin_memory=False, max_completion_length=spec.normalization_length or 1024,
        model_init_kwargs={"dtype": "float32"},
    )  # fmt: skip
    prompts = Dataset.from_list([{"prompt": name} for name in groups])
    before = trl_utils._use_triton, grpo_trainer.shuffle_sequence_dict
    grpo_trainer.shuffle_sequence_dict = lambda rows: {
        name: values if values is None or getattr(values, "ndim", 1) == 0 else _chosen(values, order)
        for name, values in rows.items()
    }
    if completions_only:  # as on a GPU: what decides it asks for Triton, and nothing else there does
        trl_utils._use_triton = lambda _device: True
    try:
        trainer = GRPOTrainer(
            str(model), reward_funcs=rewards, args=config,
            train_dataset=prompts, processing_class=PreTrainedTokenizerFast.from_pretrained(model),
            rollout_func=rollout, callbacks=[run],
        )  # fmt: skip
        if spec.engine_correction is not None:  # TRL corrects for vLLM alone, of which the rollouts here need nothing
            trainer.use_vllm, trainer._last_loaded_step = True, None
            trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    finally:
        trl_utils._use_triton, grpo_trainer.shuffle_sequence_dict = before
    return run


def _trl_options(spec: OnlineSpec) -> dict[str, Any]:
    """Return TRL's names of the loss, the clipping, the credit and the correction."""
    options: dict[str, Any] = {
        "loss_type": {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}[spec.normalization],
    }
    if isinstance(spec.clip, CispoClip):
        options |= {"loss_type": "cispo", "epsilon_high": spec.clip.maximum}
    elif isinstance(spec.clip, float):
        options |= {"epsilon": spec.clip}
    else:
        options |= {"epsilon": spec.clip.low, "epsilon_high": spec.clip.high}
    if isinstance(spec.clip, GspoClip):
        options |= {"importance_sampling_level": "sequence"}
    if isinstance(spec.credit, GdpoCreditSpec):
        options |= {"multi_objective_aggregation": "normalize_then_sum"}
        options |= {"reward_weights": [spec.credit.weights["gain"], spec.credit.weights["style"]]}
    elif isinstance(spec.credit, GroupCreditSpec):
        options |= {"scale_rewards": spec.credit.scale}
    if spec.engine_correction is not None:
        options |= {
            "vllm_importance_sampling_mode": f"{spec.engine_correction.level}_truncate",
            "vllm_importance_sampling_clip_max": spec.engine_correction.maximum,
        }
    return options


def _chosen(values: Any, order: Sequence[int]) -> Any:
    return values[torch.tensor(order)] if isinstance(values, torch.Tensor) else [values[place] for place in order]


def make_model(path: Path, vocabulary: int, hidden: int, layers: int) -> None:
    """A Llama with random weights, and a tokenizer of as many words."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=8 * hidden // 3, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True,
        pad_token_id=0, bos_token_id=1, eos_token_id=END,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(path)
    words = {f"w{i}": i for i in range(vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w3"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="w0", eos_token="w2").save_pretrained(path)


def make_updates(
    count: int, questions: int, size: int, vocabulary: int, prompts: tuple[int, int], completions: tuple[int, int]
) -> list[list[Group]]:
    """Random prompts and completions of lengths in the given bounds, with rewards of 0 to 3; one group's are equal."""
    rng = random.Random(SEED)

    def words(bounds: tuple[int, int]) -> tuple[int, ...]:
        return tuple(rng.randrange(3, vocabulary) for _ in range(rng.randint(*bounds)))

    updates = [
        [
            Group(
                words(prompts), tuple(words(completions) for _ in range(size)),
                tuple(float(rng.randrange(4)) for _ in range(size)),
            )
            for _ in range(questions)
        ]
        for _ in range(count)
    ]  # fmt: skip
    updates[0][0] = replace(updates[0][0], rewards=(1.0,) * size)
    return updates


def forked(work: Callable[[], Run]) -> Run:
    """Do it in a process that has nothing but what this one has imported; see how large it grew."""
    before = _resident("VmRSS")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run = work()
            run.peak = _resident("VmHWM") - before
            os.write(write, json.dumps(asdict(run)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as stream:
        told = stream.read()
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("a run failed; see above")
    return Run(**json.loads(told))


def _resident(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


SPEC = OnlineSpec(
    learning_rate=1e-4, minimum_learning_rate=1e-5, warmup_ratio=0.0, updates=1, iterations=1, clip=0.2, beta=0.04,
    kl="k3", normalization="token", device="cpu", micro_batch_tokens=2048, checkpoint_steps=10**6,
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    updates = make_updates(options.updates, 4, 6, VOCABULARY, (60, 240), (10, 80))
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "model"
        make_model(model, VOCABULARY, 192, 4)

        def trl(parts: int, completions_only: bool) -> Callable[[], Run]:
            return lambda: run_trl(
                model, updates, SPEC, Path(name) / "trl", parts=parts, completions_only=completions_only
            )

        trainers = {
            "hopforge": lambda: run_hopforge(model, updates, SPEC, Path(name) / "hopforge"),
            "trl": trl(1, False),
            "trl, completions only": trl(1, True),
            "trl, completions only, in 4 parts": trl(4, True),
        }
        for _ in range(options.rounds):
            for trainer, work in trainers.items():
                runs.setdefault(trainer, []).append(forked(work))
    return report(runs, options.updates, options.json)


def report(runs: dict[str, list[Run]], updates: int, as_json: bool) -> int:
    ours = runs["hopforge"]
    peers = [trainer for trainer in runs if trainer != "hopforge"]
    apart = max(
        abs(a - b) for done in runs.values() for run in done for a, b in zip(ours[0].losses, run.losses, strict=True)
    )
    rounds = range(len(ours))
    # Within a round, against TRL's best of that round: a busy machine slows both.
    cpu = [min(runs[peer][r].cpu for peer in peers) / ours[r].cpu for r in rounds]
    wall = [min(runs[peer][r].wall for peer in peers) / ours[r].wall for r in rounds]
    memory = [min(runs[peer][r].peak for peer in peers) / ours[r].peak for r in rounds]
    figures = {
        "cpu_seconds_per_step": {trainer: median(run.cpu for run in done) / updates for trainer, done in runs.items()},
        "wall_seconds_per_step": {
            trainer: median(run.wall for run in done) / updates for trainer, done in runs.items()
        },
        "peak_mib": {trainer: median(run.peak for run in done) / 2**20 for trainer, done in runs.items()},
        "time_ratio_to_best_trl": median(cpu),
        "time_ratios": cpu,
        "wall_ratios": wall,
        "memory_ratio_to_best_trl": median(memory),
        "losses": ours[0].losses,
        "largest_loss_difference": apart,
    }
    if as_json:
        print(json.dumps(figures))
    else:
        for trainer, done in runs.items():
            print(
                f"{trainer:34s} {median(run.cpu for run in done) / updates:7.2f} CPU s/step"
                f" {median(run.wall for run in done) / updates:7.2f} s/step"
                f" {median(run.peak for run in done) / 2**20:7.0f} MiB"
            )
        print(
            f"time, TRL's best to hopforge: {median(cpu):.2f} in CPU seconds (wanted {RATIO_WANTED}; rounds "
            f"{[round(r, 2) for r in cpu]}), {median(wall):.2f} on the clock"
        )
        print(f"peak memory, TRL's lowest to hopforge: {median(memory):.2f} (wanted above 1)")
        print(f"losses {', '.join(f'{loss:.6f}' for loss in ours[0].losses)}; largest difference {apart:.1e}")
    assert apart < TOLERANCE, f"the losses differ by {apart:.1e}"
    return 0 if median(cpu) >= RATIO_WANTED and median(memory) > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
