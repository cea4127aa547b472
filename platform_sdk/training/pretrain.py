"""Pre-training of a small language model from an infinite stream of documents.

One loop: next-token cross-entropy on every learnable token, Muon for the weight matrices and AdamW for the rest, a
warm-up and a linear decay to zero. Resuming, several devices and mixed precision are not supported; a model of two
million parameters takes an hour on one CPU core.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
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
    muon_rate: float = 0.01
    adam_rate: float = 1e-3
    clip: float = 1.0
    hidden: int = 160
    layers: int = 6
    heads: int = 8
    key_value_heads: int = 2
    head_size: int = 32
    feed_forward: int = 448
    context: int = 1024
    rope_theta: float = 1e6
    seed: int = 0
    threads: int = 1


@dataclass(frozen=True)
class PretrainDocument:
    """Token ids, and a mask of the learnable tokens."""

    token_ids: list[int]
    learnable: list[bool]


def new_model(spec: PretrainSpec, vocabulary: int, pad: int, end: int) -> LlamaForCausalLM:
    torch.manual_seed(spec.seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=spec.hidden,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.key_value_heads,
        head_dim=spec.head_size,
        intermediate_size=spec.feed_forward,
        max_position_embeddings=spec.context,
        tie_word_embeddings=True,
        pad_token_id=pad,
        eos_token_id=end,
        bos_token_id=None,
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": spec.rope_theta},
    )
    model = LlamaForCausalLM(config)
    plant_induction(model)
    return model


def load_model(path: Path, seed: int) -> LlamaForCausalLM:
    """Load an earlier stage's model in training precision; ``seed`` determines the order of batches."""
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)
    torch.manual_seed(seed)
    return model


def add_words(model: LlamaForCausalLM, vocabulary: int, synonyms: Mapping[int, int], seed: int) -> None:
    """Give ``model`` embeddings for a larger vocabulary.

    New embeddings are drawn around the mean of the existing ones. ``synonyms`` are new or rare tokens that start with
    the embedding of another token plus a common shift: the model can use both alike, and distinguish them by one
    direction.
    """
    torch.manual_seed(seed)
    model.resize_token_embeddings(vocabulary)
    table = model.get_input_embeddings().weight
    with torch.no_grad():
        shift = torch.randn(table.shape[1]) * table.std()
        for token, like in synonyms.items():
            table[token] = table[like] + shift


def plant_induction(model: LlamaForCausalLM) -> None:
    """Initialise the first two layers with an induction circuit, which is then trained like all weights.

    Copying and lookup use this circuit (Olsson et al., 2022): a head of the first layer writes each token's predecessor
    to its residual stream, a head of the second layer finds the position whose predecessor is the current token, and
    copies its token. Gradient descent needs most of an hour on a CPU core to find the circuit; initialised, it works
    from the first step, and training only has to learn when to use it.

    One circuit per key-value head: ``read`` and ``copy`` are random projections of the residual stream to the head's
    size, ``write`` is the subspace of the predecessor. Rotary embeddings rotate a head's fast dimensions too far to
    compare distant tokens, so contents are compared in the slow dimensions only.
    """
    config = model.config
    size, hidden, shared = config.head_dim, config.hidden_size, config.num_key_value_heads
    group = config.num_attention_heads // shared
    frequencies = model.model.rotary_emb.inv_freq
    slow = (frequencies < 1 / 512).repeat(2)
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    bases = torch.linalg.qr(torch.randn(hidden, hidden)).Q.T.split(size)
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(0, 0.1)
        for i in range(shared):
            rows, query = slice(i * size, (i + 1) * size), slice(i * group * size, (i * group + 1) * size)
            read, write = bases[i], bases[shared + i]
            # Layer 0: constant queries and keys, rotated by one position, attend to the previous token.
            still = torch.cat([torch.ones_like(frequencies), torch.zeros_like(frequencies)])
            turned = torch.cat([torch.cos(frequencies), -torch.sin(frequencies)])
            first.k_proj.bias[rows], first.q_proj.bias[query] = 6 * still, 6 * turned
            first.v_proj.weight[rows] = read
            first.o_proj.weight[:, query] = 0.25 * write.T
            # Layer 1: compare the current token with predecessors, and copy.
            second.q_proj.weight[query] = 2 * read * slow[:, None]
            second.k_proj.weight[rows] = 2 * write * slow[:, None]
            second.v_proj.weight[rows] = read
            second.o_proj.weight[:, query] = 0.5 * read.T


def batches(
    documents: Iterator[PretrainDocument], tokens: int, pad: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield batches ``(input_ids, labels)``, (B, T), of about ``tokens`` positions in documents of similar length."""
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
        # Batches alternate between short and long documents, so that training sees both evenly.
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
    """Return the schedule's factor: linear warm-up, a plateau, linear decay to zero."""
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
    torch.set_num_threads(spec.threads)
    model.train()
    start, seen, window = time.monotonic(), 0, []
    stream = batches(documents, spec.tokens_per_step, pad)
    with log.open("w") as lines:
        lines.write(json.dumps({"spec": asdict(spec), "parameters": model.num_parameters()}) + "\n")
        for step in tqdm(range(spec.steps), desc="pre-training", unit="step", mininterval=10):
            ids, labels = next(stream)
            hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
            wanted = labels[:, 1:]
            place = wanted != IGNORED  # only learnable positions are projected to the vocabulary
            loss = functional.cross_entropy(model.lm_head(hidden[place]).float(), wanted[place])
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), spec.clip)
            for optimizer, peak in zip(optimizers, peaks, strict=True):
                optimizer.param_groups[0]["lr"] = peak * rate(step, spec)
                optimizer.step()
                optimizer.zero_grad()
            seen += int((ids != pad).sum())
            window.append(loss.item())
            if (step + 1) % 20 == 0:
                elapsed = round(time.monotonic() - start, 1)
                lines.write(
                    json.dumps({"step": step + 1, "loss": sum(window) / len(window), "tokens": seen, "s": elapsed})
                )
                lines.write("\n")
                lines.flush()
                window = []
            if (step + 1) % 200 == 0:
                model.save_pretrained(save)
    # Half precision halves the file; loading converts it back.
    model.to(torch.float16).save_pretrained(save)
