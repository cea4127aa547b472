"""Pre-training of a small language model from an endless stream of documents.

One readable loop: next-token cross-entropy on every learnable token, Muon for the weight matrices and AdamW for the
rest, a warm-up and a linear decay to zero. Left out on purpose: resuming, several devices, mixed precision; a
model of two million parameters is made within an hour on one CPU core.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.nn import functional
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM

IGNORED = -100


@dataclass(frozen=True)
class PretrainSpec:
    """Sizes and schedule. ``tokens_per_step`` counts padded positions; rates are peak rates."""

    steps: int
    tokens_per_step: int = 2048
    warmup_steps: int = 100
    decay_share: float = 0.6
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    clip: float = 1.0
    hidden: int = 160
    layers: int = 6
    heads: int = 5
    feed_forward: int = 448
    context: int = 1024
    seed: int = 0


@dataclass(frozen=True)
class PretrainDocument:
    """Token ids, and for each whether it can be predicted (and so is learned)."""

    token_ids: list[int]
    learnable: list[bool]


def new_model(spec: PretrainSpec, vocabulary: int, pad: int, end: int) -> LlamaForCausalLM:
    torch.manual_seed(spec.seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=spec.hidden,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        intermediate_size=spec.feed_forward,
        max_position_embeddings=spec.context,
        tie_word_embeddings=True,
        pad_token_id=pad,
        eos_token_id=end,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def batches(documents: Iterator[PretrainDocument], tokens: int, pad: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches ``(input_ids, labels)`` of shape (B, T) and about ``tokens`` positions, of documents alike in length."""
    while True:
        window = sorted((next(documents) for _ in range(512)), key=lambda d: len(d.token_ids))
        group: list[PretrainDocument] = []
        groups: list[list[PretrainDocument]] = []
        for document in window:
            if group and (len(group) + 1) * len(document.token_ids) > tokens:
                groups.append(group)
                group = []
            group.append(document)
        groups.append(group)
        # Steps alternate between short and long documents, so that none of them sees one kind only.
        order = torch.randperm(len(groups)).tolist()
        for i in order:
            width = len(groups[i][-1].token_ids)
            ids = torch.full((len(groups[i]), width), pad)
            labels = torch.full_like(ids, IGNORED)
            for row, document in enumerate(groups[i]):
                length = len(document.token_ids)
                ids[row, :length] = torch.tensor(document.token_ids)
                learnable = torch.tensor(document.learnable)
                labels[row, :length] = torch.where(learnable, ids[row, :length], IGNORED)
            yield ids, labels


def rate(step: int, spec: PretrainSpec) -> float:
    """The schedule's factor: linear warm-up, a plateau, linear decay to zero."""
    decay_from = spec.steps * (1 - spec.decay_share)
    return min((step + 1) / spec.warmup_steps, 1.0, max(0.0, (spec.steps - step) / (spec.steps - decay_from)))


def pretrain(
    model: LlamaForCausalLM, documents: Iterator[PretrainDocument], spec: PretrainSpec, pad: int, log: Path, save: Path
) -> None:
    """Train ``model`` in place, write a line per 20 steps to ``log``, and its weights to ``save`` every 200 steps."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    optimizers = [
        torch.optim.Muon(matrices, lr=spec.muon_rate, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(rest, lr=spec.adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peaks = [spec.muon_rate, spec.adam_rate]
    model.train()
    start, seen, window = time.monotonic(), 0, []
    stream = batches(documents, spec.tokens_per_step, pad)
    with log.open("w") as lines:
        lines.write(json.dumps({"spec": asdict(spec), "parameters": model.num_parameters()}) + "\n")
        for step in tqdm(range(spec.steps), desc="pre-training", unit="step", mininterval=10):
            ids, labels = next(stream)
            hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
            wanted = labels[:, 1:]
            place = wanted != IGNORED  # only learnable positions go through the vocabulary
            loss = functional.cross_entropy(model.lm_head(hidden[place]).float(), wanted[place])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), spec.clip)
            for optimizer, peak in zip(optimizers, peaks, strict=True):
                optimizer.param_groups[0]["lr"] = peak * rate(step, spec)
                optimizer.step()
                optimizer.zero_grad()
            seen += int((ids != pad).sum())
            window.append(loss.item())
            if (step + 1) % 20 == 0:
                elapsed = round(time.monotonic() - start, 1)
                lines.write(json.dumps({"step": step + 1, "loss": sum(window) / len(window), "tokens": seen, "s": elapsed}))
                lines.write("\n")
                lines.flush()
                window = []
            if (step + 1) % 200 == 0 or step + 1 == spec.steps:
                model.save_pretrained(save)
