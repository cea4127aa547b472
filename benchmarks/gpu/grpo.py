"""A GRPO step: its sampling, training and hand-over of weights, against a bare loop's training of the same tokens.

    python -m benchmarks.gpu.grpo [--model 0.6B] [--dry-run] [--json FILE]

Goal: a step takes at most two seconds more than the longer of sampling and training, which must overlap for that.
Here the three run one after the other, as they do in one process; ``overhead`` is what overlap would leave.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from benchmarks.gpu.harness import Setup, dialogues, main, seconds
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.config.training import TrainSpec
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.load import load_engine
from platform_sdk.training.batches import pack, shared_step
from platform_sdk.training.objectives import GroupRelative
from platform_sdk.training.online.sync import sync_for
from platform_sdk.training.policy import agent_logprobs, attention_for, load_policy

GROUPS, GROUP = 8, 7


def measure(case: Setup) -> list[dict[str, Any]]:
    prompt, answer = (24, 8) if case.dry else (1536, 256)
    spec = TrainSpec(device=case.device, micro_batch_tokens=128 if case.dry else 8192)
    policy = load_policy(case.path, spec, attention=attention_for(spec, case.device), device=case.device)
    engine_spec = EngineSpec(
        live=GROUP if case.dry else GROUPS * GROUP, dtype=case.precision, device=case.device,
        max_model_len=prompt + answer, threads=None,
    )  # fmt: skip
    engine = load_engine(engine_spec, case.path)
    sync = sync_for(engine_spec, engine, policy, case.path.with_name("weights"))
    optimiser = torch.optim.AdamW(policy.parameters(), lr=1e-6, fused=True)
    drawn = dialogues(case.shape.vocabulary, 2 if case.dry else GROUPS, prompt, answer, attempts=GROUP)
    prompts = [example.token_ids[:prompt] for example in drawn]
    done = engine.generate(prompts, [SamplingParams(max_tokens=answer, seed=n) for n in range(len(prompts))])
    examples = [
        replace(
            example,
            token_ids=(*start, *one.token_ids),
            agent_mask=(0,) * prompt + (1,) * len(one.token_ids),
            logprobs=(0.0,) * prompt + one.logprobs,
            advantages=(0.0,) * prompt + (example.advantages[-1],) * len(one.token_ids),  # type: ignore[index]
        )
        for example, start, one in zip(drawn, prompts, done, strict=True)
    ]
    step = shared_step(examples, 1, spec.micro_batch_tokens, share_prompts=True)
    batches = [pack(examples, micro, step).to(torch.device(case.device)) for micro in step.shares[0]]
    objective = GroupRelative(0.2, 0.0, "k2", "token")

    def sample() -> None:
        engine.generate(prompts, [SamplingParams(max_tokens=answer, seed=n) for n in range(len(prompts))])

    def train() -> None:
        for batch in batches:
            with case.autocast():
                logprobs = agent_logprobs(policy, batch)
            objective(logprobs, batch)[0].backward()
        optimiser.step()
        optimiser.zero_grad()

    def hand_over() -> None:
        with case.autocast():
            sync.refresh()

    bare_model = case.load()
    bare_optimiser = torch.optim.AdamW(bare_model.parameters(), lr=1e-6, fused=True)

    def bare() -> None:
        for example in examples:
            ids = torch.tensor([example.token_ids], device=case.device)
            with case.autocast():
                kept = len(example.token_ids) - prompt
                logits = bare_model(input_ids=ids, use_cache=False, logits_to_keep=kept + 1).logits[0, :-1]
            torch.nn.functional.cross_entropy(logits.float(), ids[0, -kept:]).backward()
        bare_optimiser.step()
        bare_optimiser.zero_grad()

    sampling, handing = seconds(sample, repeats=1), seconds(hand_over, repeats=1)
    training, theirs = seconds(train, repeats=2), seconds(bare, repeats=2)
    return [{
        "model": case.name, "sampling": sampling, "training": training, "hand-over": handing,
        "bare training": theirs, "ratio": theirs / training,
        "overhead": sampling + training + handing - max(sampling, training), "goal": 2.0,
    }]  # fmt: skip


if __name__ == "__main__":
    main(__doc__ or "", measure, models=("0.6B",))
