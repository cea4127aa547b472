"""A pair of models as one policy: each request is answered by the model of its role."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_sdk.config.errors import UserError
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.sampling.engine import Request, SamplingParams
from platform_sdk.sampling.load import load_engine
from platform_sdk.sampling.models import weights_digest
from platform_sdk.sampling.pairs import make_pair, models_of, policy_digest

SPEC = EngineSpec(live=4)
PARAMS = SamplingParams(max_tokens=6, seed=3)


def answers(policy: Path, roles: list[str]) -> list[tuple[int, ...]]:
    engine = load_engine(SPEC, policy)
    for number, role in enumerate(roles):
        engine.submit(Request(str(number), (5, 6, 7 + number), PARAMS, f"d{number}", role))
    done: dict[str, tuple[int, ...]] = {}
    while len(done) < len(roles):
        done |= {one.id: one.token_ids for one in engine.step()}
    engine.close()
    return [done[str(number)] for number in range(len(roles))]


def test_requests_go_to_the_model_of_their_role(tiny: Path, other: Path, tmp_path: Path) -> None:
    pair = make_pair(tmp_path / "policy", tiny, other)
    roles = ["planner", "worker", "worker", "planner"]
    planner, worker = answers(tiny, roles), answers(other, roles)
    assert planner != worker
    expected = [(planner if role == "planner" else worker)[number] for number, role in enumerate(roles)]
    assert answers(pair, roles) == expected
    with pytest.raises(ValueError, match="planner and worker, not ''"):
        answers(pair, [""])


def test_a_pair_is_named_by_both_models(tiny: Path, other: Path, tmp_path: Path) -> None:
    digests = {
        policy_digest(make_pair(tmp_path / f"{a.name}-{b.name}", a, b)) for a in (tiny, other) for b in (tiny, other)
    }
    assert len(digests) == 4
    assert policy_digest(tiny) == weights_digest(tiny)
    assert models_of(tiny) == {}
    engine = load_engine(SPEC, make_pair(tmp_path / "policy", tiny, other))
    assert engine.weight_version == policy_digest(tmp_path / "policy")
    engine.load_weights(make_pair(tmp_path / "turned", other, tiny))
    assert engine.weight_version == policy_digest(tmp_path / "turned")


def test_models_that_do_not_fit_are_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="different tokenizers or chat templates"):
        make_pair(tmp_path / "policy", tiny, "hopforge:world-base")
    with pytest.raises(UserError, match="no such directory"):
        make_pair(tmp_path / "policy", tiny, tmp_path / "none")
    pair = make_pair(tmp_path / "policy", tiny, tiny)
    with pytest.raises(UserError, match="openai serves one model"):
        load_engine(EngineSpec(engine="openai", url="http://localhost:1"), pair)
