"""Batch-invariant linear layers on this CPU.

A BLAS chooses its kernel by the number of rows of a product, and kernels differ in the order of summation: the last
bits of a row depend on the number of rows. Which numbers of rows agree depends on the CPU. With MKL 2024.2 and 160 to
1,536 summed values, for example: on AMD all from 4 rows on; on Intel's AVX-512 all from 16 on; on AVX2 16 and 48 agree
with each other, 64 and more with each other, and 32 with none; with ``MKL_CBWR=COMPATIBLE`` the multiples of 4.

So agreeing numbers of rows are measured bit for bit for the shapes of a model, and its linear layers then compute only
products of such numbers (*rows padded*; if few numbers agree, *products of fixed shapes*). The choice among them
depends on a count of rows, never on time: two processes of a run must choose alike. GPUs are not measured and not
invariant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch.nn import functional

CANDIDATES = (4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 256)
"""Candidate numbers of rows of a product. Products of 256 rows are as fast per row as larger ones."""
LARGE_WEIGHT = 1 << 22
"""Size of a weight above which products of 64 rows are as fast per row as larger products, which are not used."""
SHIFT = 13  # coprime to all candidates: compares every position within a block with every other
CALL_ROWS = 16
"""Overhead of one call of a product, in rows."""
TYPICAL_ROWS = (8, 64, 256)
"""Typical numbers of rows for rating a set of row counts: few decoded dialogues, many, a prompt."""

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""``x`` of shape (rows, K), ``weight`` (N, K), ``bias`` (N,) or None to (rows, N); ``functional.linear`` by default."""


@dataclass(frozen=True)
class RowCounts:
    """Numbers of rows, ascending, that give a row the same result bit for bit."""

    counts: tuple[int, ...]

    def pieces(self, rows: int) -> tuple[int, ...]:
        """Return the row counts of the products that compute ``rows``; the last rows may be padding."""
        return _pieces(self.counts, rows)

    @property
    def cost(self) -> float:
        """Return the mean cost per row over the typical numbers of rows, in rows; at least 1 plus the overhead."""
        costs = [sum(piece + CALL_ROWS for piece in self.pieces(rows)) / rows for rows in TYPICAL_ROWS]
        return sum(costs) / len(costs)


@dataclass(frozen=True)
class Invariance:
    """Outcome of ``make_invariant``: the measured shapes and their cost.

    Attributes:
        shapes: the row counts chosen for each shape (K, N); None if no numbers of rows agree.
        seconds: duration of the measurement.
    """

    shapes: dict[tuple[int, int], RowCounts | None]
    seconds: float

    @property
    def multiple(self) -> int:
        """Return the smallest number of rows; an input padded to a multiple of it needs no padding in the layers."""
        return max((counts.counts[0] for counts in self.shapes.values() if counts), default=1)

    def describe(self) -> str:
        """Return the choice and its cost as a sentence."""
        chosen = {counts.counts for counts in self.shapes.values() if counts}
        sets = " and ".join(_listed(counts) for counts in sorted(chosen))
        cost = max((RowCounts(counts).cost for counts in chosen), default=1.0) / RowCounts(CANDIDATES).cost
        return (
            f"linear layers compute {sets} rows at a time, which agree bit for bit on this CPU "
            f"({cost:.2f} times the rows and calls of free choice; measured in {self.seconds:.1f} s)"
        )


def make_invariant(model: torch.nn.Module, product: Product = functional.linear) -> Invariance:
    """Make the linear layers of ``model`` batch-invariant for inference on a CPU.

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


def undo(model: torch.nn.Module) -> None:
    """Return the linear layers of ``model`` to their own products, which are faster: no padding, no pieces."""
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.__dict__.pop("forward", None)


@lru_cache(maxsize=256)
def measure(
    inputs: int, outputs: int, bias: bool, dtype: torch.dtype, threads: int, product: Product = functional.linear
) -> RowCounts | None:
    """Find agreeing numbers of rows for products of this shape; the cheapest of several sets.

    Args:
        threads: torch's number of threads, which affects the kernels.

    Returns:
        The row counts, or None if a row's bits depend even on its position within a product of fixed shape.
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


def not_invariant(what: str, dtype: str = "float32") -> str:
    """Return a warning that results of ``what`` are not batch-invariant, with consequence and remedy."""
    threads = torch.get_num_threads()
    remedy = "another CPU or torch build may help"
    if threads > 1:
        remedy = f"it has {threads} threads: set threads to 1"
    elif dtype != "float32":
        remedy = f"it computes in {dtype}: set dtype to float32"
    return (
        f"{what}: not batch-invariant on this CPU: the last bits of a result depend on its batch, so a killed and "
        f"resumed run may give other digests than an uninterrupted one ({remedy})"
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
    # Looked up at every call, since a trainer and an engine in one process may use different numbers of threads.
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
