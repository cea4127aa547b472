"""Calls of functions and streams over HTTP, by a policy whose tokens the test chooses."""

from __future__ import annotations

import json
import threading
from typing import Any, Literal

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from platform_sdk.gateway.events import CompletionAsked, Ended
from platform_sdk.gateway.sessions import Session
from platform_sdk.gateway.tool_calls import HERMES, LLAMA, TAGS
from platform_sdk.records import Trajectory
from platform_sdk.sampling.engine import Completion
from tests.gateway.templates import TOOLS, tokenizer, written_call

NAME = "qwen2_5"
USER = {"role": "user", "content": "Who directed Amberfall?"}


def policy(session: Session, *texts: str, finish: Literal["stop", "length"] = "stop") -> threading.Thread:
    """Answer the session's requests with these texts in a thread."""
    encode = tokenizer(NAME)

    def answer() -> None:
        for text in texts:
            while (event := session.inbox.take()) is None:
                threading.Event().wait(0.001)
            assert isinstance(event, CompletionAsked)
            ids = (*encode(text, add_special_tokens=False)["input_ids"], encode.eos_token_id)
            session.completed(event, Completion(event.id, ids, (-0.5,) * len(ids), finish))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return thread


def client(session: Session) -> openai.OpenAI:
    return openai.OpenAI(base_url=session.base_url, api_key=session.token, max_retries=0, timeout=30)


def create(session: Session, messages: list[Any], **options: Any) -> Any:
    with client(session) as api:
        reply = api.chat.completions.create(model="any", messages=messages, tools=TOOLS, **options)
        return list(reply) if options.get("stream") else reply


def test_calls_come_back_by_id_and_results_continue_the_thread(session: Session) -> None:
    policy(session, "I search.\n" + written_call(NAME, "Amberfall", spaced=True), "Ida Roth")
    reply = create(session, [USER])
    ChatCompletion.model_validate(reply.model_dump(), strict=True)
    message = reply.choices[0].message
    assert (reply.choices[0].finish_reason, message.content) == ("tool_calls", "I search.")
    [call] = message.tool_calls
    assert json.loads(call.function.arguments) == {"query": "Amberfall"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "Directed by Ida Roth"}
    reply = create(session, [USER, message.model_dump(), result])
    assert (reply.choices[0].finish_reason, reply.choices[0].message.content) == ("stop", "Ida Roth")
    [thread] = session.threads
    assert len(thread.calls) == 2


@pytest.mark.parametrize(
    "text", ["<tool_call>\n{oh}\n</tool_call>", "<tool_call>\n[1]\n</tool_call>", '{"name": "find"}', "none at all"]
)
def test_replies_that_cannot_be_parsed_are_text(session: Session, text: str) -> None:
    policy(session, text)
    reply = create(session, [USER])
    assert reply.choices[0].message.content == text
    assert reply.choices[0].message.tool_calls is None
    assert reply.choices[0].finish_reason == "stop"


def test_tool_choice_none_leaves_calls_as_text(session: Session) -> None:
    policy(session, written_call(NAME, "Amberfall"))
    assert create(session, [USER], tool_choice="none").choices[0].message.tool_calls is None


def test_llama_calls_are_parsed_with_and_without_the_tag() -> None:
    assert LLAMA.parse('<|python_tag|>{"name": "f", "parameters": {"a" : 1}}') == ("", (("f", '{"a" : 1}'),))
    assert LLAMA.parse('{"name": "f", "parameters": {}} and more') is None
    assert HERMES.parse('<tool_call>{"name": "f", "arguments": {}}</tool_call> so') is None


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("So.\n<find>Ida's film</find>", ("So.", (("find", '{"query": "Ida\'s film"}'),))),
        ('<find>{"query":"Ida", "k": 2}</find>', ("", (("find", '{"query":"Ida", "k": 2}'),))),
        ("<find>a</find>\n<add>b</add>", ("", (("find", '{"query": "a"}'), ("add", '{"query": "b"}')))),
        ("<find>a</find> and more", None),
        ("<find> </find>", None),
        ("<find>a</add>", None),
        ("<other>a</other>", None),
        ("<answer>a</answer>", None),
    ],
)
def test_tags_hold_the_only_text_argument_or_json(text: str, calls: Any) -> None:
    assert TAGS.parse(text, TOOLS) == calls


def test_plain_text_in_a_tag_is_no_call_of_a_function_with_two_required_arguments() -> None:
    fields = {"a": {"type": "string"}, "b": {"type": "string"}}
    parameters = {"type": "object", "properties": fields, "required": ["a", "b"]}
    tool = {"type": "function", "function": {"name": "join", "description": "", "parameters": parameters}}
    assert TAGS.parse("<join>x</join>", [tool]) is None
    assert TAGS.parse('<join>{"a": "x", "b": "y"}</join>', [tool]) is not None


@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": ["query"]},
        {"properties": {"query": True}, "required": ["query"]},
        {"properties": {"query": {}}, "required": 1},
        {"properties": {"query": {}}, "required": [["query"]]},
    ],
)
def test_plain_text_in_a_tag_is_no_call_of_a_function_whose_parameters_are_malformed(parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "find", "description": "", "parameters": parameters}}
    assert TAGS.parse("<find>x</find>", [tool]) is None


def test_stream_joins_to_the_whole_reply(session: Session) -> None:
    text = "I search, and I search again, until the chunk is full. " * 3
    two = text + "\n" + written_call(NAME, "Amberfall") + "\n" + written_call(NAME, "Ida")
    policy(session, two, two)
    whole = create(session, [USER])
    chunks = create(session, [USER], stream=True, stream_options={"include_usage": True})
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump(), strict=True)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [call.index for call in calls] == [0, 1]
    assert [call.function.arguments for call in calls] == [
        call.function.arguments for call in whole.choices[0].message.tool_calls
    ]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
    assert chunks[-1].usage == whole.usage


def test_streams_helper_of_the_openai_package_reads_the_stream(session: Session) -> None:
    policy(session, written_call(NAME, "Amberfall"))
    with client(session) as api, api.chat.completions.stream(model="any", messages=[USER], tools=TOOLS) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "find"


def test_stream_cut_in_the_middle_is_recorded_whole(session: Session) -> None:
    policy(session, "a long reply " * 200, "Ida Roth")
    body = {"model": "any", "messages": [USER], "stream": True}
    with httpx.stream("POST", f"{session.base_url}/chat/completions", json=body) as response:
        assert next(response.iter_lines()).startswith("data: ")
    create(session, [USER])
    assert sum(len(thread.calls) for thread in session.threads) == 2
    assert max(thread.length for thread in session.threads) > 500
    session.put(Ended("answered"))


@pytest.mark.parametrize("value", ['"x \\ud83d"', "NaN", "1e999", "[" * 195 + "]" * 195, "[" * 500 + "]" * 500])
def test_sampled_arguments_that_no_file_can_hold_are_text(session: Session, value: str) -> None:
    policy(session, f'<tool_call>\n{{"name": "find", "arguments": {{"query": {value}}}}}\n</tool_call>')
    assert create(session, [USER]).choices[0].message.tool_calls is None
    for trajectory in session.trajectories():
        assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
