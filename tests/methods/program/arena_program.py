"""ARENA's generator as a program over the OpenAI protocol: one response from the question's passages."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any

from platform_sdk.methods.arena import prompts
from platform_sdk.methods.arena.grammar import parse
from platform_sdk.methods.arena.rewards import rewards
from platform_sdk.methods.arena.settings import AgentSpec
from platform_sdk.records import Passage, Rollout

SPEC = AgentSpec(prompts="compact", max_tokens=48)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    passages = [Passage.model_validate(passage) for passage in question["passages"]]
    messages = [
        {"role": "system", "content": prompts.instruction("compact", "three_part", passages=True)},
        {"role": "user", "content": prompts.opening(question["question"], passages, "compact")},
    ]
    body = {"model": "policy", "messages": messages, "metadata": {"hopforge_turn": "response"}}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
        reply = json.load(response)
    return {"answer": parse(reply["choices"][0]["message"]["content"], "three_part").answer, "main": reply["id"]}


def reward(rollout: Rollout) -> float:
    """Return ARENA's reward of a response, as a recipe's own reward."""
    return rewards(rollout, SPEC)["reward"]
