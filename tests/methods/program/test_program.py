"""A program's rollouts are those of the built-in agent that it imitates; its failures are outcomes."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.sampling import EvaluationSpec
from platform_sdk.errors import UserError
from platform_sdk.gateway.events import Ended
from platform_sdk.methods.method import load_method
from platform_sdk.methods.program.agent import JUDGED_FROM, Failures, measures, read_answer
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.methods.react.agent import ReactAgent
from platform_sdk.methods.react.method import ReactResources
from platform_sdk.methods.react.settings import AgentSpec as ReactSpec
from platform_sdk.records import Rollout
from platform_sdk.sampling.transformers_engine import TransformersEngine
from platform_sdk.tools.calculator import Calculator
from platform_sdk.tools.search import SearchTool
from tests.methods.program.playing import WORLD, context, played, program, search

IMITATION = AgentSpec(function="tests.methods.program.react_program:answer", max_tokens=48, concurrent=1)


def test_program_has_the_tokens_of_the_built_in_agent(engine: TransformersEngine) -> None:
    """Greedily, every token, log-probability and piece of evidence is equal; sampled, the seeds of turns differ."""
    greedy = EvaluationSpec(temperature=0.0)
    spec = ReactSpec.model_validate({
        "tools": [{"type": "search", "top_k": 2}, {"type": "calculator"}], "prompts": "compact",
        "max_turns": 6, "max_tokens": 48,
    })  # fmt: skip
    tools: Any = {"search": SearchTool(search, 2), "calculator": Calculator()}
    built_in = load_method("react").agent(
        context(spec), Policy(engine.tokenizer, engine.weight_version), "eval", ReactResources(search, tools), greedy
    )
    assert isinstance(built_in, ReactAgent)
    wanted = played(built_in, engine, WORLD.eval)
    with ExitStack() as opened:
        found = played(program(engine, opened, IMITATION, greedy), engine, WORLD.eval)
    assert sum(len(rollout.main.evidence) for rollout in wanted) > 0
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.program is not None
        assert (ours.outcome, ours.program.threads) == ("answered" if theirs.main.answer else "no_answer", ("new",))
        assert ours.main.answer == theirs.main.answer, ours.program.stderr
        assert ours.main.token_ids == theirs.main.token_ids[: len(ours.main.token_ids)]
        # The built-in agent also writes down what it would have been told after its last turn.
        assert set(theirs.main.agent_mask[len(ours.main.token_ids) :]) <= {0}
        assert ours.main.agent_mask == theirs.main.agent_mask[: len(ours.main.agent_mask)]
        assert ours.main.logprobs == pytest.approx(theirs.main.logprobs[: len(ours.main.logprobs)], abs=1e-4)
        assert [item.id for item in ours.main.evidence] == [item.id for item in theirs.main.evidence]


def test_rollouts_do_not_depend_on_what_runs_beside_them(engine: TransformersEngine) -> None:
    with ExitStack() as opened:
        agent = program(engine, opened, IMITATION)
        together = played(agent, engine, WORLD.eval[:2], attempts=2)
        alone = [rollout for question in WORLD.eval[:2] for rollout in played(agent, engine, [question], attempts=2)]
    assert [rollout.main.token_ids for rollout in together] == [rollout.main.token_ids for rollout in alone]
    assert len({rollout.main.token_ids for rollout in together}) > 2, "attempts differ"


def test_failures_of_a_program_are_recorded_and_learned_from_by_nobody(
    engine: TransformersEngine, tmp_path: Path
) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        "import sys; sys.stderr.write('cannot: ' + __import__('os').environ['OPENAI_API_KEY']); sys.exit(3)"
    )
    with ExitStack() as opened:
        spec = AgentSpec(command=("python", str(script)))
        agent = program(engine, opened, spec)
        [rollout] = played(agent, engine, WORLD.eval[:1])
    assert rollout.program is not None
    assert (rollout.outcome, rollout.program.status, rollout.program.stderr) == ("error", 3, "cannot: …")
    assert agent.failures.causes == {"error (exit status 3): cannot: …": 1}
    assert sum(rollout.main.agent_mask) == 0
    assert rollout.rewards == {"em": 0.0, "f1": 0.0, "answered": 0.0}
    assert measures(rollout)["failed"] == 1.0
    assert Rollout.model_validate_json(rollout.model_dump_json()) == rollout


def test_program_is_told_the_question_and_no_answer(engine: TransformersEngine) -> None:
    question = WORLD.eval[0]
    with ExitStack() as opened:
        told = json.dumps(program(engine, opened, IMITATION).told(question))
    assert question.text in told
    assert not any(answer in told.replace(question.text, "") for answer in question.answers)
    assert "gold" not in told


def test_too_many_failures_stop_the_run_with_the_commonest() -> None:
    failures = Failures(0.5)
    for number in range(JUDGED_FROM - 1):
        failures.note(Ended("error", 1, f"log\nKeyError: 'x{number % 2}'") if number % 5 else Ended("timeout"))
    with pytest.raises(
        UserError, match=r"of 20 attempts of the program failed.*: error \(exit status 1\): KeyError: 'x"
    ):
        failures.note(Ended("error", 1, "KeyError: 'x0'"))
    silent = Failures(0.0)
    with pytest.raises(UserError, match="timeout: no output on standard error; run hopforge program check RECIPE"):
        for _ in range(JUDGED_FROM):
            silent.note(Ended("timeout"))
    calm = Failures(0.5)
    for number in range(100):
        calm.note(Ended("error", 1, "boom") if number % 2 else Ended("answered"))


ODD = st.text(st.characters(), max_size=20)  # lone surrogates too


@given(
    st.one_of(ODD, ODD.map(lambda text: json.dumps({"answer": text, "measures": {text: 1}})), st.just("[" * 200_000))
)
def test_any_last_line_is_read_as_text_that_a_file_can_hold(line: str) -> None:
    found = read_answer(line)
    assert found.answer is None or found.answer == found.answer.strip() != ""
    for text in (found.answer or "", *found.measures):
        text.encode()


def test_last_line_names_answer_call_and_measures() -> None:
    found = read_answer(json.dumps({"answer": " Ida ", "main": "c-1", "measures": {"steps": 2, "odd": "x"}}))
    assert (found.answer, found.main, found.measures) == ("Ida", "c-1", {"steps": 2.0})
    assert read_answer("plain text").answer == "plain text"
    assert read_answer('{"answer": null}').answer is None
    assert read_answer("[1, 2]").answer == "[1, 2]"
