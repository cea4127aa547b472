"""Numbers computed by hand."""

from __future__ import annotations

from math import log

import pytest
import torch

from platform_sdk.training.batches import Batch, MicroBatch, Step, pack, shared_step
from platform_sdk.training.examples import Example
from platform_sdk.training.objectives import GroupRelative, MaximumLikelihood
from platform_sdk.training.policy import agent_logprobs


def batch_of(examples: list[Example], step: Step) -> Batch:
    return pack(examples, MicroBatch(tuple(range(len(examples)))), step)


EXAMPLES = [
    Example("a", (0, 1, 1), (0, 1, 1), (0.0, log(0.5), log(0.5)), "w"),
    Example("b", (0, 0, 2), (0, 0, 1), (0.0, 0.0, log(0.25)), "w"),
]
# π gives the three agent tokens 1/2, 1/4 and 1/8: the sum of -log π is (1 + 2 + 3) log 2
LOGPROBS = torch.tensor([log(1 / 2), log(1 / 4), log(1 / 8)])


def test_token_normalisation_divides_by_the_steps_agent_tokens() -> None:
    loss, statistics = MaximumLikelihood("token")(LOGPROBS, batch_of(EXAMPLES, Step((), 2, 3)))
    assert loss.item() == pytest.approx(6 * log(2) / 3)
    assert statistics["token_loss"].item() == pytest.approx(2 * log(2))
    # old - new: 0, log 2 and log 2
    assert statistics["policy_drift"].item() == pytest.approx(2 * log(2) / 3)


def test_drift_is_left_out_of_a_step_with_text_that_no_policy_sampled() -> None:
    demonstration = Example("c", (0, 2), (0, 1), (), "w")
    step = shared_step([*EXAMPLES, demonstration], 1, 100)
    _, statistics = MaximumLikelihood()(torch.zeros(4), batch_of([*EXAMPLES, demonstration], step))
    assert set(statistics) == {"token_loss"}
    # Also in the micro-batches that hold none of it, so that all processes log the same figures.
    batch = batch_of(EXAMPLES, step)
    assert set(MaximumLikelihood()(LOGPROBS, batch)[1]) == {"token_loss"}
    with pytest.raises(ValueError, match="no policy sampled"):
        GroupRelative()(LOGPROBS, batch)


def test_sequence_normalisation_divides_by_the_steps_examples() -> None:
    loss, statistics = MaximumLikelihood("sequence")(LOGPROBS, batch_of(EXAMPLES, Step((), 2, 3)))
    assert loss.item() == pytest.approx(6 * log(2) / 2)
    assert statistics["token_loss"].item() == pytest.approx(2 * log(2))


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_micro_batches_of_a_step_add_up(normalization: str) -> None:
    step = Step((), 2, 3)
    objective = MaximumLikelihood(normalization)
    whole, _ = objective(LOGPROBS, batch_of(EXAMPLES, step))
    first, _ = objective(LOGPROBS[:2], batch_of(EXAMPLES[:1], step))
    second, _ = objective(LOGPROBS[2:], batch_of(EXAMPLES[1:], step))
    torch.testing.assert_close(first + second, whole)


class Bigram(torch.nn.Module):
    """The logits at a position are a row of a table, chosen by the token there."""

    table = torch.tensor([[0.0, log(3.0), 0.0], [log(2.0), 0.0, 0.0], [0.0, 0.0, 0.0]])

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3, 3, bias=False)
        self.head.weight.data = self.table.T.clone()

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.head

    def forward(self, input_ids: torch.Tensor, logits_to_keep: torch.Tensor, **_: object) -> object:
        output = type("Output", (), {})()
        output.logits = self.head(torch.eye(3)[input_ids][logits_to_keep])
        return output


def test_logprobs_by_hand() -> None:
    """The probabilities are (1, 3, 1)/5 after 0 and (2, 1, 1)/4 after 1. In a, 1 follows 0 and 1 follows 1; in b, 2
    follows 0.
    """
    logprobs = agent_logprobs(Bigram(), batch_of(EXAMPLES, Step((), 2, 3)))
    torch.testing.assert_close(logprobs, torch.tensor([log(3 / 5), log(1 / 4), log(1 / 5)]))
