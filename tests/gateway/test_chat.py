"""Chat completions over HTTP with the openai package, answered by a real engine."""

from __future__ import annotations

import re
import threading
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion

from platform_sdk.gateway.events import Bounds
from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from platform_sdk.records import Trajectory
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.gateway.serving import play

OPENING = [{"role": "system", "content": "Answer ."}, {"role": "user", "content": "Who directed Amberfall ?"}]


def client(session: Session) -> openai.OpenAI:
    return openai.OpenAI(base_url=session.base_url, api_key=session.token, max_retries=0, timeout=60)


def ask(session: Session, messages: list[dict[str, Any]], **options: Any) -> ChatCompletion:
    with client(session) as api:
        return api.chat.completions.create(model="any", messages=messages, **options)  # type: ignore[call-overload, no-any-return]


def sampled(trajectory: Trajectory) -> list[int]:
    return [id for id, mask in zip(trajectory.token_ids, trajectory.agent_mask, strict=True) if mask]


def three_turns(session: Session) -> list[ChatCompletion]:
    messages, replies = list(OPENING), []
    for _ in range(3):
        replies.append(ask(session, messages))
        messages += [
            replies[-1].choices[0].message.model_dump(),
            {"role": "user", "content": "And who is the mother ?"},
        ]
    return replies


def test_conversation_is_one_trajectory_of_the_sampled_tokens(gateway: Gateway, engine: TransformersEngine) -> None:
    [(session, replies)] = play(gateway, engine, three_turns)
    for reply in replies:
        ChatCompletion.model_validate(reply.model_dump(), strict=True)
    [thread] = session.threads
    assert thread.reason == "new"
    [one] = session.trajectories()
    calls = thread.calls
    assert sampled(one) == [id for call in calls for id in call.completion.token_ids]
    assert [one.token_ids[: len(call.token_ids)] for call in calls] == [call.token_ids for call in calls]
    assert [turn.speaker for turn in one.turns] == ["environment", "agent"] * 3
    assert one.turns[2].text == "And who is the mother ?"
    for call in calls:
        values = one.logprobs[len(call.token_ids) : call.length]
        assert values == call.completion.logprobs
        assert engine.score([call.token_ids], [call.completion.token_ids])[0] == pytest.approx(values, abs=1e-3)
    assert replies[0].usage.prompt_tokens == len(calls[0].token_ids)


def test_repeated_sessions_get_equal_trajectories(gateway: Gateway, engine: TransformersEngine) -> None:
    def concurrent(session: Session) -> None:
        threads = [
            threading.Thread(target=ask, args=(session, [{"role": "user", "content": f"Who is {name} ?"}]))
            for name in ("Ida Roth", "Lena Roth", "Ida Roth")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    first, second = (play(gateway, engine, concurrent, three_turns) for _ in range(2))
    assert [s.trajectories() for s, _ in first] == [s.trajectories() for s, _ in second]
    assert len({tuple(sampled(one)) for one in first[0][0].trajectories()}) == 3, "equal prompts get other seeds"


def test_edited_history_begins_a_thread(gateway: Gateway, engine: TransformersEngine) -> None:
    def program(session: Session) -> None:
        first = ask(session, OPENING).choices[0].message.model_dump()
        more = {"role": "user", "content": "And the mother ?"}
        ask(session, [*OPENING, first, more])
        ask(session, [*OPENING, first, {"role": "user", "content": "And the father ?"}])
        ask(session, [OPENING[1], first, more])
        ask(session, [{"role": "user", "content": "Who is Ida Roth ?"}])

    [(session, _)] = play(gateway, engine, program)
    assert sorted(thread.reason for thread in session.threads) == ["branch", "edited", "new", "new"]
    all_sampled = [id for thread in session.threads for call in thread.calls for id in call.completion.token_ids]
    trained = [id for one in session.trajectories() for id in sampled(one)]
    assert sorted(trained) == sorted(all_sampled), "each sampled token is trained on once"


def test_main_thread_is_the_named_one_or_else_the_longest(gateway: Gateway, engine: TransformersEngine) -> None:
    def program(session: Session) -> str:
        id = ask(session, [{"role": "user", "content": "Who is Ida Roth ?"}]).id
        three_turns(session)
        return id

    [(session, id)] = play(gateway, engine, program)
    longest, other = session.trajectories()
    assert len(longest.token_ids) > len(other.token_ids)
    assert session.trajectories(main=id)[0].token_ids == other.token_ids
    assert [one.id for one in session.trajectories(main=id)] == ["agent", "agent/1"]


def test_searches_are_recorded_with_their_evidence(gateway: Gateway, engine: TransformersEngine) -> None:
    def program(session: Session) -> None:
        opening = httpx.post(session.search_url, json={"query": "Amberfall", "k": 2}).json()["results"]
        assert [item["text"] for item in opening] == ["Amberfall 0", "Amberfall 1"]
        reply = ask(session, OPENING).choices[0].message.model_dump()
        found = httpx.post(session.search_url, json={"query": "mother", "k": 1}).json()["results"]
        ask(session, [*OPENING, reply, {"role": "user", "content": found[0]["text"]}])

    [(session, _)] = play(gateway, engine, program)
    [one] = session.trajectories()
    assert [item.id for item in one.evidence] == ["Amberfall0", "Amberfall1", "mother0"]
    assert [turn.queries for turn in one.turns] == [("Amberfall",), ("mother",), (), ()]
    assert [item.id for item in one.turns[2].evidence] == ["mother0"]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"n": 2}, "n"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True, "top_logprobs": 3}, "top_logprobs"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"extra_body": {"min_p": 0.1}}, "min_p"),
        ({"stop": [""]}, "stop"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "tools"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": []}, "messages"),
        ({"stream_options": 5}, "stream_options"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"extra_body": {"stream": "false"}}, "stream"),
        ({"logprobs": 3}, "logprobs"),
    ],
)
def test_unsupported_parameters_are_refused_by_name(gateway: Gateway, options: dict[str, Any], name: str) -> None:
    session = gateway.open(seed=1, name="Q#0")
    with pytest.raises(openai.BadRequestError, match=re.escape(name)) as caught:
        ask(session, **({"messages": OPENING} | options))
    assert (caught.value.param or "").startswith(name)
    session.close()


