"""Mujica as a program over the OpenAI protocol: a planner, and workers that search and read side by side.

Wording and grammar are the built-in agent's (``platform_sdk.methods.mygo``); the loop is written anew. Every call has
the name of its turn, as the built-in agent's turns have, so both draw the same random numbers.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from platform_sdk.agents import planner_messages as messages
from platform_sdk.agents.planner_worker import CUT_OFF, Answer, Ask, Malformed, SubQuestion
from platform_sdk.methods.mygo import prompts
from platform_sdk.methods.mygo.agent import MujicaLanguage
from platform_sdk.methods.mygo.grammar import parse_planner, parse_worker
from platform_sdk.records import Evidence

ITERATIONS, TOP_K, QUESTIONS = 7, 3, 5
Message = dict[str, str]


def post(url: str, body: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response)


def search(query: str) -> list[Evidence]:
    found = post(os.environ["HOPFORGE_SEARCH_URL"], {"query": query, "k": TOP_K})["results"]
    return [Evidence.model_validate(item) for item in found]


@dataclass
class Conversation:
    """Messages of one role with the policy."""

    messages: list[Message]
    call: str = ""
    text: str = ""
    cut: bool = False

    def reply(self, turn: str | int) -> bool:
        """Get the policy's next turn; return False if the context is full."""
        body = {"model": "policy", "messages": self.messages, "metadata": {"hopforge_turn": turn}}
        try:
            reply = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
        except urllib.error.HTTPError as error:
            if error.code == 400 and json.load(error)["error"]["code"] == "context_length_exceeded":
                return False
            raise
        [choice] = reply["choices"]
        self.call, self.text, self.cut = reply["id"], choice["message"]["content"], choice["finish_reason"] == "length"
        self.messages.append({"role": "assistant", "content": self.text})
        return True

    def tell(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})


def opened(role: str, opening: str, limit: int) -> Conversation:
    system = prompts.role_prompt("compact", role, "text", max_questions=limit).system(demonstrate=False)
    return Conversation([{"role": "system", "content": system}, {"role": "user", "content": opening}])


def work(turn: str, asked: SubQuestion) -> str:
    """Search, read and report one sentence."""
    evidence = search(asked.text)
    worker = opened("worker", messages.worker_opening(asked.text, evidence, "text"), 1)
    if not worker.reply(turn):
        return MujicaLanguage.too_long
    reading = Malformed(CUT_OFF) if worker.cut else parse_worker(worker.text, "text", materials=len(evidence))
    return MujicaLanguage.unreadable if isinstance(reading, Malformed) else reading.sentence


def read(planner: Conversation) -> Ask | Answer | Malformed:
    if planner.cut:
        return Malformed(CUT_OFF)
    return parse_planner(planner.text, "text", candidates=0, max_questions=QUESTIONS)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    planner = opened("planner", messages.planner_opening(question["question"], (), "text"), QUESTIONS)
    with ThreadPoolExecutor() as pool:
        for iteration in range(ITERATIONS):
            if not planner.reply(iteration):
                break
            action = read(planner)
            if isinstance(action, Answer):
                return {"answer": action.text, "main": planner.call}
            if isinstance(action, Malformed):
                planner.tell(messages.error_observation(action.reason))
                continue
            turns = [f"{iteration}.{number}" for number in range(len(action.sub_questions))]
            planner.tell(messages.observation(list(pool.map(work, turns, action.sub_questions))))
    return {"answer": None, "main": planner.call}
