"""A prompt that several examples begin with is worked through once, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from platform_sdk.config.training import TrainSpec
from platform_sdk.training.batches import MicroBatch, pack, plan, shared_step
from platform_sdk.training.examples import Example
from platform_sdk.training.objectives import GroupRelative
from platform_sdk.training.policy import agent_logprobs, load_policy


def attempts(prompt: tuple[int, ...], *answers: tuple[int, ...]) -> list[Example]:
    """The agent speaks, and is asked once more where an answer has more than three tokens."""
    made = []
    for number, answer in enumerate(answers):
        mask = (0,) * len(prompt) + tuple(int(j != 2) for j in range(len(answer)))
        tokens = prompt + answer
        made.append(
            Example(
                f"{prompt[0]}#{number}", tokens, mask, tuple(-1.0 * m for m in mask), "w",
                tuple((number - 0.5) * m for m in mask),
            )
        )  # fmt: skip
    return made


GROUPS = [
    *attempts((7, 8, 9, 10), (11, 12, 13, 14), (15,), (11, 17)),
    *attempts((20, 21), (22, 23), (24, 25, 26, 27, 28)),
    *attempts((30,), (31, 32), (33,)),  # before a prompt's last token nothing is left to share
    *attempts((7, 8, 9), (34, 35)),  # a prompt of its own
]
MIXED = [GROUPS[i] for i in (3, 0, 5, 7, 1, 4, 2, 6)]


def test_a_packed_batch_by_hand() -> None:
    examples = attempts((5, 6, 7), (8, 9), (4,))
    step = shared_step(examples, 1, 100, share_prompts=True)
    assert step.shares == ((MicroBatch((0, 1)),),)
    batch = pack(examples, MicroBatch((1, 0)), step)
    assert batch.input_ids.tolist() == [[5, 6, 7, 4, 7, 8, 9]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 2, 3, 4]]
    assert batch.boundaries.tolist() == [0, 2, 4, 7]
    assert batch.segments.continues == (-1, 0, 0)
    assert batch.predicts.tolist() == [[False, False, True, False, True, True, False]]
    assert batch.targets.tolist() == [4, 8, 9]
    assert batch.example.tolist() == [0, 1, 1]
    assert batch.advantages.tolist() == [0.5, -0.5, -0.5]
    assert (batch.step_tokens, batch.step_examples) == (3, 2)


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_loss_and_gradients_are_those_of_single_dialogues(tiny_model: Path, normalization: str) -> None:
    objective = GroupRelative(0.2, 0.0, "k2", normalization)  # type: ignore[arg-type]
    found = []
    for share in (False, True):
        model = load_policy(tiny_model, TrainSpec(), attention="packed")
        step = shared_step(MIXED, 1, 1000, share_prompts=share)
        batch = pack(MIXED, step.shares[0][0], step)
        loss, _ = objective(agent_logprobs(model, batch), batch)
        loss.backward()
        found.append((batch.input_ids.shape[1], loss, [p.grad for p in model.parameters()]))
    assert found[1][0] == found[0][0] - 2 * 3 - 1  # three tokens twice and one once
    torch.testing.assert_close(found[1][1], found[0][1], atol=1e-6, rtol=1e-5)
    for shared, single in zip(found[1][2], found[0][2], strict=True):
        torch.testing.assert_close(shared, single, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("limit", "processes"), [(1000, 1), (14, 1), (6, 1), (1000, 2), (8, 3), (1, 2)])
def test_every_example_is_worked_on_once_and_no_micro_batch_is_too_long(limit: int, processes: int) -> None:
    step = shared_step(MIXED, processes, limit, share_prompts=True)
    assert len({len(share) for share in step.shares}) == 1
    micro_batches = [micro for share in step.shares for micro in share]
    assert sorted(i for micro in micro_batches if not micro.filler for i in micro.examples) == list(range(8))
    for micro in micro_batches:
        assert len(micro.examples) == 1 or pack(MIXED, micro, step).input_ids.shape[1] <= limit


def test_plan_shares_prompts_only_if_asked() -> None:
    alone, shared = (
        plan(GROUPS, batch_size=8, micro_batch_tokens=1000, epochs=1, seed=0, share_prompts=share)[0]
        for share in (False, True)
    )
    assert pack(GROUPS, alone.shares[0][0], alone).segments.continues == (-1,) * 8
    assert max(pack(GROUPS, shared.shares[0][0], shared).segments.continues) >= 0
    assert replace(alone, shares=(), share_prompts=True) == replace(shared, shares=())


def test_shared_prompts_need_packed_attention(tiny_model: Path) -> None:
    step = shared_step(GROUPS, 1, 1000, share_prompts=True)
    with pytest.raises(ValueError, match="'packed'"):
        agent_logprobs(load_policy(tiny_model, TrainSpec(), attention="sdpa"), pack(GROUPS, step.shares[0][0], step))
