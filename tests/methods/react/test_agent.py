from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.agents.planner_worker import Answer, Malformed
from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.methods.react.agent import ReactAgent, measures
from platform_sdk.methods.react.grammar import parse, parse_search_r1
from platform_sdk.methods.react.method import METHOD
from platform_sdk.methods.react.settings import AgentSpec
from platform_sdk.records import Rollout, ToolCall
from platform_sdk.sampling.engine import Request
from platform_sdk.sampling.rollout import run
from platform_sdk.tools.base import arguments_model
from platform_sdk.tools.calculator import Calculator
from tests.extensions.glossary import Glossary
from tests.methods.prograph.saying import TOKENIZER, ScriptedPolicyEngine
from tests.methods.react.saying import QUESTION, SOLVED, TOOLS, play


def test_calls_are_recorded_with_arguments_results_and_evidence() -> None:
    rollout = play(SOLVED)
    assert (rollout.main.answer, rollout.outcome, rollout.rewards["em"]) == ("34", "answered", 1.0)
    said = [turn for turn in rollout.main.turns if turn.speaker == "agent"]
    calls = [call for turn in said for call in turn.tool_calls]
    assert [(call.tool, call.arguments) for call in calls] == [
        ("search", {"query": "When was Night Lake released?"}),
        ("search", {"query": "When was Amberfall released?"}),
        ("calculator", {"expression": "1957 - 1923"}),
    ]
    assert [call.evidence for call in calls] == [("p Night Lake",), ("p Amberfall",), ()]
    assert (calls[2].text, calls[2].figures, calls[2].error) == ("34", {"value": 34.0}, False)
    assert said[0].queries == ("When was Night Lake released?",)
    shown = [turn for turn in rollout.main.turns if turn.speaker == "environment"]
    assert shown[1].text == "<result>\nNight Lake : Night Lake was released in 1957 .\n</result>"
    assert shown[3].text == "<result>\n34\n</result>"
    assert {item.id for item in rollout.main.evidence} == {"p Night Lake", "p Amberfall"}
    assert Rollout.model_validate_json(rollout.model_dump_json()) == rollout
    figures = measures(rollout)
    assert {name: figures[name] for name in ("searches", "tool_calls", "tool_errors", "turns", "evidence_recall")} == {
        "searches": 2.0, "tool_calls": 3.0, "tool_errors": 0.0, "turns": 4.0, "evidence_recall": 1.0,
    }  # fmt: skip


def test_results_are_never_trained_on() -> None:
    rollout = play(SOLVED)
    for turn in rollout.main.turns:
        mask = rollout.main.agent_mask[turn.start : turn.end]
        assert set(mask) == ({1} if turn.speaker == "agent" else {0})


def test_failed_call_is_an_error_that_the_agent_reads() -> None:
    rollout = play(["<think>t</think><calculator>1 / 0</calculator>", SOLVED[3]])
    [call] = rollout.main.turns[1].tool_calls
    assert (call.error, call.text) == (True, "Error : division by zero")
    assert "division by zero" in rollout.main.turns[2].text
    assert rollout.malformed_turns == 0


def test_call_in_the_last_turn_has_no_result() -> None:
    rollout = play(SOLVED[:2], max_turns=2)
    assert rollout.outcome == "iteration_limit"
    assert rollout.main.answer is None
    last = rollout.main.turns[-1]
    assert (last.speaker, last.tool_calls[0].text, last.tool_calls[0].evidence) == ("agent", "", ())


def test_malformed_turn_gets_its_reason(tmp_path: Path) -> None:
    rollout = play(["<think>t</think><lookup>x</lookup>", SOLVED[3]])
    assert rollout.malformed_turns == 1
    assert rollout.main.turns[2].text.startswith("Error : after </think> write one <search>…</search> or <calculator>")


def test_own_tool_with_json_arguments_returns_evidence_and_figures(tmp_path: Path) -> None:
    file = tmp_path / "terms.json"
    file.write_text(json.dumps({"reel": "a spool of film"}))
    tools = {"glossary": Glossary(str(file))}
    rollout = play(['<think>t</think><glossary>{"terms": ["reel", "gaffer"]}</glossary>', SOLVED[3]], tools)
    [call] = rollout.main.turns[1].tool_calls
    assert (call.arguments, call.evidence) == ({"terms": ["reel", "gaffer"], "exact": True}, ("reel",))
    assert (call.text, call.figures) == ("1 of 2", {"known": 1.0})
    assert rollout.main.turns[2].text == "<result>\n1 of 2\nreel : a spool of film\n</result>"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<search>x</search>", "begin with <think>"),
        ("<think>a<search>x</search>", "begin with <think>"),
        ("<think>a<answer></think><answer>x</answer>", "another tag is inside"),
        ("<think>a</think>", "write one"),
        ("<think>a</think><search>x</search><search>y</search>", "write only one <search>"),
        ("<think>a</think><search>x</search> and more", "write one"),
        ("<think>a</think><search>x<result></search>", "write one"),
        ("<think>a</think><search> </search>", "the search is empty"),
        ("<think>a</think><answer></answer>", "the answer is empty"),
        (
            f"<think>a</think><calculator>{'1' * 500}</calculator>",
            "calculator : expression : String should have",
        ),
    ],
)
def test_turn_outside_the_grammar_is_refused_with_its_reason(text: str, reason: str) -> None:
    parsed = parse(text, TOOLS)
    assert isinstance(parsed, Malformed)
    assert reason in parsed.reason


