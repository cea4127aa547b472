from __future__ import annotations

import pytest
from pydantic import ValidationError

from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.training import OptimiserSpec, TrainSpec


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("updates", -1),
        ("questions", 0),
        ("group", 1),  # nothing to compare a reward with
        ("iterations", 0),
        ("mini_batches", 257),  # questions are 256
        ("normalization_length", 64),  # and normalization is token
        ("clip", 0.0),
        ("clip", 1.0),  # the ratio's lower bound would be 0
        ("beta", -0.1),
        ("kl", "k4"),
        ("normalization", "batch"),
        ("reward", ""),
        ("resamples", -1),
        ("evaluate_every", -1),
        ("minimum_learning_rate", 1e-3),  # above the learning rate
        ("deepspeed", "zero3"),
        ("epochs", 1),  # of training on given examples
    ],
)
def test_invalid_online_settings_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        OnlineSpec.model_validate({"updates": 1, field: value})


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"normalization": "constant"}, "normalization_length"),
        ({"scale_logits": True, "off_policy": True}, "scale_logits"),
        ({"credit": {"baseline": "none"}}, "set scale to none"),
        ({"credit": {"baseline": "none", "scale": "batch"}}, "set scale to none"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        OnlineSpec.model_validate({"updates": 1, **settings})


def test_the_number_of_updates_has_no_default() -> None:
    with pytest.raises(ValidationError, match="updates"):
        OnlineSpec.model_validate({})


def test_the_optimiser_of_both_ways_of_training_is_described_once() -> None:
    shared = set(OptimiserSpec.model_fields)
    assert set(TrainSpec.model_fields) - shared == {"epochs", "batch_size", "normalization"}
    assert shared < set(OnlineSpec.model_fields)
