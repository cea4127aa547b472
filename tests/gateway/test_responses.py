"""The responses API with the openai package."""

from __future__ import annotations

import json

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from tests.gateway.templates import TOOLS, written_call
from tests.gateway.test_tools import NAME, client, policy

FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]


def test_responses_with_calls_continue_the_thread(session: Session) -> None:
    policy(session, "I search.\n" + written_call(NAME, "Amberfall"), "Ida Roth")
    sent = {"model": "any", "instructions": "Answer.", "tools": FLAT, "store": False}
    with client(session) as api:
        first = api.responses.create(input="Who directed Amberfall?", **sent)
        Response.model_validate(first.model_dump(), strict=True)
        said, called = first.output
        assert first.output_text == "I search."
        assert json.loads(called.arguments) == {"query": "Amberfall"}
        result = {"type": "function_call_output", "call_id": called.call_id, "output": "Ida Roth directed it"}
        items = [item.model_dump(exclude_none=True) for item in (said, called)]
        history = [{"role": "user", "content": "Who directed Amberfall?"}, *items, result]
        assert api.responses.create(input=history, **sent).output_text == "Ida Roth"
    [thread] = session.threads
    assert len(thread.calls) == 2


def test_result_of_a_call_may_be_a_list_of_texts(session: Session) -> None:
    policy(session, "Ida Roth")
    output = [{"type": "input_text", "text": "Ida Roth "}, {"type": "input_text", "text": "directed it"}]
    call = {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": output}
    with client(session) as api:
        api.responses.create(model="any", input=[{"role": "user", "content": "Who?"}, call, result])
    [thread] = session.threads
    assert thread.calls[0].messages[-1].content == "Ida Roth directed it"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "reasoning", "id": "r", "summary": []}, "input[0].type"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}, "input[0].content[0].type"),
        ({"type": "function_call", "name": "find", "arguments": "{}"}, "input[0].call_id"),
    ],
)
def test_malformed_item_is_refused_by_its_place(hermes: Gateway, item: dict[str, object], param: str) -> None:
    session = hermes.open(seed=1, name="Q#0")
    with client(session) as api, pytest.raises(openai.BadRequestError) as caught:
        api.responses.create(model="any", input=[item])
    assert caught.value.param == param
    session.close()


@pytest.mark.parametrize(
    "options",
    [
        {"previous_response_id": "resp_1"},
        {"store": True},
        {"text": {"format": {"type": "json_object"}}},
        {"reasoning": {"effort": "low"}},
        {"truncation": "auto"},
        {"background": True},
        {"stream_options": {"include_obfuscation": True}},
    ],
)
def test_unsupported_fields_of_responses_are_refused(hermes: Gateway, options: dict[str, object]) -> None:
    session = hermes.open(seed=1, name="Q#0")
    with client(session) as api, pytest.raises(openai.BadRequestError, match=next(iter(options))):
        api.responses.create(model="any", input="x", **options)
    session.close()


def test_streamed_response_joins_to_the_whole_one(session: Session) -> None:
    text = "I search, and I search again, until the piece is full. " * 3
    two = text + "\n" + written_call(NAME, "Amberfall") + "\n" + written_call(NAME, "Ida")
    policy(session, two, two)
    sent = {"model": "any", "input": "Who directed Amberfall?", "tools": FLAT}
    with client(session) as api:
        whole = api.responses.create(**sent)
        events = list(api.responses.create(**sent, stream=True))
    adapter = TypeAdapter(ResponseStreamEvent)
    for event in events:
        adapter.validate_python(event.model_dump(), strict=True)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    called = [item for item in whole.output if item.type == "function_call"]
    for place, item in enumerate(called, start=1):
        deltas = [event for event in events if event.type == "response.function_call_arguments.delta"]
        assert "".join(event.delta for event in deltas if event.output_index == place) == item.arguments
    assert [item.name for item in events[-1].response.output[1:]] == [item.name for item in called]
    assert events[-1].response.usage == whole.usage


def test_stream_helper_of_the_openai_package_continues_the_thread(session: Session) -> None:
    policy(session, "I search.\n" + written_call(NAME, "Amberfall"), "Ida Roth")
    user = {"role": "user", "content": "Who directed Amberfall?"}
    with client(session) as api:
        with api.responses.stream(model="any", input=[user], tools=FLAT) as stream:
            first = stream.get_final_response()
        [call] = [item for item in first.output if item.type == "function_call"]
        items = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
        for part in items[0]["content"]:
            part.pop("parsed", None)
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "Ida Roth directed it"}
        with api.responses.stream(model="any", input=[user, *items, result], tools=FLAT) as stream:
            assert stream.get_final_response().output_text == "Ida Roth"
    [thread] = session.threads
    assert len(thread.calls) == 2


def test_streamed_response_at_the_limit_is_incomplete(session: Session) -> None:
    policy(session, "Ida", finish="length")
    body = {"input": "x", "stream": True}
    lines = httpx.post(f"{session.base_url}/responses", json=body).text.splitlines()
    last = json.loads(lines[-2].removeprefix("data: "))
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_main_may_be_the_id_of_a_response_or_of_its_message(session: Session) -> None:
    policy(session, "short", "a reply that is longer than the other")
    with client(session) as api:
        first = api.responses.create(model="any", input="Who?")
        api.responses.create(model="any", input="Who directed Amberfall?")
    for name in (first.id, first.output[0].id):
        assert name is not None
        assert session.main_first(name)[0].calls[0].text == "short"