def test_well_formed_turns_are_parsed(tmp_path: Path) -> None:
    assert parse(" <think>a</think>\n<answer> x y </answer> ", TOOLS) == Answer("x y")
    assert parse("<think></think><search>who?</search>", TOOLS) == ToolCall(tool="search", arguments={"query": "who?"})
    (tmp_path / "t.json").write_text("{}")
    glossary = {"glossary": Glossary(str(tmp_path / "t.json"))}
    for content, reason in (('{"terms": 3}', "terms : Input should be a valid array"), ("reel", "Invalid JSON")):
        parsed = parse(f"<think>a</think><glossary>{content}</glossary>", glossary)
        assert isinstance(parsed, Malformed)
        assert reason in parsed.reason


@pytest.mark.parametrize(
    "arguments", ['{"amount": 1e999}', '{"amount": NaN}', '{"amount": 1, "notes": ' + "[" * 197 + "]" * 197 + "}"]
)
def test_arguments_that_a_record_cannot_hold_are_malformed(arguments: str) -> None:
    fields = arguments_model("pay", [("amount", float, ..., None), ("notes", list[Any], [], None)])
    parsed = parse(f"<think>a</think><pay>{arguments}</pay>", {"pay": Calculator("pay", arguments=fields)})
    assert parsed == Malformed("pay : a number is not finite, or the arguments are nested too deeply")


SEARCH_R1 = (
    "I begin. <search>When was Night Lake released?</search>",
    "<think>1957.</think>\nNothing else.",
    "<think>34.</think> <answer> 34 </answer>",
)


def test_search_r1_reads_actions_anywhere_and_shows_information() -> None:
    rollout = play(SEARCH_R1, {"search": TOOLS["search"]}, prompts="search_r1")
    assert (rollout.main.answer, rollout.outcome, rollout.rewards["em"]) == ("34", "answered", 1.0)
    shown = [turn.text for turn in rollout.main.turns if turn.speaker == "environment"]
    assert "between <search> and </search>" not in shown[0]
    assert shown[1] == "<information>\nDoc 1 (Title: Night Lake) Night Lake was released in 1957 .\n</information>"
    assert shown[2].startswith("That was no action.")
    assert rollout.malformed_turns == 1
    for turn in rollout.main.turns:  # observations are masked
        assert set(rollout.main.agent_mask[turn.start : turn.end]) == ({1} if turn.speaker == "agent" else {0})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<search>a</search><answer>b</answer>", ToolCall(tool="search", arguments={"query": "a"})),
        ("<answer>a <search>b</search></answer>", Answer("a <search>b</search>")),
        ("<think>t</think><answer>\nx\n</answer> more", Answer("x")),
        ("<search>a", Malformed("no search and no answer")),
        ("<search> </search>", Malformed("the search is empty")),
    ],
)
def test_search_r1_takes_the_first_complete_action(text: str, expected: object) -> None:
    assert parse_search_r1(text, TOOLS) == expected


def test_search_r1_ends_turns_at_its_actions() -> None:
    stops: list[tuple[str, ...]] = []
    settings = AgentSpec(prompts="search_r1")
    agent = ReactAgent(Policy(TOKENIZER, "w"), Decoding(), "c", 0, "t", settings, {"search": TOOLS["search"]})

    def said(request: Request, taken: int) -> str:
        stops.append(request.params.stop)
        return SEARCH_R1[2 * min(taken, 1)]

    engine: Any = ScriptedPolicyEngine(said, 10_000)
    list(run([partial(agent.rollout, QUESTION, 0)], engine, live=1))
    assert stops == [METHOD.stops(settings)] * 2 == [("</search>", "</answer>")] * 2
    assert METHOD.stops(AgentSpec()) == ()


def test_search_r1_has_no_other_tool_than_search() -> None:
    with pytest.raises(ValueError, match="search_r1 has the tool search and no other"):
        AgentSpec.model_validate({"prompts": "search_r1", "tools": [{"type": "search"}, {"type": "calculator"}]})
