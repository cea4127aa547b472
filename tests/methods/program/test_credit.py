"""Every credit and objective of GRPO on a program's rollouts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.recipe import load_recipe
from platform_sdk.errors import UserError
from platform_sdk.gateway.messages import Message
from platform_sdk.gateway.server import Gateway
from platform_sdk.methods.faults import errors
from platform_sdk.methods.method import load_method
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question, Rollout
from platform_sdk.sampling.engine import Completion, SamplingParams
from platform_sdk.sampling.models import weights_digest
from platform_sdk.sampling.special_tokens import special_tokens
from platform_sdk.sampling.transformers_engine import TransformersEngine
from platform_sdk.training.examples import truncated_examples
from tests.e2e.runs import ROOT, options, run_here
from tests.gateway.templates import tokenizer
from tests.methods.program.test_program import IMITATION, WORLD, context, played, program

RECIPE = ROOT / "pipelines/program/world.yaml"
BASE = ROOT / "platform_sdk/assets/world-base-react"
GAIN = {"type": "information_gain"}


def test_information_gain_needs_the_text_that_begins_an_answer() -> None:
    online = OnlineSpec.model_validate({"updates": 1, "reward": "f1", "credit": GAIN})
    with pytest.raises(UserError, match=r"agent\.answer_opening"):
        load_method("program").credit(context(AgentSpec(command=("python",))), online)
    [found] = errors(load_recipe(RECIPE, options({"online.credit": GAIN})))
    assert "agent.answer_opening" in found.message
    assert not errors(load_recipe(RECIPE, options({"online.credit": GAIN, "agent.answer_opening": "<answer>"})))


@pytest.mark.parametrize(("max_tokens", "truncated"), [(256, set()), (5, {"q#0/agent"})])
def test_reply_that_ended_at_the_programs_own_stop_is_not_truncated(max_tokens: int, truncated: set[str]) -> None:
    tokens = tokenizer("qwen2_5")
    session = Gateway(tokens, 4096, SamplingParams()).open(seed=1, name="q#0")
    session.ask((Message("user", "Who ?"),), (), ("</answer>",))
    event: Any = session.inbox.take()
    ids = tuple(tokens("<answer>Ida Roth</answer>", add_special_tokens=False)["input_ids"])[:max_tokens]
    finish: Any = "length" if truncated else "stop"
    session.completed(event, Completion(event.id, ids, (-0.5,) * len(ids), finish))
    question = Question(id="q", text="Who ?", answers=("Ida Roth",), dataset="d")
    rollout = Rollout(
        question=question, attempt=0, seed=0, main=session.trajectories()[0], outcome="answered", weights="w",
        corpus="c",
    )  # fmt: skip
    method, spec = load_method("program"), AgentSpec(command=("python",), max_tokens=max_tokens)
    limits = method.turn_tokens(spec), 4096
    assert truncated_examples([rollout], special_tokens(tokens), method.stops(spec), limits) == truncated


def answer_length(rollout: Rollout) -> float:
    """Return a reward of one's own."""
    assert rollout.program is not None
    return len(rollout.main.answer or "") + rollout.rewards["answered"]


def test_own_reward_is_named_own(engine: TransformersEngine) -> None:
    spec = IMITATION.model_copy(update={"reward": f"{__name__}:answer_length"})
    with ExitStack() as opened:
        [rollout] = played(program(engine, opened, spec), engine, WORLD.eval[:1])
    assert rollout.rewards["own"] == answer_length(rollout)
    assert load_method("program").rewards(context(spec), rollout) == rollout.rewards


def no_number(rollout: Rollout) -> float:
    return float("nan")


def test_own_reward_that_is_no_number_ends_the_sampling(engine: TransformersEngine) -> None:
    spec = IMITATION.model_copy(update={"reward": f"{__name__}:no_number"})
    question = WORLD.eval[0]
    with ExitStack() as opened, pytest.raises(UserError, match=f"no_number: question {question.id}, attempt 0: .* nan"):
        played(program(engine, opened, spec), engine, [question])


OBJECTIVES: dict[str, dict[str, Any]] = {
    "information gain, CISPO": {
        "agent.answer_opening": "<answer>", "online.credit": GAIN, "online.clip": {"type": "cispo"},
    },
    "GDPO, GSPO": {
        "online.credit": {"type": "gdpo", "weights": {"f1": 1.0, "answered": 0.5}},
        "online.clip": {"type": "gspo"}, "online.normalization": "sequence",
    },
    "RLOO, clip-higher, Dr. GRPO": {
        "online.credit": {"baseline": "leave_one_out", "scale": "batch", "others": "none"},
        "online.clip": {"type": "range"}, "online.normalization": "constant", "online.normalization_length": 256,
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.e2e(minutes=2)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_program_is_trained_with_every_credit_and_objective(name: str, tmp_path: Path) -> None:
    small = {
        "dataset.world": {"entities": 40, "train_questions": 6, "eval_questions": 2, "hops": [1], "years": 0.6},
        "online.updates": 1, "online.questions": 3, "online.group": 4, "evaluation.greedy": False,
    }  # fmt: skip
    run_dir = run_here(str(RECIPE), tmp_path / "run", {**small, **OBJECTIVES[name]})
    assert weights_digest(run_dir / "online/model") != weights_digest(BASE)
    prepared = run_dir / "online/rollouts/prepared/0001.jsonl"
    if name.startswith("information gain"):
        assert prepared.exists()
    rollouts = list(read_jsonl(run_dir / "online/rollouts/0001.jsonl", Rollout))
    assert len(rollouts) == 12
