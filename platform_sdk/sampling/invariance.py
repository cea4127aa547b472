"""Linear layers whose rows do not depend on each other, on the CPU at hand.

A BLAS picks its kernel by the number of rows of a product, and another kernel adds up in another order: the last bits
of a row then depend on how many rows stand beside it. Which numbers of rows agree differs from CPU to CPU. With MKL
2024.2 and 160 to 1,536 summed values, for example: on AMD all from 4 rows on; on Intel's AVX-512 all from 16 on; on
AVX2 16 and 48 agree with each other, 64 and more with each other, and 32 with none; with ``MKL_CBWR=COMPATIBLE`` the
multiples of 4.

So the numbers of rows are measured for the very shapes of a model, bit for bit, and its linear layers then compute
products of agreeing numbers of rows only (*rows padded*; where few numbers agree, *products of fixed shapes*). The
choice among the agreeing ones goes by a count of rows, never by a clock: two processes of a run must choose alike.

The promise is for CPUs. On a GPU nothing is measured and nothing is promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch.nn import functional

CANDIDATES = (4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 256)
"""Numbers of rows that products may have. Products of 256 rows are as fast per row as larger ones."""
LARGE_WEIGHT = 1 << 22
"""Numbers in a weight from which on products of 64 rows are as fast per row; larger products are not used there."""
SHIFT = 13  # has no divisor in common with any candidate: by it every place within a block is compared with every other
CALL_ROWS = 16
"""Cost of one call of a product, beside its rows, in rows."""
TYPICAL_ROWS = (8, 64, 256)
"""Numbers of rows by which a set of row counts is judged: a few dialogues decoded, many, a prompt read."""

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""``x`` of shape (rows, K), ``weight`` (N, K), ``bias`` (N,) or None to (rows, N); ``functional.linear`` by default."""


@dataclass(frozen=True)
class RowCounts:
    """Numbers of rows, ascending, of which a row's result is the same bit for bit."""

    counts: tuple[int, ...]

    def pieces(self, rows: int) -> tuple[int, ...]:
        """Return the row counts of the products that ``rows`` are computed in; the last rows of all may be padding."""
        return _pieces(self.counts, rows)

    @property
    def cost(self) -> float:
        """Mean cost per row over the typical numbers of rows, in rows; 1 plus the calls' share at best."""
        costs = [sum(piece + CALL_ROWS for piece in self.pieces(rows)) / rows for rows in TYPICAL_ROWS]
        return sum(costs) / len(costs)


@dataclass(frozen=True)
class Invariance:
    """Outcome of ``make_invariant``: the measured shapes and their cost.

    Attributes:
        shapes: the row counts chosen for each shape (K, N); None where no number of rows gives one result.
        seconds: time that the measurement took.
    """

    shapes: dict[tuple[int, int], RowCounts | None]
    seconds: float

    @property
    def multiple(self) -> int:
        """The smallest number of rows: inputs padded to a multiple of it are padded once, not in every layer."""
        return max((counts.counts[0] for counts in self.shapes.values() if counts), default=1)

    def describe(self) -> str:
        """Say what was chosen and what it costs, in one sentence."""
        chosen = {counts.counts for counts in self.shapes.values() if counts}
        sets = " and ".join(_listed(counts) for counts in sorted(chosen))
        cost = max((RowCounts(counts).cost for counts in chosen), default=1.0) / RowCounts(CANDIDATES).cost
        return (
            f"linear layers compute {sets} rows at a time, which agree bit for bit on this CPU "
            f"({cost:.2f} times the rows and calls of free choice; measured in {self.seconds:.1f} s)"
        )


def make_invariant(model: torch.nn.Module, product: Product = functional.linear) -> Invariance:
    """Make the linear layers of ``model`` compute each row alike in any company, for inference on a CPU.

    Args:
        product: the linear product that is measured and used.
    """
    began = time.perf_counter()
    shapes: dict[tuple[int, int], RowCounts | None] = {}
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            shapes[module.in_features, module.out_features] = _row_counts(module, product)
            module.forward = partial(_apply, module, product)  # type: ignore[method-assign]
    return Invariance(shapes, time.perf_counter() - began)


