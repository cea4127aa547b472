"""Sessions of a program with a teacher: in the policy's tokens, without log-probabilities, and learned from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.world import generate
from platform_sdk.errors import UserError
from platform_sdk.gateway.messages import FunctionCall, Message
from platform_sdk.gateway.refusals import Refusal
from platform_sdk.gateway.templates import ChatTemplate
from platform_sdk.gateway.threads import SampledCall
from platform_sdk.methods.faults import errors
from platform_sdk.methods.program.settings import SessionsSpec
from platform_sdk.methods.program.teacher import TaughtReply, Teacher
from platform_sdk.record_files import read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.models import load_tokenizer, weights_digest
from tests.e2e.runs import ROOT, options, run_here
from tests.gateway.templates import NAMES, TOOLS, tokenizer
from tests.http_server import HttpRequest, HttpResponse, HttpServer

WORLD = {"entities": 40, "train_questions": 12, "eval_questions": 2, "hops": [1], "years": 0.6, "seed": 7}
BASE = ROOT / "platform_sdk/assets/world-base-react"
SYSTEM = "Think , then use a tool or write the answer ."  # of examples/programs/plain.py
QUESTION = re.compile(r"Question : (.*)")


def asked(url: str) -> TaughtReply | Refusal:
    call = SampledCall("c", (Message("user", "Who?"),), (), (1,), None, "", {}, [], rewritten=False)
    with Teacher(SessionsSpec(url=url, model="big", retries=0)) as client:
        [reply] = client.replies([(call, SamplingParams(max_tokens=8))])
    return reply


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"5", b"{}", b'{"choices": null}', b'{"choices": []}', b'{"choices": [null]}',
     b'{"choices": [{"message": null}]}', b'{"choices": [{"message": {"content": 5}}]}', b"<html>", b"\xff",
     b'{"choices": [{"message": {"content": "x", "tool_calls": [{"id": "1"}]}}]}'],
)  # fmt: skip
def test_odd_response_of_a_teacher_is_one_error(content: bytes) -> None:
    with HttpServer(lambda _: (200, content)) as server, pytest.raises(UserError, match="teacher big at"):
        asked(f"{server.url}/v1")


def test_request_that_a_teacher_refuses_is_refused_to_the_program_alone() -> None:
    with HttpServer(lambda _: (400, {"error": {"message": "too long"}})) as server:
        reply = asked(f"{server.url}/v1")
    assert isinstance(reply, Refusal)
    assert (reply.status, "too long" in reply.message) == (400, True)


def test_reply_of_a_teacher_has_text_that_a_file_can_hold() -> None:
    message = {"role": "assistant", "content": "\ud800 Ida"}
    choices = [{"finish_reason": "length", "message": message}]
    with HttpServer(lambda _: (200, {"choices": choices})) as server:
        reply = asked(f"{server.url}/v1")
    assert isinstance(reply, TaughtReply)
    assert (reply.message.content, reply.cut) == ("? Ida", True)


@contextmanager
def teacher(answers: dict[str, str], status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a teacher that searches for the question and then gives its answer; yield its URL and its requests."""
    bodies: list[dict[str, Any]] = []

    def answer(request: HttpRequest) -> HttpResponse:
        body = request.json()
        bodies.append(body | {"authorization": request.headers["Authorization"]})
        if status != 200:
            return status, {"error": {"message": "the key secret-key is not valid"}}
        question = QUESTION.search(body["messages"][1]["content"])[1]
        act = f"<search>{question}</search>"
        if len(body["messages"]) > 2:
            act = f"<answer>{answers.get(question, 'nobody')}</answer>"
        message = {"role": "assistant", "content": f"<think>I look . </think> {act}"}
        reply = {"id": "x", "object": "chat.completion", "created": 0, "model": "big"}
        return 200, reply | {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}

    with HttpServer(answer) as server:
        yield f"{server.url}/v1", bodies


def known_answers() -> dict[str, str]:
    """Return the answers to half of the training questions."""
    questions = generate(WorldSpec.model_validate(WORLD)).train
    return {question.text: question.answers[0] for question in questions[::2]}


