"""Text completions: continuation by text and by tokens, answered by a real engine."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types import Completion

from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.gateway.serving import play
from tests.gateway.test_chat import client, sampled

PROMPT = "<|user|>Who directed Amberfall ?<|end|><|assistant|>"


def complete(session: Session, prompt: Any, **options: Any) -> Completion:
    with client(session) as api:
        reply: Completion = api.completions.create(model="any", prompt=prompt, **options)
        return next(iter(reply)) if options.get("stream") else reply


def test_text_that_begins_with_prompt_and_reply_continues_the_thread(
    gateway: Gateway, engine: TransformersEngine
) -> None:
    def program(session: Session) -> list[Completion]:
        first = complete(session, PROMPT)
        Completion.model_validate(first.model_dump(), strict=True)
        return [first, complete(session, PROMPT + first.choices[0].text + " and so Lena Roth", stream=True)]

    [(session, (first, second))] = play(gateway, engine, program)
    by_id = {call.id: call for thread in session.threads for call in thread.calls}
    one, two = by_id[first.id.removeprefix("cmpl-")], by_id[second.id.removeprefix("cmpl-")]
    if one.completion.finish == "length":
        assert two.token_ids[: one.length] == one.token_ids + one.completion.token_ids
        assert [thread.reason for thread in session.threads] == ["new"]
    else:
        assert sorted(thread.reason for thread in session.threads) == ["edited", "new"]
    trained = [id for each in session.trajectories() for id in sampled(each)]
    assert sorted(trained) == sorted(one.completion.token_ids + two.completion.token_ids)


def test_tokens_continue_the_thread_exactly(gateway: Gateway, engine: TransformersEngine) -> None:
    ids = engine.tokenizer(PROMPT, add_special_tokens=False)["input_ids"]

    def program(session: Session) -> None:
        complete(session, ids)
        [thread] = session.threads
        [call] = thread.calls
        complete(session, [*call.token_ids, *call.completion.token_ids, *ids])

    [(session, _)] = play(gateway, engine, program)
    [thread] = session.threads
    assert len(thread.calls) == 2


def test_list_of_one_prompt_is_the_prompt(gateway: Gateway, engine: TransformersEngine) -> None:
    ids = engine.tokenizer(PROMPT, add_special_tokens=False)["input_ids"]

    def program(session: Session) -> None:
        for prompt in ([PROMPT], [ids], PROMPT):
            complete(session, prompt)

    [(session, _)] = play(gateway, engine, program)
    assert {call.token_ids for thread in session.threads for call in thread.calls} == {tuple(ids)}


def test_usage_of_a_stream_is_sent_last_if_it_is_requested(gateway: Gateway, engine: TransformersEngine) -> None:
    def program(session: Session) -> list[list[Completion]]:
        with client(session) as api:
            return [
                list(api.completions.create(model="any", prompt=PROMPT, stream=True, stream_options=options))
                for options in ({"include_usage": True}, {})
            ]

    [(_, (with_usage, without))] = play(gateway, engine, program)
    assert [(len(chunk.choices), chunk.usage is None) for chunk in with_usage] == [(1, True), (0, False)]
    assert [(len(chunk.choices), chunk.usage is None) for chunk in without] == [(1, True)]


@pytest.mark.parametrize(
    ("prompt", "options", "name"),
    [("", {}, "prompt"), (["a", "b"], {}, "prompt"), ([-1], {}, "prompt"), ("a", {"best_of": 2}, "best_of"),
     ("a", {"logprobs": 3}, "logprobs"), ("a", {"echo": True}, "echo")],
)  # fmt: skip
def test_unsupported_text_requests_are_refused(
    gateway: Gateway, prompt: Any, options: dict[str, Any], name: str
) -> None:
    session = gateway.open(seed=1, name="Q#0")
    with pytest.raises(openai.BadRequestError) as caught:
        complete(session, prompt, **options)
    assert (caught.value.param or "").startswith(name)
    session.close()
