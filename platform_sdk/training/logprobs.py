"""Log-probabilities of given tokens, and their gradients, without materialising all logits.

The logits of A tokens over a vocabulary of V are A·V numbers, with V = 150,000 most of a step's memory. This module
computes them in chunks of the vocabulary, in the forward pass for the normaliser and again in the backward pass.
``torch.nn.functional.linear_cross_entropy`` (torch 2.13) is similar, but returns the precision of its inputs, and 8
bits are too coarse for a ratio of policies; on a CPU it was half as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from platform_sdk.config.errors import UserError

LOGITS_AT_ONCE = 2**23  # 32 MiB of float32; the fastest size on a CPU with a small model
LOGITS_AT_ONCE_ON_GPU = 2**28  # 1 GiB: products of this size keep a GPU busy


@contextmanager
def scoring(
    model: torch.nn.Module, targets: torch.Tensor, temperature: float = 1.0, *, entropy: bool = False
) -> Iterator[None]:
    """Make ``model`` return log-probabilities of ``targets`` (A,) and entropies as its logits: (1, A, 2) float32.

    The output layer computes them in its forward method, so DDP, DeepSpeed and PEFT handle its weight as usual. Outside
    the context, for example in generation, the model is unchanged.

    Args:
        model: a causal language model, with or without the trainer's wrappers.
        entropy: compute the entropies; otherwise they are 0.

    Raises:
        UserError: the model changes the logits after its output layer, so the result would differ.
    """
    policy = unwrapped(model)
    head = policy.get_output_embeddings()
    plain = type(head) is torch.nn.Linear
    if not plain:
        raise UserError(
            f"the model's output layer is a {type(head).__name__}, and only a plain linear one can be trained; "
            "if lora.targets names it, leave it out"
        )

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        flat = hidden.reshape(-1, hidden.shape[-1])
        return torch.stack(token_scores(flat, head.weight, head.bias, targets, temperature, entropy=entropy), dim=-1)[
            None
        ]

    hidden_by = head.__dict__.get("forward")
    made: list[torch.Tensor] = []
    watch = head.register_forward_hook(lambda _module, _inputs, output: made.append(output))
    final = policy.register_forward_hook(lambda _module, _inputs, output: _unaltered(output.logits, made[-1]))
    head.forward = forward
    try:
        yield
    finally:
        watch.remove()
        final.remove()
        if hidden_by is None:
            del head.forward
        else:
            head.forward = hidden_by


def unwrapped(model: torch.nn.Module) -> Any:
    """Return the model without the wrappers of DDP or DeepSpeed."""
    inner: Any = model
    while hasattr(inner, "module"):
        inner = inner.module
    return inner


def _unaltered(returned: torch.Tensor, made: torch.Tensor) -> None:
    if returned.data_ptr() != made.data_ptr():
        raise UserError(
            "this model alters its logits behind the output layer (soft capping or a scale, as Gemma 2, Cohere and "
            "Granite do), which training does not support; choose another model"
        )


def token_scores(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor, temperature: float,
    *, entropy: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """log softmax((hidden · weightᵀ + bias) / temperature) at the targets, and the softmax's entropies: (A,) float32.

    Products have autocast's precision if it is on; their sums and the softmax are in float32. Entropies have no
    gradient.

    Args:
        hidden: (A, H).
        weight: (V, H).
        bias: (V,) or none.
        targets: (A,) int64, below V.
        entropy: compute the entropies; otherwise they are 0.
    """
    device = hidden.device.type
    precision = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    result: tuple[torch.Tensor, torch.Tensor] = _TokenScores.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, targets, precision, temperature, entropy
    )
    return result


def _product(
    left: torch.Tensor, right: torch.Tensor, precision: torch.dtype, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return left · right with factors rounded to ``precision`` and sums in float32; written to ``out`` if given."""
    left, right = left.to(precision), right.to(precision)
    with torch.autocast(left.device.type, enabled=False):  # it would round the sums
        if left.is_cuda and precision != torch.float32:
            return torch.mm(left, right, out_dtype=torch.float32, out=out)
        return torch.mm(left.float(), right.float(), out=out)


