"""The teacher with a language model: a good one's path is kept, a bad one's is rejected with the reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from platform_sdk.agents.speaker import Decoding, Policy
from platform_sdk.methods.evipath.checks import Limits, judged
from platform_sdk.methods.evipath.demonstrations import demonstrations
from platform_sdk.methods.evipath.dialogues import planner_chat
from platform_sdk.methods.evipath.evidence import Similarity, select
from platform_sdk.methods.evipath.proxy import Proxy
from platform_sdk.methods.evipath.records import Example
from platform_sdk.methods.evipath.settings import AgentSpec, SynthesisSpec
from platform_sdk.methods.evipath.teacher import AbductiveTeacher
from platform_sdk.records import Question
from platform_sdk.sampling import openai_engine
from platform_sdk.sampling.openai_engine import OpenAIEngine
from platform_sdk.sampling.rollout import run
from tests.methods.evipath.paths import LetterEncoder
from tests.methods.evipath.scripted_teacher import PLANNER, QUESTION, TOKENIZER, ScriptedEngine, good, server

Script = Callable[[str, int, str], str]


def taught(engine: Any, asked: Question = QUESTION) -> Example:
    agent = AgentSpec(iteration_limit=4)
    teacher = AbductiveTeacher(
        Policy(TOKENIZER, "teacher"), Decoding(), agent, SynthesisSpec(), Proxy("text", {}, (), 0, 0),
        Similarity(LetterEncoder()), "letters", 0,
    )  # fmt: skip
    [path] = run([partial(teacher.example, asked, 0)], engine, live=4)
    return judged(path, Limits("standard", agent.sub_questions, agent.iteration_limit))


def saying(role: str, turn: int, text: str) -> Script:
    """Return a teacher that is good but for one turn."""

    def script(who: str, when: int, prompt: str) -> str:
        return text if (who, when) == (role, turn) else good(who, when, prompt)

    return script


def test_good_teacher_writes_a_path_that_is_kept() -> None:
    engine = ScriptedEngine()
    path = taught(engine)
    assert path.kept, path.detail
    assert path.plan == ("the director of Night Lake", "the mother of that director")
    assert [step.thoughts for step in path.steps] == ["First the director.", "Per Lind directed it. Now the mother."]
    assert path.answer == "Anna Holm"
    for sub in path.asked():
        chosen = [path.gold[place] for place in select(sub.similarities, 0.9)]
        assert [sub.shown[index] for index in sub.selected] == chosen
        assert len(sub.shown) == 3
    assert path.calls == engine.asked == 3 + 2 * 2
    assert path.tokens > 100
    assert (path.teacher, path.encoder) == ("teacher", "letters")


def test_sub_answer_has_no_thoughts_of_a_reasoning_teacher() -> None:
    def script(role: str, turn: int, prompt: str) -> str:
        text = good(role, turn, prompt)
        return f"<think>Let me see.\nHere.</think>\n\n{text}" if role == "answerer" else text

    path = taught(ScriptedEngine(script))
    assert path.kept, path.detail
    assert [sub.answer for sub in path.asked()] == [sub.answer for sub in taught(ScriptedEngine()).asked()]


def test_answer_is_shown_to_the_teacher_and_not_to_the_student() -> None:
    prompts: list[str] = []

    def script(role: str, turn: int, prompt: str) -> str:
        prompts.append(prompt)
        return good(role, turn, prompt)

    path = taught(ScriptedEngine(script))
    assert "Answer : Anna Holm" in prompts[0]
    assert path.kept
    assert "Anna Holm" not in planner_chat(path, "standard", 5).turns[0]


@pytest.mark.parametrize(
    ("role", "turn", "text", "reason"),
    [
        ("planner", 0, "I do not know.", "tags"),
        ("planner", 0, "<think>t</think><action>Who?</action>", "action"),
        ("planner", 0, PLANNER[0].replace("First the director", "It leads to Anna Holm"), "leak"),
        ("planner", 1, '<think>t</think><action>Search("Who is his mother?")</action>', "pronoun"),
        ("planner", 2, "<think>t</think><answer>Per Lind</answer>", "answer"),
        ("planner", 2, PLANNER[1], "iteration-limit"),
        ("planner", 0, PLANNER[2], "action"),
        ("answerer", 0, "First.\nSecond.", "sub-answer"),
        ("answerer", 0, "", "sub-answer"),
        ("thinker", 0, "It says so.", "tags"),
        ("thinker", 0, "<think>t</think><select>[0]</select>", "tags"),
    ],
)
def test_bad_turn_rejects_the_path_with_the_reason(role: str, turn: int, text: str, reason: str) -> None:
    script = saying(role, turn, text)
    if reason == "iteration-limit":
        script = lambda who, when, prompt: PLANNER[1] if who == "planner" else good(who, when, prompt)  # noqa: E731
    path = taught(ScriptedEngine(script))
    assert (path.rejected, path.kept) == (reason, False)
    assert path.detail
    assert path.calls > 0


def test_turn_that_is_cut_off_and_prompt_that_is_too_long_are_rejected() -> None:
    assert taught(ScriptedEngine(finish="length")).rejected == "cut"
    assert taught(ScriptedEngine(max_model_len=100)).rejected == "context"


def test_question_without_gold_evidence_is_not_asked() -> None:
    engine = ScriptedEngine()
    path = taught(engine, QUESTION.model_copy(update={"context": QUESTION.context[:1]}))
    assert (path.rejected, engine.asked) == ("no-evidence", 0)


def test_path_does_not_depend_on_the_order_of_answers() -> None:
    assert taught(ScriptedEngine(seed=1)) == taught(ScriptedEngine(seed=2))


@pytest.mark.parametrize("medium", ["text", "kg"])
def test_demonstrations_pass_the_checks_themselves(medium: Any) -> None:
    for example in demonstrations(medium):
        checked = judged(example, Limits("standard", 5, 8))
        assert checked.kept, checked.detail


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], OpenAIEngine]:
    """Connect to a server whose weights are taken on trust."""
    monkeypatch.setattr(openai_engine, "load_tokenizer", lambda _: TOKENIZER)
    monkeypatch.setattr(openai_engine.probing, "probe_of_path", lambda *_, **__: None)
    monkeypatch.setattr(OpenAIEngine, "_check", lambda self, *_: setattr(self, "weight_version", "teacher"))
    return lambda url: OpenAIEngine(url, "teacher")


def test_path_from_a_good_server_equals_the_scripted_one(connect: Callable[[str], OpenAIEngine]) -> None:
    with server(good) as (url, statuses):
        engine = connect(url)
        assert taught(engine) == taught(ScriptedEngine())
        engine.close()
    assert statuses == [200] * 7


def test_server_that_answers_late_changes_nothing(connect: Callable[[str], OpenAIEngine]) -> None:
    with server(good, faults=2) as (url, statuses):
        engine = connect(url)
        assert taught(engine) == taught(ScriptedEngine())
        engine.close()
    assert statuses == [503, 503, *[200] * 7]


def test_path_from_a_useless_server_is_rejected(connect: Callable[[str], OpenAIEngine]) -> None:
    with server(lambda *_: "As a language model, I cannot.") as (url, _):
        engine = connect(url)
        assert taught(engine).rejected == "tags"
        engine.close()
