"""A teacher that searches: its rollouts become paths, without the hint that it was given."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import SamplingSpec
from platform_sdk.methods.evipath.checks import Limits, judged
from platform_sdk.methods.evipath.dialogues import planner_chat
from platform_sdk.methods.evipath.prompts import instruction
from platform_sdk.methods.evipath.records import Example
from platform_sdk.methods.evipath.search_teacher import SearchingTeacher
from platform_sdk.methods.evipath.settings import AgentSpec, SynthesisSpec
from platform_sdk.methods.method import RunContext
from platform_sdk.records import Evidence, given_evidence
from platform_sdk.sampling.engine import Request
from platform_sdk.sampling.rollout import SearchRequest, run
from tests.methods.evipath.scripted_teacher import PLANNER, QUESTION, TOKENIZER, ScriptedEngine, good
from tests.methods.prograph.saying import TOKENIZER as WORDS
from tests.methods.prograph.saying import ScriptedPolicyEngine

FOUND = given_evidence(QUESTION.context)


def solved(
    mode: Literal["answer-only", "deductive"],
    planner: Sequence[str] = PLANNER,
    reading: str = "[1]",
    style: Literal["standard", "compact"] = "standard",
) -> tuple[Example, list[str]]:
    prompts: list[str] = []

    def script(role: str, turn: int, prompt: str) -> str:
        prompts.append(prompt)
        if role == "planner":
            return planner[turn]
        return f"<think>t</think><select>{reading}</select><answer>{good('answerer', 0, prompt)}</answer>"

    class Engine(ScriptedEngine):
        def step(self) -> list[Any]:
            prompt = TOKENIZER.decode(self.waiting[0].token_ids)
            executor = instruction(style, "executor", "text", max_questions=5) in prompt
            self.script = (lambda *_: script("executor", 0, prompt)) if executor else script
            self.rng.seed(0)
            return super().step()

    def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        return [list(FOUND) for _ in requests]

    context = RunContext(
        run_dir=Path("run"), environment="hotpot", agent=AgentSpec(prompts=style, iteration_limit=4),
        sampling=SamplingSpec(),
        retrieval=RetrievalSpec.model_validate({}), searched_digest="c", seed=0,
    )  # fmt: skip
    teacher = SearchingTeacher(context, Policy(TOKENIZER, "teacher"), SynthesisSpec(mode=mode), search)
    [path] = run([partial(teacher.example, QUESTION, 0)], Engine(), live=1)  # type: ignore[arg-type]
    return judged(path, Limits(style, 5, 4)), prompts


@pytest.mark.parametrize(("mode", "hinted"), [("answer-only", True), ("deductive", False)])
def test_answer_is_shown_in_answer_only_mode_and_never_learned(mode: Any, hinted: bool) -> None:
    path, prompts = solved(mode)
    assert path.kept, path.detail
    assert prompts[0].rstrip().endswith("Answer : Anna Holm[assistant]") is hinted
    assert planner_chat(path, "standard", 5).turns[0] == f"Question : {QUESTION.text}"
    assert [sub.question for sub in path.asked()] == ["Who directed Night Lake?", "Who is the mother of Per Lind?"]
    assert path.pool == FOUND
    assert path.calls == 5
    assert path.plan == ("the director of Night Lake", "the mother of that director")


def test_compact_prompts_show_no_worked_paths() -> None:
    path, prompts = solved("answer-only", style="compact")
    assert path.kept, path.detail
    assert prompts[0].count("Question :") == 1
    assert prompts[0].rstrip().endswith("Answer : Anna Holm[assistant]")
    assert solved("answer-only")[1][0].count("Question :") > 1


def test_wrong_answer_is_rejected() -> None:
    path, _ = solved("deductive", (*PLANNER[:2], "<think>t</think><answer>Per Lind</answer>"))
    assert path.rejected == "answer"


@pytest.mark.parametrize("reading", ["", "[7]"])
def test_malformed_turn_is_rejected(reading: str) -> None:
    assert solved("deductive", reading=reading)[0].rejected == "tags"


def visited(triples: Sequence[tuple[str, str, str]], candidates: Sequence[int], topic_id: str = "Q1") -> Example:
    """Return the path of a planner that visits ``candidates`` from Ann in a graph of ``(head id, tail id, tail)``."""
    ids = (topic_id,) if topic_id else ()
    question = QUESTION.model_copy(update={"topic_entities": ("Ann",), "topic_ids": ids, "dataset": "2wikimultihopqa"})
    turns = [f'<think>t</think><action>Search([{place}], "Who?")</action>' for place in candidates]
    planner = iter([*turns, "<think>t</think><answer>Anna Holm</answer>"])

    def say(request: Request, taken: int) -> str:
        if request.dialogue.endswith("#0"):
            return next(planner)
        shown = WORDS.decode(request.token_ids).rsplit("[0]", 1)[1]
        return f"<think>t</think><select>[0]{'[1]' * ('[1]' in shown)}</select><answer>One sentence.</answer>"

    def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
        return [
            [
                Evidence(kind="triple", id=head + tail, title=name, text=name, score=1.0, entities=(head, tail))
                for head, tail, name in triples
                if head == request.scope["head"]
            ]
            for request in requests
        ]

    context = RunContext(
        run_dir=Path("run"), environment="world-kg", agent=AgentSpec(prompts="compact"), sampling=SamplingSpec(),
        retrieval=RetrievalSpec.model_validate({}), searched_digest="c", seed=0,
    )  # fmt: skip
    teacher = SearchingTeacher(context, Policy(WORDS, "teacher"), SynthesisSpec(mode="deductive"), search)
    [path] = run([partial(teacher.example, question, 0)], ScriptedPolicyEngine(say, 10_000), live=1)
    return path


NAMESAKES = [("Q1", "Q2", "Jo"), ("Q1", "Q3", "Jo"), ("Q2", "Q4", "Al"), ("Q3", "Q5", "Bo")]
FOUND_AGAIN = [("Ann", "Q2", "Bo"), ("Q2", "Q1", "Ann"), ("Q2", "Q3", "Cy"), ("Q3", "Q9", "Velm")]


@pytest.mark.parametrize(
    ("triples", "candidates", "topic_id", "rejected", "visits"),
    [
        ([("Q1", "Q2", "Bo"), ("Q2", "Q3", "Cy")], [0, 1], "Q1", "", ["Ann", "Bo"]),
        (NAMESAKES, [0, 2], "Q1", "namesakes", ["Ann"]),
        (FOUND_AGAIN, [0, 1, 3], "", "namesakes", ["Ann", "Bo"]),
    ],
)
def test_path_whose_candidates_share_a_name_or_an_id_is_rejected(
    triples: Any, candidates: list[int], topic_id: str, rejected: str, visits: list[str]
) -> None:
    path = visited(triples, candidates, topic_id)
    assert (path.rejected, [sub.candidate for sub in path.asked()]) == (rejected, visits)


def test_path_without_an_answer_is_rejected() -> None:
    assert solved("deductive", [PLANNER[1]] * 4)[0].rejected == "iteration-limit"
