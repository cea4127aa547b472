"""The example programs answer multi-hop questions, each over its own client: with the same tokens, since the policy and
the questions are the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.e2e.runs import run_here
from tests.methods.program.playing import WORLD, played, program

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples/programs"
RECIPES = ("openai-client", "agents-sdk", "langgraph-mcp", "node")
QUESTIONS = WORLD.eval[:2]


@pytest.fixture(scope="module")
def engine() -> Iterator[TransformersEngine]:
    torch.set_num_threads(1)
    engine = TransformersEngine(ROOT / "platform_sdk/assets/world-base-react", live=8)
    yield engine
    engine.close()


def answered(recipe: Path, engine: TransformersEngine) -> list[Rollout]:
    """Answer two questions greedily with a recipe's program."""
    with ExitStack() as opened:
        agent = program(engine, opened, load_recipe(recipe).settings("agent"), EvaluationSpec(temperature=0.0))
        return played(agent, engine, QUESTIONS)


def require(recipe: str) -> None:
    if recipe != "node":
        return
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not (PROGRAMS / "node/node_modules/openai").is_dir():
        pytest.skip("the npm package openai is not installed; run npm ci in examples/programs/node")


@pytest.fixture(scope="module")
def plain(engine: TransformersEngine) -> list[Rollout]:
    return answered(ROOT / "pipelines/program/world.yaml", engine)


@pytest.mark.parametrize("recipe", RECIPES)
def test_example_program_searches_and_answers_as_the_plain_one(
    recipe: str, plain: list[Rollout], engine: TransformersEngine
) -> None:
    require(recipe)
    rollouts = answered(PROGRAMS / f"{recipe}.yaml", engine)
    for ours, theirs in zip(rollouts, plain, strict=True):
        assert ours.program is not None
        assert (ours.outcome, ours.program.threads, ours.program.notes) == ("answered", ("new",), ()), ours.program
        assert ours.main.answer == theirs.main.answer
        assert ours.main.token_ids == theirs.main.token_ids
        assert ours.main.agent_mask == theirs.main.agent_mask
        assert [item.id for item in ours.main.evidence] == [item.id for item in theirs.main.evidence]
        assert set(ours.question.gold_passages) <= {item.title for item in ours.main.evidence}
        searches = sum(call.tool == "search" for turn in ours.main.turns for call in turn.tool_calls)
        assert searches >= len(ours.question.gold_passages)


@pytest.mark.slow  # the same steps run for pipelines/program/world.yaml in the fast tests
@pytest.mark.e2e(minutes=1)
@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_of_an_example_program_trains(recipe: str, tmp_path: Path) -> None:
    require(recipe)
    tiny = {
        "dataset.world.entities": 60, "dataset.world.train_questions": 4, "dataset.world.eval_questions": 2,
        "online.updates": 1, "online.questions": 1, "online.group": 2, "online.checkpoint_steps": 1,
        "evaluation.greedy": False, "sampling.engine.live": 2,
    }  # fmt: skip
    run_dir = run_here(str(PROGRAMS / f"{recipe}.yaml"), tmp_path / "run", tiny)
    rollouts = list(read_jsonl(run_dir / "online/rollouts/0001.jsonl", Rollout))
    assert [rollout.outcome in ("answered", "no_answer") for rollout in rollouts] == [True, True]
    assert all(sum(rollout.main.agent_mask) > 0 for rollout in rollouts)
