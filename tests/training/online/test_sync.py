"""An engine samples from the policy's weights as they are now, and what it does instead is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from platform_sdk.config.sampling import EngineSpec
from platform_sdk.config.training import LoraSpec, TrainSpec
from platform_sdk.sampling.engine import Probe, SamplingParams, WeightsMismatch
from platform_sdk.sampling.load import load_engine
from platform_sdk.sampling.models import load_model, weights_digest
from platform_sdk.sampling.transformers_engine import TransformersEngine
from platform_sdk.training.attention import PACKED
from platform_sdk.training.online.sync import SavedWeights, plain_weights, probe_of_policy, sync_for
from platform_sdk.training.policy import load_policy
from tests.sampling.tiny_models import save_model

PROMPT = (5, 6, 7, 8, 9)
PARAMS = SamplingParams(max_tokens=12, seed=3)
LORA = TrainSpec(lora=LoraSpec(rank=2, alpha=4))


@pytest.fixture(params=["untied", "tied"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return save_model(tmp_path / "model", tied=request.param == "tied")


@pytest.fixture
def engine(model: Path) -> TransformersEngine:
    return TransformersEngine(model, live=2)


def change(policy: Any, scale: float = 0.05) -> None:
    """Change the weights in place, as an optimiser step does."""
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter += scale * torch.randn_like(parameter)


def test_an_engine_in_this_process_shares_the_policys_weights(
    model: Path, engine: TransformersEngine, tmp_path: Path
) -> None:
    policy = load_policy(model, TrainSpec(), attention=PACKED)
    sync = sync_for(EngineSpec(), engine, policy, tmp_path / "weights")
    assert sync.refresh() == weights_digest(model)
    shared = dict(engine._model.named_parameters())
    assert all(shared[name].data_ptr() == parameter.data_ptr() for name, parameter in policy.named_parameters())
    before = engine.generate([PROMPT], PARAMS)
    change(policy)
    version = sync.refresh()
    policy.save_pretrained(tmp_path / "changed")
    assert version == engine.weight_version == weights_digest(tmp_path / "changed")
    after = engine.generate([PROMPT], PARAMS)
    engine.load_weights(tmp_path / "changed")
    expected = engine.generate([PROMPT], PARAMS)
    assert (after[0].token_ids, after[0].logprobs) == (expected[0].token_ids, expected[0].logprobs)
    assert after[0].logprobs != before[0].logprobs


def test_an_adapter_reaches_the_engine_merged_and_its_base_is_left_alone(
    model: Path, engine: TransformersEngine, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    policy = load_policy(model, LORA, attention=PACKED)
    base = {name: tensor.clone() for name, tensor in policy.get_base_model().state_dict().items()}
    sync = sync_for(EngineSpec(), engine, policy, tmp_path / "weights")
    assert sync.refresh() == weights_digest(model), "an adapter begins as none"
    change(policy)
    version = sync.refresh()
    policy.save_pretrained(tmp_path / "adapter")
    assert version == weights_digest(load_model(tmp_path / "adapter")) != weights_digest(model)
    for name, tensor in policy.get_base_model().state_dict().items():
        assert "lora_" in name or torch.equal(tensor, base[name]), name


@pytest.mark.parametrize("spec", [TrainSpec(), LORA], ids=["full", "lora"])
def test_weights_that_go_through_files_are_the_same(
    model: Path, engine: TransformersEngine, tmp_path: Path, spec: TrainSpec
) -> None:
    policy = load_policy(model, spec, attention=PACKED)
    change(policy)
    sync = SavedWeights(engine, policy, "float32", tmp_path / "weights", shared="all")
    version = sync.refresh()
    assert version == engine.weight_version
    assert list(tmp_path.glob("*weights*")) == [], "nothing is left lying about"
    by_file = engine.generate([PROMPT], PARAMS)
    engine.adopt(plain_weights(policy), version, engine._probe)
    assert [one.logprobs for one in by_file] == [one.logprobs for one in engine.generate([PROMPT], PARAMS)]


class DeafEngine(TransformersEngine):
    """Says yes to new weights, and checks nothing: what a server does whose reload went wrong."""

    def load_weights(self, path: Path | str, probe: Probe | None = None) -> None:
        pass


@pytest.mark.parametrize(
    ("scale", "message"), [(0.05, "does not sample from these"), (1e-6, "still samples from the old")]
)
def test_ineffective_reload_is_detected_even_after_a_small_update(
    model: Path, tmp_path: Path, scale: float, message: str
) -> None:
    policy = load_policy(model, TrainSpec(), attention=PACKED)
    sync = SavedWeights(DeafEngine(model, live=2), policy, "float32", tmp_path / "weights", shared="all")
    sync.refresh()
    change(policy, scale)
    with pytest.raises(WeightsMismatch, match=message):
        sync.refresh()


def test_weights_of_another_shape_are_refused(model: Path, engine: TransformersEngine) -> None:
    weights = plain_weights(load_policy(model, TrainSpec(), attention=PACKED))
    del weights["model.norm.weight"]
    with pytest.raises(WeightsMismatch, match=r"only one of the two has model\.norm\.weight"):
        engine.adopt(weights, "v", engine._probe)


def test_an_engine_of_another_precision_gets_copies(model: Path, tmp_path: Path) -> None:
    engine = load_engine(EngineSpec(dtype="bfloat16", live=2), model)
    policy = load_policy(model, TrainSpec(), attention=PACKED)
    sync = sync_for(EngineSpec(dtype="bfloat16"), engine, policy, tmp_path / "weights")
    change(policy)
    before = [parameter.clone() for parameter in policy.parameters()]
    sync.refresh()
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert all(parameter.dtype == torch.float32 for parameter in policy.parameters())


def test_a_policy_under_autocast_is_compared_within_the_tolerance_of_its_arithmetic(
    model: Path, engine: TransformersEngine, tmp_path: Path
) -> None:
    policy = load_policy(model, TrainSpec(), attention=PACKED)
    assert probe_of_policy(policy).dtype == "float32"
    policy.forward = torch.autocast("cpu", torch.bfloat16)(policy.forward)  # as accelerate does
    assert probe_of_policy(policy).dtype == "bfloat16"
    sync = sync_for(EngineSpec(), engine, policy, tmp_path / "weights")
    for _ in range(3):
        change(policy)
        sync.refresh()
