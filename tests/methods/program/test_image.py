"""A program in an image of its own gives the rollouts of the same program on this machine."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.sampling import PROGRAM_RUNNER
from platform_sdk.errors import UserError
from platform_sdk.methods.faults import errors
from platform_sdk.methods.method import load_method
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.methods.requirements import missing_here
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.gateway.test_runner import binary, runner  # noqa: F401
from tests.methods.program.playing import WORLD, context, played, program

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, str(ROOT / "examples/programs/plain.py"))


def test_program_in_an_image_gives_the_rollouts_of_a_local_one(
    runner: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv(PROGRAM_RUNNER, runner)
    engine = TransformersEngine(ROOT / "platform_sdk/assets/world-base-react", live=4)
    with ExitStack() as opened:
        opened.callback(engine.close)
        specs = (AgentSpec(command=COMMAND, max_tokens=48), AgentSpec(command=COMMAND, image="any", max_tokens=48))
        local, in_image = (played(program(engine, opened, spec), engine, WORLD.eval[:2]) for spec in specs)
    assert {rollout.outcome for rollout in local} <= {"answered", "no_answer"}
    assert in_image == local


def test_image_outside_a_job_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROGRAM_RUNNER, raising=False)
    run = context(AgentSpec(command=("/agent",), image="registry/agent:1"))
    with (
        pytest.raises(UserError, match="an image runs in a cluster's jobs only"),
        load_method("program").resources(run),
    ):
        pass


def test_run_with_an_image_is_refused_before_it_starts() -> None:
    change = 'agent={"image": "registry/agent:1", "command": ["/agent"]}'
    recipe = load_recipe(ROOT / "pipelines/program/world.yaml", (change,))
    assert errors(recipe) == []
    [problem] = missing_here(recipe)
    assert problem.message.startswith("an image runs in a cluster's jobs only; submit the recipe")
    assert "agent.image" in str(problem)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"function": "tests.methods.program.react_program:answer"}, "image is for a command or a url"),
        ({"url": "https://agents.example.com"}, "must be one of the pod itself"),
        ({"command": ["/agent"], "environment": ["KEY"]}, "environment is for a command without an image"),
    ],
)
def test_contradictions_of_an_image_are_refused(values: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        AgentSpec.model_validate({"image": "registry/agent:1", **values})
