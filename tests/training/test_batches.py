from __future__ import annotations

import random
import time

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_sdk.training.batches import MicroBatch, Step, pack, plan, shared_step
from platform_sdk.training.examples import Example


def of_length(length: int) -> Example:
    return Example("e", tuple(range(length)), (0,) + (1,) * (length - 1), (0.0,) * length, "w")


def test_a_packed_batch_by_hand() -> None:
    examples = [
        Example("a", (5, 6, 7, 8), (0, 0, 1, 1), (0.0, 0.0, -0.1, -0.2), "w"),
        Example("b", (9, 4, 3), (0, 1, 0), (0.0, -0.3, 0.0), "w"),
    ]
    step = Step(shares=(), examples=5, agent_tokens=11)
    batch = pack(examples, MicroBatch((1, 0)), step)
    assert batch.input_ids.tolist() == [[9, 4, 3, 5, 6, 7, 8]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1, 2, 3]]
    assert batch.boundaries.tolist() == [0, 3, 7]
    assert batch.boundaries.dtype == torch.int32
    assert batch.segments.lengths == (3, 4)
    assert batch.predicts.tolist() == [[True, False, False, False, True, True, False]]
    assert batch.targets.tolist() == [4, 7, 8]
    assert batch.example.tolist() == [0, 1, 1]
    torch.testing.assert_close(batch.old_logprobs, torch.tensor([-0.3, -0.1, -0.2]))
    assert (batch.step_tokens, batch.step_examples) == (11, 5)


def test_a_filler_predicts_nothing() -> None:
    batch = pack([of_length(3)], MicroBatch((0,), filler=True), Step((), 1, 2))
    assert not batch.predicts.any()
    assert batch.targets.shape == (0,)


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 50), min_size=1, max_size=30),
    batch_size=st.integers(1, 12),
    limit=st.integers(10, 120),
    epochs=st.integers(1, 3),
    processes=st.integers(1, 4),
)
def test_every_epoch_sees_every_example_once(
    lengths: list[int], batch_size: int, limit: int, epochs: int, processes: int
) -> None:
    examples = [of_length(length) for length in lengths]
    steps = plan(examples, batch_size=batch_size, micro_batch_tokens=limit, epochs=epochs, seed=3, processes=processes)
    seen: list[int] = []
    for step in steps:
        assert len(step.shares) == processes
        assert len({len(share) for share in step.shares}) == 1
        trained_on = [i for share in step.shares for micro in share if not micro.filler for i in micro.examples]
        assert len(trained_on) == step.examples <= batch_size
        assert step.agent_tokens == sum(lengths[i] - 1 for i in trained_on)
        for micro in (micro for share in step.shares for micro in share):
            assert len(micro.examples) == 1 or sum(lengths[i] for i in micro.examples) <= limit
        seen += trained_on
    per_epoch = len(lengths)
    assert all(sorted(seen[e * per_epoch : (e + 1) * per_epoch]) == list(range(per_epoch)) for e in range(epochs))


def test_the_order_follows_from_the_seed_and_differs_by_epoch() -> None:
    examples = [of_length(5) for _ in range(20)]

    def order(seed: int) -> list[int]:
        steps = plan(examples, batch_size=1, micro_batch_tokens=5, epochs=2, seed=seed)
        return [step.shares[0][0].examples[0] for step in steps]

    assert order(1) == order(1) != order(2)
    assert order(1)[:20] != order(1)[20:]


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 12), min_size=1, max_size=40),
    limit=st.integers(10, 60),
    processes=st.integers(1, 4),
)
def test_micro_batches_equal_the_plain_rule_of_the_lightest_bin(lengths: list[int], limit: int, processes: int) -> None:
    """Ties included: the plans, and so the sums of a step's losses, must not change between versions."""
    step = shared_step([of_length(length) for length in lengths], processes, limit)
    bins: list[list[int]] = [[] for _ in range(processes * len(step.shares[0]))]
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        min(bins, key=lambda b: (sum(lengths[i] for i in b), len(b), bins.index(b))).append(index)
    for process, share in enumerate(step.shares):
        found = [[] if micro.filler else list(micro.examples) for micro in share]
        assert found == bins[process::processes]


def test_planning_many_examples_of_more_than_half_a_micro_batch_takes_no_cubic_time() -> None:
    lengths = random.Random(0)
    examples = [of_length(lengths.randint(33, 64)) for _ in range(900)]
    start = time.process_time()
    step = shared_step(examples, 1, 64)
    assert len(step.shares[0]) == 900
    assert time.process_time() - start < 4
