"""The responses API with the openai package."""

from __future__ import annotations

import json

import openai
import pytest
from openai.types.responses import Response

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


@pytest.mark.parametrize(
    "options",
    [
        {"previous_response_id": "resp_1"},
        {"store": True},
        {"stream": True},
        {"text": {"format": {"type": "json_object"}}},
    ],
)
def test_unsupported_fields_of_responses_are_refused(hermes: Gateway, options: dict[str, object]) -> None:
    session = hermes.open(seed=1, name="Q#0")
    with client(session) as api, pytest.raises(openai.BadRequestError, match=next(iter(options))):
        api.responses.create(model="any", input="x", **options)
    session.close()
