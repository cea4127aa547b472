"""An agent in plain Python: it thinks, searches or calculates, and answers, over the OpenAI protocol.

It needs the standard library alone. The turns are those of hopforge's method react, so the shipped model
hopforge:world-base-react knows their form.
"""

import json
import os
import re
import sys
import urllib.request
from typing import Any

TURNS = 6
SYSTEM = "Think , then use a tool or write the answer ."
ACTION = re.compile(r"<think>.*?</think>\s*<(search|calculator|answer)>(.*?)</\1>", re.DOTALL)


def post(url: str, body: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def complete(messages: list[dict[str, str]]) -> tuple[str, str]:
    reply = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"model": "policy", "messages": messages})
    return reply["id"], reply["choices"][0]["message"]["content"]


def search(query: str) -> list[str]:
    found = post(os.environ["HOPFORGE_SEARCH_URL"], {"query": query, "k": 2})["results"]
    return [f"{item['title']} : {item['text']}" for item in found]


def calculate(expression: str) -> list[str]:
    numbers = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", expression)
    return [str(int(numbers[1]) - int(numbers[2]))] if numbers else ["Error : only NUMBER - NUMBER is known"]


def answer(question: str) -> tuple[str | None, str | None]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Question : {question}"}]
    call = None
    for _ in range(TURNS):
        call, text = complete(messages)
        messages.append({"role": "assistant", "content": text})
        action = ACTION.fullmatch(text.strip())
        if action is None:
            messages.append({"role": "user", "content": "Error : think , then write one tool or the answer ."})
            continue
        name, content = action[1], action[2].strip()
        if name == "answer":
            return content, call
        lines = search(content) if name == "search" else calculate(content)
        shown = "\n".join(["<result>", *(lines or ["( nothing found )"]), "</result>"])
        messages.append({"role": "user", "content": shown})
    return None, call


if __name__ == "__main__":
    text, call = answer(json.load(sys.stdin)["question"])
    print(json.dumps({"answer": text, "main": call}))