@lru_cache(maxsize=256)
def measure(
    inputs: int, outputs: int, bias: bool, dtype: torch.dtype, threads: int, product: Product = functional.linear
) -> RowCounts | None:
    """Find the numbers of rows that agree for products of this shape; of several sets, the cheapest.

    Args:
        threads: torch's number of threads, which the kernels depend on.

    Returns:
        The row counts, or None where a row's bits depend even on its place within a product of fixed shape.
    """
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(outputs, inputs, generator=random).to(dtype)
    offset = torch.randn(outputs, generator=random).to(dtype) if bias else None
    candidates = [count for count in CANDIDATES if count <= 64 or inputs * outputs < LARGE_WEIGHT]
    rows = torch.randn(max(candidates), inputs, generator=random).to(dtype)
    agreeing: list[tuple[list[int], torch.Tensor]] = []
    with torch.inference_mode():
        for count in candidates:
            some = rows[: max(min(128, len(rows)) // count, 1) * count]
            found = _in_blocks(some, weight, offset, count, product)
            moved = _in_blocks(some.roll(SHIFT, 0), weight, offset, count, product).roll(-SHIFT, 0)
            if not torch.equal(found, moved):
                continue
            for counts, reference in agreeing:
                common = min(len(found), len(reference))
                if torch.equal(found[:common], reference[:common]):
                    counts.append(count)
                    break
            else:
                agreeing.append(([count], found))
    return min((RowCounts(tuple(counts)) for counts, _ in agreeing), key=lambda one: one.cost, default=None)


def not_invariant(what: str) -> str:
    """Say that results of ``what`` depend on what they are computed with, what that means, and what to do."""
    threads = torch.get_num_threads()
    remedy = f"it has {threads} threads: set threads to 1" if threads > 1 else "another CPU or torch build may help"
    return (
        f"{what}: not batch-invariant on this CPU: the last bits of a result depend on what is computed with it, so a "
        f"run that is killed and resumed may end with other digests than an undisturbed one ({remedy})"
    )


def _in_blocks(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, size: int, product: Product
) -> torch.Tensor:
    return torch.cat([product(part, weight, bias) for part in torch.split(rows, size)])


@lru_cache(maxsize=4096)
def _pieces(counts: tuple[int, ...], rows: int) -> tuple[int, ...]:
    pieces: list[int] = []
    while rows > 0 or not pieces:
        pieces.append(max((count for count in counts if count <= rows), default=counts[0]))
        rows -= pieces[-1]
    return tuple(pieces)


def _row_counts(module: torch.nn.Linear, product: Product) -> RowCounts | None:
    # Asked at every call, since the number of threads changes within a process: a trainer and an engine may share one.
    bias, dtype = module.bias is not None, module.weight.dtype
    return measure(module.in_features, module.out_features, bias, dtype, torch.get_num_threads(), product)


def _apply(module: torch.nn.Linear, product: Product, given: torch.Tensor) -> torch.Tensor:
    """Compute a linear layer in products of agreeing numbers of rows; ``given`` has shape (…, K)."""
    counts = _row_counts(module, product)
    if counts is None:
        return product(given, module.weight, module.bias)
    flat = given.reshape(-1, given.shape[-1])
    pieces = counts.pieces(len(flat))
    missing = sum(pieces) - len(flat)
    padded = functional.pad(flat, (0, 0, 0, missing)) if missing else flat
    if len(pieces) == 1:
        result = product(padded, module.weight, module.bias)
    else:
        result = torch.cat([product(part, module.weight, module.bias) for part in torch.split(padded, list(pieces))])
    return result[: len(flat)].reshape(*given.shape[:-1], module.out_features)


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts[:-1])) + (" or " if len(counts) > 1 else "") + str(counts[-1])
