from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.source import ConfigError
from platform_sdk.config.training import OptimiserSpec, TrainSpec

HOME = Path(__file__).parents[2]


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
        ({"credit": {"type": "gdpo", "weights": {"f1": 0, "em": 0}}}, "weights are all 0"),
        ({"credit": {"type": "gdpo", "weights": {"f1": 1e308}}}, "less than or equal to 1000000"),
        ({"credit": {"baseline": "none", "scale": "batch"}}, "set scale to none"),
        ({"clip": {"type": "gspo"}}, "set normalization to sequence"),
        ({"scale_logits": True, "engine_correction": {}}, "engine_correction compares probabilities at temperature 1"),
        ({"resamples": 1, "refills": 1}, "set one of them to 0"),
        ({"credit": {"mute_ties_of": "reward"}}, "whose ties have no advantage anyway"),
        ({"credit": {"type": "gdpo", "weights": {}}}, "weights"),
        ({"credit": {"type": "gdpo", "weights": {"em": 1}, "scale": "batch"}}, "scale"),
        ({"credit": {"negative_weight": 1.1}}, "negative_weight"),
        ({"credit": {"positive_only": True}}, "positive_only"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        OnlineSpec.model_validate({"updates": 1, **settings})


def test_ties_of_the_trained_reward_may_mute_the_own_credit_of_called_trajectories() -> None:
    credit = {"mute_ties_of": "reward", "others": "own"}
    assert OnlineSpec.model_validate({"updates": 1, "credit": credit}).credit.mute_ties_of == "reward"


def test_later_settings_leave_the_digest_of_their_defaults_alone() -> None:
    dumped = OnlineSpec(updates=1).model_dump(mode="json")
    assert not dumped.keys() & {"engine_correction", "mask_truncated", "refills"}
    assert dumped["clip"] == 0.2
    assert dumped["credit"] == {"baseline": "mean", "scale": "group", "others": "shared", "resample": "equal"}
    changed = {"clip": {"type": "cispo"}, "refills": 2, "credit": {"type": "gdpo", "weights": {"em": 1}}}
    spec = OnlineSpec.model_validate(dumped | changed)
    assert OnlineSpec.model_validate(spec.model_dump(mode="json")) == spec


def test_the_number_of_updates_has_no_default() -> None:
    with pytest.raises(ValidationError, match="updates"):
        OnlineSpec.model_validate({})


def test_the_optimiser_of_both_ways_of_training_is_described_once() -> None:
    shared = set(OptimiserSpec.model_fields)
    assert set(TrainSpec.model_fields) - shared == {"epochs", "batch_size", "normalization"}
    assert shared < set(OnlineSpec.model_fields)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("online.clip={type: GSPO}", "online.clip: there is no type GSPO; known are a number, cispo, gspo, range"),
        ("online.clip=1.5", "online.clip: should be less than 1, but is 1.5"),
        ("online.clip={high: 0.3}", "online.clip.type: is required; add it"),
        ("online.credit={type: GROUP}", "online.credit: there is no type GROUP; known are gdpo, group, information_"),
        (
            "online.credit={type: gdpo, weights: {f1: 1}, baseline: none}",
            "online.credit.baseline: there is no such field; known are mute_ties_of, negative_weight, others, resample",
        ),
    ],
)
def test_wrong_choice_of_a_type_is_one_problem_with_its_remedy(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe(HOME / "pipelines/mygo/world-grpo.yaml", [setting])
    [problem] = caught.value.problems
    assert message in str(problem)
