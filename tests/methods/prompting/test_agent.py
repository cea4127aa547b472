"""Prompting baselines on scripted policies: prompts, searches, records, stopping, and small runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.config.recipe import load_recipe
from platform_sdk.methods.prompting import prompts
from platform_sdk.methods.prompting.agent import PromptedAgent, measures
from platform_sdk.methods.prompting.settings import AgentSpec, Strategy
from platform_sdk.records import Evidence, Question, Rollout
from platform_sdk.sampling.engine import Request
from platform_sdk.sampling.rollout import SearchRequest, run
from tests.methods.prograph.saying import TOKENIZER, ScriptedPolicyEngine

ROOT = Path(__file__).parents[3]
QUESTION = Question(
    id="q", text="Who is the mother of the director of Dawn?", answers=("Lena Roth",), dataset="hotpotqa",
    gold_passages=("Dawn", "Ida Roth"),
)  # fmt: skip
TEXTS = {
    "Dawn": "Dawn is a film by Ida Roth.",
    "Ida Roth": "Ida Roth was born to Lena Roth.",
    "Velm": "Velm is a town.",
}


class Searches:
    """Finds the passages whose titles a query names, and keeps the queries."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def __call__(self, requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        assert all(request.scope == {"question_id": "q"} for request in requests)
        self.queries += [request.query for request in requests]
        return [
            [
                Evidence(kind="passage", id=title, title=title, text=text, score=1.0)
                for title, text in TEXTS.items()
                if title in request.query
            ][:k]
            for request in requests
        ]


def play(
    strategy: Strategy, says: Callable[[str], str], max_model_len: int = 20_000, **spec: Any
) -> tuple[Rollout, Searches, list[str]]:
    """Return the rollout of a policy, a function from prompts to replies; its searches, and all prompts."""
    searches, asked = Searches(), list[str]()

    def said(request: Request, taken: int) -> str:
        asked.append(TOKENIZER.decode(request.token_ids))
        return says(asked[-1])

    settings = AgentSpec(strategy=strategy, **spec)
    agent = PromptedAgent(Policy(TOKENIZER, "w"), Decoding(), "c", 0, "test", settings, searches)
    engine: Any = ScriptedPolicyEngine(said, max_model_len)
    [rollout] = run([partial(agent.rollout, QUESTION, 0)], engine, live=1)
    return rollout, searches, asked


def test_closed_book_answers_without_a_search() -> None:
    rollout, searches, [prompt] = play("closed_book", lambda _: " Lena Roth\n")
    assert (rollout.main.answer, rollout.outcome, rollout.rewards["em"]) == ("Lena Roth", "answered", 1.0)
    assert searches.queries == []
    assert prompt.endswith("<|user|>Question: Who is the mother of the director of Dawn?<|end|><|assistant|>")
    assert measures(rollout, AgentSpec(strategy="closed_book"))["searches"] == 0
    assert "evidence_recall" not in measures(rollout, AgentSpec(strategy="closed_book"))


@pytest.mark.parametrize(
    ("reply", "answer", "malformed"),
    [
        ("Ida Roth directed Dawn.\nAnswer: Lena Roth", "Lena Roth", 0),
        ("<think>hm\nAnswer: no</think>So.\n answer :  Lena Roth ", "Lena Roth", 0),
        ("Lena Roth", None, 1),
        ("The answer: Lena Roth", None, 1),  # the marker begins a line
        ("<think>endless", None, 1),
    ],
)
def test_chain_of_thought_answers_after_the_marker(reply: str, answer: str | None, malformed: int) -> None:
    rollout, _, _ = play("chain_of_thought", lambda _: reply)
    assert (rollout.main.answer, rollout.malformed_turns) == (answer, malformed)
    assert rollout.outcome == ("iteration_limit" if answer is None else "answered")