def overrides(url: str) -> dict[str, Any]:
    return {
        "dataset.world": WORLD, "teach": True, "iterations": 0, "evaluation.greedy": False,
        "sessions": {"url": url, "model": "big", "attempts": 2, "concurrent": 4, "temperature": 0.5},
        "sessions_training": {"batch_size": 4, "learning_rate": 1e-3},
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.e2e(minutes=1)
def test_policy_is_fine_tuned_on_the_sessions_that_a_teacher_got_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    answers = known_answers()
    with teacher(answers) as (url, bodies):
        run_dir = run_here(str(ROOT / "pipelines/program-mygo/world.yaml"), tmp_path / "run", overrides(url))
    assert {body["authorization"] for body in bodies} == {"Bearer secret-key"}
    assert {(body["model"], body["temperature"], body["max_tokens"]) for body in bodies} == {("big", 0.5, 48)}
    selected = list(read_jsonl(run_dir / "teaching/selected.jsonl", Rollout))
    rollouts = list(read_jsonl(run_dir / "teaching/rollouts.jsonl", Rollout))
    assert {rollout.question.text for rollout in selected} == set(answers)
    assert len(rollouts) == 6 + 6 * 2, "questions that it gets wrong are asked again, the others are not"
    template = ChatTemplate(load_tokenizer(BASE))
    for rollout in selected:
        [trajectory] = rollout.trajectories
        assert trajectory.logprobs == (), "no policy has sampled these tokens"
        assert rollout.weights != weights_digest(BASE)
        assert rollout.main.evidence
        texts = [turn.text for turn in trajectory.turns]
        assert texts[-1].endswith(f"<answer> {answers[rollout.question.text]} </answer>")
        messages = [Message(("user", "assistant")[place % 2], text) for place, text in enumerate(texts)]
        rendered = template.render([Message("system", SYSTEM), *messages, Message("user", "-")], [])
        assert trajectory.token_ids == tuple(template.encode(rendered)[: len(trajectory.token_ids)])
        spoken = [token for token, mask in zip(trajectory.token_ids, trajectory.agent_mask, strict=True) if mask]
        assert (spoken.count(template.end), spoken[-1]) == (2, template.end)
    assert weights_digest(run_dir / "teaching/model") != weights_digest(BASE)


@pytest.mark.slow
@pytest.mark.e2e(minutes=1)
def test_teacher_that_refuses_the_key_stops_the_run_with_one_error_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    with teacher({}, status=401) as (url, _), pytest.raises(UserError, match="teacher big at") as caught:
        run_here(str(ROOT / "pipelines/program-mygo/world.yaml"), tmp_path / "run", overrides(url))
    assert "secret-key" not in str(caught.value)
    assert "api" in str(caught.value).lower()


def test_reward_of_your_own_must_be_named() -> None:
    recipe = load_recipe(ROOT / "pipelines/program-mygo/world.yaml", options({"sessions.reward": "own"}))
    [found] = errors(recipe)
    assert "name it in agent.reward" in found.message


@pytest.mark.parametrize("name", NAMES)
def test_recited_reply_has_the_tokens_of_a_full_rendering(name: str) -> None:
    template = ChatTemplate(tokenizer(name))
    user, sure = Message("user", "Who directed Amberfall?"), Message("user", "Sure?")
    prompt = template.render([user], [])
    said = Message("assistant", "Ida Roth")
    recited = template.recited("c", prompt, said, cut=False)
    read = template.encode(prompt)
    whole = template.render([user, said, sure], [])
    rest = whole.partition("Ida Roth")[2]
    joined = [*read, *recited.token_ids, *template.joined([*read, *recited.token_ids], rest)]
    assert template.tokenizer.decode(joined) == template.tokenizer.decode(template.encode(whole))
    assert template.text(recited, prompt) == "Ida Roth"
    assert template.ends(recited)


@pytest.mark.parametrize("name", NAMES)
def test_recited_reply_with_lone_surrogates_has_tokens(name: str) -> None:
    template = ChatTemplate(tokenizer(name))
    calls = (FunctionCall("theirs", "find", '{"query": "\\ud800 Ida"}'),)
    prompt = template.render([Message("user", "Who?")], [])
    recited = template.recited("c", prompt, Message("assistant", "\ud800 Ida", calls), cut=False)
    assert template.text(recited, prompt).count("? Ida") == (1 if template.format is None else 2)


@pytest.mark.parametrize("name", NAMES)
def test_recited_calls_are_parsed_again(name: str) -> None:
    template = ChatTemplate(tokenizer(name))
    if template.format is None:
        pytest.skip("the template has no form for tools")
    call = FunctionCall("theirs", "find", '{"query": "Amberfall"}')
    content = "" if template.format.name == "llama3" else "I search."
    prompt = template.render([Message("user", "Who?")], TOOLS)
    recited = template.recited("c", prompt, Message("assistant", content, (call,)), cut=False)
    assert template.format.parse(template.text(recited, prompt), TOOLS) == (content, (("find", call.arguments),))
