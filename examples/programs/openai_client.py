"""An agent with the ``openai`` client and calls of tools: search, calculate, answer.

The model writes the calls in its chat template's own form; the gateway returns them as OpenAI's ``tool_calls``.
"""

import json
import os
import re
import sys
import urllib.request
from typing import Any

from openai import OpenAI

TURNS = 6
SYSTEM = "Think , then use a tool or write the answer ."


def tool(name: str, argument: str, description: str) -> Any:
    fields = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": fields}}


TOOLS = [
    tool("search", "query", "Find passages about people, films, books and places"),
    tool("calculator", "expression", "The difference of two whole numbers, as 1990 - 1950"),
]


def search(query: str) -> str:
    body = json.dumps({"query": query, "k": 2}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["HOPFORGE_SEARCH_URL"], body, headers)
    with urllib.request.urlopen(request) as response:
        results = json.load(response)["results"]
    return "\n".join(f"{item['title']} : {item['text']}" for item in results) or "( nothing found )"


def calculator(expression: str) -> str:
    numbers = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", expression)
    return str(int(numbers[1]) - int(numbers[2])) if numbers else "Error : only NUMBER - NUMBER is known"


FUNCTIONS = {"search": search, "calculator": calculator}


def answer(question: str) -> tuple[str | None, str | None]:
    """Return the answer, if there is one, and the id of the completion that has it."""
    client = OpenAI()  # OPENAI_BASE_URL and OPENAI_API_KEY say where the policy is
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Question : {question}"},
    ]
    reply = None
    for _ in range(TURNS):
        reply = client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            if call.type == "function":
                result = FUNCTIONS[call.function.name](*json.loads(call.function.arguments).values())
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if message.tool_calls:
            continue
        if found := re.search(r"<answer>(.*?)</answer>", message.content or ""):
            return found[1].strip(), reply.id
        messages.append({"role": "user", "content": "Error : think , then write one tool or the answer ."})
    return None, reply.id if reply else None


if __name__ == "__main__":
    text, call_id = answer(json.load(sys.stdin)["question"])
    print(json.dumps({"answer": text, "main": call_id}))
