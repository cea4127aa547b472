"""Every engine behind the gateway: a vLLM server is asked by token ids, and the session has its tokens."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import openai

from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from platform_sdk.sampling.openai_engine import OpenAIEngine
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.gateway.completions_server import completions_server
from tests.gateway.conftest import WORLD
from tests.gateway.serving import play


def program(session: Session) -> None:
    """Ask twice in one conversation, once more with a stop string, and for plain text."""
    with openai.OpenAI(base_url=session.base_url, api_key=session.token, max_retries=0, timeout=120) as api:
        messages: list[Any] = [{"role": "user", "content": "Question : who directed Amberfall ?"}]
        for stop in (None, [" a"]):
            reply = api.chat.completions.create(model="policy", messages=messages, stop=stop).choices[0].message
            messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": "Sure ?"}]
        api.completions.create(model="policy", prompt="Question : who")
        api.responses.create(model="policy", input="Question : where ?")


def test_sessions_with_a_vllm_server_have_the_tokens_of_the_engine_in_process(
    engine: TransformersEngine, gateway: Gateway
) -> None:
    in_process = [session.trajectories() for session, _ in play(gateway, engine, program, program)]
    with completions_server(engine) as (url, bodies), closing(OpenAIEngine(url, WORLD)) as server:
        assert server.weight_version == engine.weight_version
        checked = len(bodies)
        served = [session.trajectories() for session, _ in play(gateway, server, program, program)]
    assert served == in_process
    prompts = {tuple(body["prompt"]) for body in bodies[checked:]}
    assert len(bodies) - checked == 8
    for trajectory in served[0]:
        first = trajectory.agent_mask.index(1)
        assert trajectory.token_ids[:first] in prompts, "prompts are sent as token ids"
