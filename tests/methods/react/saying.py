"""A ReAct agent whose turns are given, with real tools over made-up facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.methods.react.agent import ReactAgent
from platform_sdk.methods.react.settings import AgentSpec
from platform_sdk.records import Evidence, Question, Rollout
from platform_sdk.sampling.rollout import SearchRequest, run
from platform_sdk.tools.base import Tool
from platform_sdk.tools.calculator import Calculator
from platform_sdk.tools.search import SearchTool
from tests.methods.prograph.saying import TOKENIZER, ScriptedPolicyEngine

QUESTION = Question(
    id="q", text="How many years after Amberfall was Night Lake released?", answers=("34",), dataset="world",
    gold_passages=("Amberfall", "Night Lake"),
)  # fmt: skip
YEARS = {"Amberfall": "1923", "Night Lake": "1957"}


def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    """Find the films that the query names."""
    assert all(request.scope == {"question_id": "q"} for request in requests)
    return [
        [
            Evidence(kind="passage", id=f"p {name}", title=name, text=f"{name} was released in {year} .", score=1.0)
            for name, year in YEARS.items()
            if name in request.query
        ][:k]
        for request in requests
    ]


TOOLS: dict[str, Tool] = {"search": SearchTool(search, 2), "calculator": Calculator()}

SOLVED = (
    "<think>The later film first.</think><search>When was Night Lake released?</search>",
    "<think>1957. Now the other.</think> <search>When was Amberfall released?</search>",
    "<think>I need the difference.</think><calculator>1957 - 1923</calculator>",
    "<think>34.</think><answer>34</answer>",
)


def play(turns: Sequence[str], tools: Mapping[str, Tool] = TOOLS, max_turns: int = 6, **spec: Any) -> Rollout:
    """Return the rollout of an agent whose turns say ``turns``."""
    settings = AgentSpec(max_turns=max_turns, **spec)
    agent = ReactAgent(Policy(TOKENIZER, "w"), Decoding(), "c", 0, "test", settings, tools)
    engine: Any = ScriptedPolicyEngine(lambda request, taken: turns[taken], 10_000)
    [rollout] = run([partial(agent.rollout, QUESTION, 0)], engine, live=1)
    return rollout
