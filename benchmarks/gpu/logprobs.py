"""Log-probabilities of attempts with a shared prompt: hopforge's packed rows against plain forward passes.

    python -m benchmarks.gpu.logprobs [--model 3B] [--dry-run] [--json FILE]

Both score the same attempts and must agree. The plain passes run one attempt at a time, without padding or packing, and
process the prompt again for each attempt. To estimate the ratio without shared prompts on a GPU, divide the ratio by
"bare tokens" over "tokens read".
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.gpu.harness import Setup, dialogues, main, seconds
from platform_sdk.config.training import TrainSpec
from platform_sdk.training.batches import pack, shared_step
from platform_sdk.training.policy import agent_logprobs, attention_for, load_policy

ATTEMPTS, PROMPT, ANSWER = 7, 3072, 512
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.3}


def measure(case: Setup) -> list[dict[str, Any]]:
    prompt, answer = (24, 8) if case.dry else (PROMPT, ANSWER)
    examples = dialogues(case.shape.vocabulary, 1, prompt, answer, attempts=ATTEMPTS)
    spec = TrainSpec(device=case.device)
    attention = attention_for(spec, case.device)
    policy = load_policy(case.path, spec, attention=attention, device=case.device).eval()
    step = shared_step(examples, 1, 10**9, share_prompts=True)
    batch = pack(examples, step.shares[0][0], step).to(torch.device(case.device))
    rows = torch.tensor([example.token_ids for example in examples], device=case.device)

    @torch.no_grad()
    def ours() -> torch.Tensor:
        with case.autocast():
            return agent_logprobs(policy, batch)

    bare_model = case.load().eval()

    @torch.no_grad()
    def bare() -> torch.Tensor:
        found = []
        for row in rows:
            with case.autocast():
                logits = bare_model(input_ids=row[None], use_cache=False, logits_to_keep=answer + 1).logits[0, :-1]
            found.append(torch.log_softmax(logits.float(), -1).gather(1, row[-answer:, None])[:, 0])
        return torch.cat(found)

    difference = float((ours() - bare()).abs().max())
    assert difference < TOLERANCE[case.precision], f"log-probabilities differ by {difference}"
    mine, theirs = seconds(ours), seconds(bare)
    return [{
        "model": case.name, "attention": attention, "tokens read": batch.input_ids.shape[1],
        "bare tokens": rows.numel(), "seconds": mine, "bare seconds": theirs, "ratio": theirs / mine,
        "difference": difference,
    }]  # fmt: skip


if __name__ == "__main__":
    main(__doc__ or "", measure)
