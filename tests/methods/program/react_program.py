"""ReAct's agent as a program over the OpenAI protocol: what the method react does, from the other side."""

from __future__ import annotations

import os
from typing import Any

import httpx

from platform_sdk.agents.planner_worker import Answer, Malformed
from platform_sdk.methods.react import prompts
from platform_sdk.methods.react.grammar import parse
from platform_sdk.records import Evidence, ToolResult
from platform_sdk.tools.base import Tool
from platform_sdk.tools.calculator import Calculator
from platform_sdk.tools.search import SearchTool

TURNS, TOP_K = 6, 2


def post(url: str, body: dict[str, Any]) -> Any:
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    response = httpx.post(url, json=body, headers=headers, timeout=120)
    response.raise_for_status()
    return response.json()


def answer(question: dict[str, Any]) -> dict[str, Any]:
    known: dict[str, Tool] = {tool.name: tool for tool in (SearchTool(k=TOP_K), Calculator())}
    messages = [
        {"role": "system", "content": prompts.instruction("compact", TURNS, known.values())},
        {"role": "user", "content": prompts.opening(question["question"])},
    ]
    for turn in range(TURNS):
        reply = post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", {"model": "policy", "messages": messages})
        text = reply["choices"][0]["message"]["content"]
        messages.append({"role": "assistant", "content": text})
        action = parse(text, known)
        if isinstance(action, Answer):
            return {"answer": action.text, "main": reply["id"]}
        if turn + 1 == TURNS:
            break
        if isinstance(action, Malformed):
            told = prompts.error("compact", action.reason)
        elif action.tool == "search":
            body = {"query": action.arguments["query"], "k": TOP_K}
            found = post(os.environ["HOPFORGE_SEARCH_URL"], body)["results"]
            told = prompts.result(
                "compact", ToolResult(evidence=tuple(Evidence.model_validate(item) for item in found))
            )
        else:
            told = prompts.result("compact", known[action.tool].call([action])[0])
        messages.append({"role": "user", "content": told})
    return {"answer": None}
