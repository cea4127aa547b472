from __future__ import annotations

import re

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from platform_sdk.sampling import invariance
from platform_sdk.sampling.invariance import CANDIDATES, RowCounts, make_invariant, measure

RANDOM = torch.Generator().manual_seed(5)
SMALL_KERNEL = {4, 8, 32}


def fixed_blocks(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute the rows one by one, so that nothing about the real CPU matters."""
    return torch.stack([(row * weight).sum(-1) for row in x])


def by_small_products(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Behave as a CPU on which fewer than 16 rows, and exactly 32, go through another kernel."""
    return fixed_halves(x, weight) if len(x) in SMALL_KERNEL else fixed_blocks(x, weight)


def fixed_halves(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    middle = x.shape[-1] // 2
    return fixed_blocks(x[:, :middle], weight[:, :middle]) + fixed_blocks(x[:, middle:], weight[:, middle:])


def by_parity(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Behave as a CPU on which every number of rows has a kernel of its own: only products of one shape agree."""
    middle = CANDIDATES.index(len(x)) + 3
    return fixed_blocks(x[:, :middle], weight[:, :middle]) + fixed_blocks(x[:, middle:], weight[:, middle:])


def by_place(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Behave as a CPU on which a row's bits depend on its place in the product."""
    result = fixed_blocks(x, weight)
    result[-1] = fixed_halves(x[-1:], weight)[0]
    return result


def test_row_counts_that_disagree_are_not_used() -> None:
    counts = measure(40, 9, False, torch.float32, 1, by_small_products)
    assert counts is not None
    assert set(counts.counts) in (SMALL_KERNEL, set(CANDIDATES) - SMALL_KERNEL)


def test_products_of_one_shape_are_used_where_no_two_agree() -> None:
    counts = measure(40, 9, False, torch.float32, 1, by_parity)
    assert counts is not None
    assert len(counts.counts) == 1


def test_cpu_without_independent_rows_is_detected() -> None:
    assert measure(40, 9, False, torch.float32, 1, by_place) is None
    layer = torch.nn.Linear(40, 9, bias=False)
    given = torch.randn(5, 40)
    with torch.inference_mode():
        expected = by_place(given, layer.weight, None)
        assert make_invariant(layer, by_place).shapes == {(40, 9): None}
        assert torch.equal(layer(given), expected), "computed all the same, as it comes"


def test_invariant_layer_gives_each_row_the_same_bits_in_any_batch() -> None:
    for product in (by_small_products, by_parity):
        layer = torch.nn.Linear(40, 9, bias=False)
        assert_rows_independent(layer, product)


def test_rows_are_independent_on_this_cpu_for_shapes_of_real_models() -> None:
    """The shapes of the shipped bases, MiniLM, SmolLM2, and odd ones; hundreds of companies."""
    for inputs, outputs in [(160, 448), (448, 160), (384, 1536), (1536, 384), (576, 192), (97, 33), (32, 97), (1, 1)]:
        for bias in (True, False):
            assert_rows_independent(torch.nn.Linear(inputs, outputs, bias=bias), functional.linear)


def assert_rows_independent(layer: torch.nn.Linear, product: invariance.Product) -> None:
    rows = torch.randn(300, layer.in_features, generator=RANDOM)
    plain = functional.linear(rows, layer.weight, layer.bias)
    made = make_invariant(layer, product)
    assert all(made.shapes.values()), "this CPU cannot give it; see the warning's text"
    with torch.inference_mode():
        expected = layer(rows)
        torch.testing.assert_close(expected, plain)
        for size in [1, 2, 3, 5, 6, 7, 12, 15, 16, 17, 31, 47, 64, 65, 100, 129, 255, 257]:
            company = torch.randperm(300, generator=RANDOM)[:size]
            assert torch.equal(layer(rows[company]), expected[company]), f"{size} rows of {layer}"
            assert torch.equal(layer(rows[company].view(1, size, -1)), expected[company].view(1, size, -1))
        assert layer(rows[:0]).shape == (0, layer.out_features)


@given(st.sets(st.sampled_from(CANDIDATES), min_size=1), st.integers(0, 3000))
def test_pieces_cover_the_rows_with_the_least_padding(counts: set[int], rows: int) -> None:
    pieces = RowCounts(tuple(sorted(counts))).pieces(rows)
    assert set(pieces) <= counts
    assert rows <= sum(pieces) < max(rows, 1) + min(counts)


def test_description_names_the_chosen_row_count_and_its_cost() -> None:
    told = make_invariant(torch.nn.Linear(40, 9, bias=False), by_parity).describe()
    assert re.search(r"compute \d+ rows at a time, .* \(\d\.\d\d times the rows and calls of free choice", told)