class _TokenScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor,
        precision: torch.dtype, temperature: float, entropy: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        ctx.precision, ctx.temperature = precision, temperature
        normaliser = hidden.new_full((len(targets),), -torch.inf, dtype=torch.float32)
        chosen = torch.zeros_like(normaliser)
        entropies = torch.zeros_like(normaliser)
        parts = _parts(targets, weight)
        for part in parts:
            logits = _logits(hidden, weight, bias, part, precision, temperature)
            own = torch.logsumexp(logits, dim=1)
            total = torch.logaddexp(normaliser, own)
            if entropy:
                # H = Σ_k w_k H_k + H(w), over the parts so far and this one with weights w.
                before, share = (normaliser - total).exp(), (own - total).exp()
                inside = torch.special.entr((logits - own[:, None]).exp_()).sum(dim=1)
                between = torch.special.entr(before) + torch.special.entr(share)
                entropies = before * entropies + share * inside + between
            normaliser = total
            place = targets - part.start
            here = (place >= 0) & (place < logits.shape[1])
            found = logits.gather(1, place.clamp(0, logits.shape[1] - 1)[:, None])[:, 0]
            chosen = torch.where(here, found, chosen)
        only = logits if len(parts) == 1 else None  # small enough to be kept
        ctx.save_for_backward(hidden, weight, bias, targets, normaliser, only)
        ctx.mark_non_differentiable(entropies)
        return chosen - normaliser, entropies

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """d log p(t) / d logit_v = (1(v = t) - p_v) / temperature."""
        hidden, weight, bias, targets, normaliser, only = ctx.saved_tensors
        of_hidden, of_weight, of_bias = ctx.needs_input_grad[:3]
        upstream = upstream / ctx.temperature
        grad_hidden: torch.Tensor | None = None
        grad_weight = torch.empty_like(weight) if of_weight else None
        grad_bias = torch.empty_like(bias) if of_bias else None
        for part in _parts(targets, weight):
            logits = only if only is not None else _logits(hidden, weight, bias, part, ctx.precision, ctx.temperature)
            grad = logits.sub_(normaliser[:, None]).exp_().mul_(-upstream[:, None])
            rows = ((targets >= part.start) & (targets < part.stop)).nonzero()[:, 0]
            grad[rows, targets[rows] - part.start] += upstream[rows]
            if of_hidden:
                product = _product(grad, weight[part], ctx.precision)
                grad_hidden = product if grad_hidden is None else grad_hidden.add_(product)
            if grad_weight is not None and grad_weight.dtype == torch.float32:
                _product(grad.T, hidden, ctx.precision, out=grad_weight[part])
            elif grad_weight is not None:
                grad_weight[part] = _product(grad.T, hidden, ctx.precision)
            if grad_bias is not None:
                grad_bias[part] = grad.sum(dim=0)
        return (
            None if grad_hidden is None else grad_hidden.to(hidden.dtype),
            grad_weight,
            grad_bias,
            None,
            None,
            None,
            None,
        )


def _parts(targets: torch.Tensor, weight: torch.Tensor) -> list[slice]:
    vocabulary = len(weight)
    at_once = LOGITS_AT_ONCE_ON_GPU if weight.is_cuda else LOGITS_AT_ONCE
    width = max(1, at_once // max(1, len(targets)))
    return [slice(start, min(start + width, vocabulary)) for start in range(0, vocabulary, width)]


def _logits(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, part: slice, precision: torch.dtype,
    temperature: float,
) -> torch.Tensor:  # fmt: skip
    logits = _product(hidden, weight[part].T, precision)
    if bias is not None:
        logits = logits + bias[part].float()
    return logits if temperature == 1 else logits.div_(temperature)
