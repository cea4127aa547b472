"""Mujica and ARENA as programs have the built-in agents' rollouts, and give the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import SamplingSpec
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.world import generate
from platform_sdk.methods.arena.method import ArenaResources
from platform_sdk.methods.method import Resources, RunContext, load_method
from platform_sdk.methods.mygo.settings import AgentSpec as MujicaSpec
from platform_sdk.methods.program.launch import ProgramResources
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Question, Rollout
from platform_sdk.sampling.models import weights_digest
from platform_sdk.sampling.rollout import no_search
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.e2e.runs import ROOT, run_here
from tests.methods.program import arena_program, mujica_program
from tests.methods.program.test_program import played, search

ASSETS = ROOT / "platform_sdk/assets"
MUJICA = MujicaSpec(
    prompts="compact", top_k=mujica_program.TOP_K, iteration_limit=mujica_program.ITERATIONS,
    sub_questions=mujica_program.QUESTIONS, planner_tokens=56, worker_tokens=56,
)  # fmt: skip
QUESTIONS = generate(WorldSpec(seed=5, entities=60, train_questions=0, eval_questions=5, hops=(2, 3))).eval
GIVEN = generate(WorldSpec(seed=6, entities=60, train_questions=0, eval_questions=6, hops=(1, 2), context=4)).eval


def engine_of(name: str) -> Iterator[TransformersEngine]:
    torch.set_num_threads(1)
    engine = TransformersEngine(ASSETS / name, live=8)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def mujica_engine() -> Iterator[TransformersEngine]:
    yield from engine_of("world-base")


@pytest.fixture(scope="module")
def arena_engine() -> Iterator[TransformersEngine]:
    yield from engine_of("world-base-arena")


def context(agent: Any, environment: str, retrieval: Mapping[str, Any]) -> RunContext[Any]:
    return RunContext(
        run_dir=Path("run"), environment=environment, agent=agent, sampling=SamplingSpec(temperature=0.9),
        retrieval=RetrievalSpec.model_validate(retrieval), searched_digest="c", seed=3,
    )  # fmt: skip


def rollouts(
    method: str, run: RunContext[Any], resources: Any, engine: TransformersEngine, questions: list[Question]
) -> list[Rollout]:
    policy = Policy(engine.tokenizer, engine.weight_version)
    return played(load_method(method).agent(run, policy, "eval", resources), engine, questions, attempts=2)


def programs(spec: AgentSpec, retrieval: str, engine: TransformersEngine, questions: list[Question]) -> list[Rollout]:
    with ExitStack() as opened:
        run = context(spec, "world-text", {"method": retrieval})
        return rollouts("program", run, ProgramResources(search, opened), engine, questions)


def recorded(rollout: Rollout) -> list[tuple[Any, ...]]:
    """Return tokens, masks, log-probabilities and evidence of the trajectories in their order."""
    return [
        (each.token_ids, each.agent_mask, each.logprobs, [item.id for item in each.evidence])
        for each in rollout.trajectories
    ]


def without_unread_message(rollout: Rollout) -> Rollout:
    """Return a rollout without the message after its last turn, which the built-in agent writes and nobody reads."""
    main = rollout.main
    if main.turns[-1].speaker == "agent":
        return rollout
    end = main.turns[-1].start
    cut = {name: getattr(main, name)[:end] for name in ("token_ids", "agent_mask", "logprobs")}
    return rollout.model_copy(update={"main": main.model_copy(update={**cut, "turns": main.turns[:-1]})})


def test_mujica_as_a_program_has_the_built_in_rollouts(mujica_engine: TransformersEngine) -> None:
    built_in = rollouts(
        "mygo", context(MUJICA, "world-text", {"method": "lexical"}), Resources(search), mujica_engine, QUESTIONS
    )
    spec = AgentSpec(function="tests.methods.program.mujica_program:answer", max_tokens=56)
    found = programs(spec, "lexical", mujica_engine, QUESTIONS)
    assert sum(len(rollout.others) for rollout in built_in) > 10
    assert len({rollout.main.token_ids for rollout in built_in}) > len(QUESTIONS), "attempts differ"
    for ours, theirs in zip(found, built_in, strict=True):
        assert ours.program is not None
        assert ours.main.answer == theirs.main.answer, ours.program.stderr
        assert recorded(ours) == recorded(without_unread_message(theirs))
        assert [turn.queries for turn in ours.main.turns if turn.speaker == "agent"] == [
            turn.queries for turn in theirs.main.turns if turn.speaker == "agent"
        ]
        assert {name: ours.rewards[name] for name in ("em", "f1")} == {
            name: theirs.rewards[name] for name in ("em", "f1")
        }


def test_arena_as_a_program_has_the_built_in_rollouts(arena_engine: TransformersEngine) -> None:
    built_in = rollouts(
        "arena", context(arena_program.SPEC, "distractor", {}), ArenaResources(no_search, None), arena_engine, GIVEN
    )
    spec = AgentSpec(
        function="tests.methods.program.arena_program:answer", max_tokens=arena_program.SPEC.max_tokens,
        reward="tests.methods.program.arena_program:reward",
    )  # fmt: skip
    found = programs(spec, "contexts", arena_engine, GIVEN)
    assert all(len(rollout.main.evidence) == 4 for rollout in built_in)
    for ours, theirs in zip(found, built_in, strict=True):
        assert ours.program is not None
        assert recorded(ours) == recorded(theirs), ours.program.stderr
        assert (ours.main.answer, ours.rewards["own"]) == (theirs.main.answer, theirs.rewards["reward"])


@pytest.mark.slow
@pytest.mark.e2e(minutes=2)
def test_iteration_of_mygo_gives_the_built_in_agents_weights(tmp_path: Path) -> None:
    shared = {
        "dataset.world.entities": 60, "dataset.world.train_questions": 30, "dataset.world.eval_questions": 2,
        "dataset.world.hops": [1, 2], "dataset.world.years": 0.0, "model": "hopforge:world-base",
        "retrieval": {"threads": 1}, "sampling.temperature": 0.7, "iterations": 1,
        "selection": {"questions": 10, "attempts": 3, "accepted": 1, "initial_threshold": 0.5},
        "training.batch_size": 8, "evaluation.greedy": False,
    }  # fmt: skip
    built_in = {
        **shared, "prepare": False, "agent.planner_tokens": 56, "agent.top_k": mujica_program.TOP_K,
        "agent.iteration_limit": mujica_program.ITERATIONS,
    }  # fmt: skip
    program = {**shared, "agent": {"function": "tests.methods.program.mujica_program:answer", "max_tokens": 56}}
    wanted = run_here("world-text.yaml", tmp_path / "built-in", built_in)
    found = run_here(str(ROOT / "pipelines/program-mygo/world.yaml"), tmp_path / "program", program)
    assert sum(len(rollout.others) for rollout in read_jsonl(found / "iteration-01/selected.jsonl", Rollout)) > 0
    assert_same_training(wanted / "iteration-01", found / "iteration-01", "world-base")


@pytest.mark.slow
@pytest.mark.e2e(minutes=2)
def test_grpo_of_five_updates_gives_the_built_in_agents_weights(tmp_path: Path) -> None:
    shared = {
        "dataset.world": {"entities": 60, "train_questions": 20, "eval_questions": 2, "hops": [1, 2], "context": 4},
        "online": {
            "learning_rate": 5e-4, "updates": 5, "questions": 3, "group": 4, "micro_batch_tokens": 4096, "threads": 1,
        },
        "sampling.temperature": 0.9, "evaluation.greedy": False,
    }  # fmt: skip
    own = {
        "agent": {
            "function": "tests.methods.program.arena_program:answer", "max_tokens": arena_program.SPEC.max_tokens,
            "reward": "tests.methods.program.arena_program:reward",
        },
        "model": "hopforge:world-base-arena", "retrieval": {"method": "contexts"}, "online.reward": "own",
    }  # fmt: skip
    wanted = run_here(str(ROOT / "pipelines/arena/world.yaml"), tmp_path / "built-in", shared)
    found = run_here(str(ROOT / "pipelines/program/world.yaml"), tmp_path / "program", {**shared, **own})
    assert_same_training(wanted / "online", found / "online", "world-base-arena")


def assert_same_training(built_in: Path, program: Path, start: str) -> None:
    """Check that two phases ended with the same weights, and that training has changed them."""
    wanted = weights_digest(built_in / "model")
    assert weights_digest(program / "model") == wanted
    assert wanted != weights_digest(ASSETS / start)
