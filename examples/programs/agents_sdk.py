"""An agent of the OpenAI Agents SDK, as its documentation writes one: instructions and two function tools."""

import asyncio
import json
import os
import re
import sys

import httpx
from agents import Agent, MaxTurnsExceeded, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)  # traces would go to OpenAI


@function_tool
async def search(query: str) -> str:
    """Find passages about people, films, books and places."""
    async with httpx.AsyncClient() as client:
        found = await client.post(os.environ["HOPFORGE_SEARCH_URL"], json={"query": query, "k": 2})
    results = found.raise_for_status().json()["results"]
    return "\n".join(f"{item['title']} : {item['text']}" for item in results) or "( nothing found )"


@function_tool
def calculator(expression: str) -> str:
    """Return the difference of two whole numbers, as 1990 - 1950."""
    numbers = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", expression)
    return str(int(numbers[1]) - int(numbers[2])) if numbers else "Error : only NUMBER - NUMBER is known"


async def answer(question: str) -> str | None:
    agent = Agent(
        name="reader",
        instructions="Think , then use a tool or write the answer .",
        tools=[search, calculator],
        model=OpenAIChatCompletionsModel("policy", AsyncOpenAI()),
    )
    try:
        result = await Runner.run(agent, f"Question : {question}", max_turns=6)
    except MaxTurnsExceeded:
        return None
    found = re.search(r"<answer>(.*?)</answer>", str(result.final_output))
    return found[1].strip() if found else None


if __name__ == "__main__":
    print(json.dumps({"answer": asyncio.run(answer(json.load(sys.stdin)["question"]))}))