def test_retrieve_and_read_searches_once_with_the_question() -> None:
    rollout, searches, [prompt] = play("retrieve_read", lambda _: "Ida Roth", top_k=3, demonstrate=True)
    assert searches.queries == [QUESTION.text]
    assert prompt.count("<|user|>") == 2  # the worked example, and the question
    assert "<|user|>[1] Dawn: Dawn is a film by Ida Roth.\nQuestion: Who" in prompt
    assert [item.id for item in rollout.main.evidence] == ["Dawn"]
    found = measures(rollout, AgentSpec(strategy="retrieve_read"))
    assert (found["em"], found["searches"], found["evidence_recall"]) == (0.0, 1.0, 0.5)


def ircot(prompt: str) -> str:
    """Reason one sentence at a time, then read."""
    if prompts.instruction("ircot") in prompt:
        return "Ida Roth was born to Lena Roth.\nAnswer: Lena Roth"
    if "Reasoning so far: Ida Roth directed Dawn. Her mother is Lena Roth." in prompt:
        return "Answer: Lena Roth"
    if "Reasoning so far: Ida Roth directed Dawn." in prompt:
        return "Her mother is Lena Roth. And she lived in Velm."
    return "Ida Roth directed Dawn. She had a mother."


def test_ircot_searches_with_the_first_sentence_of_each_step_and_reads_all_passages() -> None:
    rollout, searches, asked = play("ircot", ircot)
    assert searches.queries == [QUESTION.text, "Ida Roth directed Dawn.", "Her mother is Lena Roth."]
    assert (rollout.main.answer, rollout.outcome) == ("Lena Roth", "answered")
    assert [item.id for item in rollout.main.evidence] == ["Dawn", "Ida Roth"]  # each once, in order of discovery
    assert [step.role for step in rollout.others] == ["worker"] * 3
    assert [turn.queries for step in rollout.others for turn in step.turns if turn.speaker == "agent"] == [
        ("Ida Roth directed Dawn.",), ("Her mother is Lena Roth.",), (),
    ]  # fmt: skip
    assert rollout.main.turns[-1].calls == ("step-0", "step-1", "step-2")
    assert "[2] Ida Roth: Ida Roth was born to Lena Roth.\nQuestion:" in asked[1]
    assert "Reasoning so far" not in asked[-1]
    found = measures(rollout, AgentSpec(strategy="ircot"))
    assert (found["searches"], found["calls"], found["evidence_recall"]) == (3.0, 4.0, 1.0)
    assert Rollout.model_validate_json(rollout.model_dump_json()) == rollout


def test_ircot_searches_with_a_whole_sentence_that_has_initials_and_abbreviations() -> None:
    _, searches, _ = play("ircot", lambda p: "Dr. Ida B. Roth Jr. directed Dawn in St. Velm. She sang.", max_steps=2)
    assert searches.queries == [QUESTION.text, "Dr. Ida B. Roth Jr. directed Dawn in St. Velm."]


def test_ircot_keeps_to_its_limits() -> None:
    rollout, searches, asked = play("ircot", lambda p: "Dawn, Ida Roth and Velm.", max_steps=2, max_passages=2)
    assert len(asked) == 3  # two sentences, one reading
    assert searches.queries == [QUESTION.text, "Dawn, Ida Roth and Velm."]  # the last sentence is not searched
    assert [item.id for item in rollout.main.evidence] == ["Dawn", "Ida Roth"]
    assert rollout.outcome == "iteration_limit"


def test_ircot_stops_reasoning_at_an_empty_sentence() -> None:
    rollout, searches, _ = play("ircot", lambda p: "Answer: x" if prompts.instruction("ircot") in p else "  ")
    assert (searches.queries, len(rollout.others), rollout.main.answer) == ([QUESTION.text], 1, "x")


def test_full_context_ends_without_an_answer() -> None:
    rollout, _, _ = play("ircot", lambda p: "x", max_model_len=50)
    assert (rollout.outcome, rollout.main.answer, rollout.rewards["em"]) == ("context_limit", None, 0.0)


def test_recipe_trains_nothing() -> None:
    recipe = load_recipe(ROOT / "pipelines/prompting/world.yaml")
    assert [task.component for task in recipe.plan] == ["corpus", "policy", "index", "evaluate", "report"]