def test_parameters_without_effect_are_accepted(gateway: Gateway, engine: TransformersEngine) -> None:
    def program(session: Session) -> ChatCompletion:
        return ask(
            session, OPENING, n=1, frequency_penalty=0, presence_penalty=0.0, logit_bias={}, user="u", store=False,
            response_format={"type": "text"}, parallel_tool_calls=True, logprobs=True,
        )  # fmt: skip

    [(session, reply)] = play(gateway, engine, program)
    [call] = session.threads[0].calls
    assert [each.logprob for each in reply.choices[0].logprobs.content] == list(call.completion.logprobs)
    assert session.notes == ()


def test_sampling_parameters_of_the_program_are_overridden_and_noted_once(
    gateway: Gateway, engine: TransformersEngine
) -> None:
    def program(session: Session) -> None:
        for _ in range(2):
            assert ask(session, OPENING, temperature=0.2, top_p=1, max_tokens=3).usage.completion_tokens > 3

    [(session, _)] = play(gateway, engine, program)
    assert session.notes == (
        "temperature: the program sent 0.2; the recipe's 3.0 was used",
        "max_tokens: the program sent 3; the recipe's 12 was used",
    )


def test_stop_strings_end_the_reply_and_stay_in_the_tokens(gateway: Gateway, engine: TransformersEngine) -> None:
    [(_, whole)] = play(gateway, engine, lambda session: ask(session, OPENING).choices[0].message.content)
    letter = whole.strip()[0]  # some reply has it, whatever the seed

    def stopped(session: Session) -> list[str]:
        return [str(ask(session, OPENING, stop=[letter, "never"]).choices[0].message.content) for _ in range(8)]

    [(session, contents)] = play(gateway, engine, stopped)
    calls = [call for thread in session.threads for call in thread.calls]
    assert any(letter in call.text for call in calls)
    assert sorted(contents) == sorted(call.text.partition(letter)[0] for call in calls)


def test_unknown_and_dead_tokens_get_401(gateway: Gateway) -> None:
    session = gateway.open(seed=1, name="Q#0")
    with client(session) as api:
        assert [model.id for model in api.models.list()] == ["policy"]
        assert api.models.retrieve("policy").id == "policy"
        session.close()
        with pytest.raises(openai.AuthenticationError):
            api.models.list()
    with pytest.raises(openai.AuthenticationError):
        ask(session, OPENING)
    assert httpx.post(f"{gateway.url}/s/unknown/search", json={"query": "x"}).status_code == 401


def test_unknown_endpoint_is_named_without_the_token(gateway: Gateway) -> None:
    session = gateway.open(seed=1, name="Q#0")
    with client(session) as api, pytest.raises(openai.NotFoundError, match="POST /v1/embeddings is not") as caught:
        api.embeddings.create(model="any", input="x")
    assert session.token not in caught.value.message
    session.close()


def test_closing_a_session_answers_its_waiting_requests(gateway: Gateway) -> None:
    session = gateway.open(seed=1, name="Q#0")
    threading.Timer(0.3, session.close).start()
    with pytest.raises(openai.InternalServerError, match="ended"):
        ask(session, OPENING)
    assert session.trajectories() == ()


def test_bounds_of_a_session_refuse_further_calls(gateway: Gateway, engine: TransformersEngine) -> None:
    def program(session: Session) -> None:
        ask(session, OPENING)
        ask(session, OPENING)
        with pytest.raises(openai.PermissionDeniedError, match="bound of 2 calls"):
            ask(session, OPENING)
        large = httpx.post(f"{session.base_url}/chat/completions", content=b" " * 5000)
        assert large.status_code == 413
        chunked = httpx.post(f"{session.base_url}/chat/completions", content=(b" " * 1000 for _ in range(5)))
        assert chunked.status_code == 413

    [(session, _)] = play(gateway, engine, program, bounds=Bounds(calls=2, request_bytes=4096))
    assert session.limit == "calls"
    assert sum(len(thread.calls) for thread in session.threads) == 2


def test_requests_beyond_the_concurrent_ones_are_refused(gateway: Gateway) -> None:
    session = gateway.open(seed=1, name="Q#0", bounds=Bounds(concurrent=1))
    waiting = threading.Thread(target=lambda: httpx.post(f"{session.base_url}/chat/completions", json=body))
    body = {"model": "any", "messages": OPENING}
    waiting.start()
    while session.inbox.take() is None:
        pass
    with pytest.raises(openai.RateLimitError, match="at most 1"):
        ask(session, OPENING)
    session.close()
    waiting.join()


def test_prompt_without_room_is_refused_and_asks_for_no_completion(gateway: Gateway) -> None:
    session = gateway.open(seed=1, name="Q#0")
    with pytest.raises(openai.BadRequestError, match="takes fewer than") as caught:
        ask(session, [{"role": "user", "content": "Roth " * 2000}])
    assert caught.value.code == "context_length_exceeded"
    assert session.inbox.take() is None
    session.close()
