"""A teacher model that says what a test writes for it, as an engine and behind an OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from platform_sdk.records import Passage, Question
from platform_sdk.sampling.engine import Request
from tests.graph.scripted_model import byte_tokenizer
from tests.http_server import HttpRequest, HttpResponse, HttpServer
from tests.methods.mygo.scripted import Scripted

TOKENIZER = byte_tokenizer()
QUESTION = Question(
    id="q", text="Who is the mother of the director of Night Lake?", answers=("Anna Holm",), dataset="hotpotqa",
    gold_passages=("Night Lake", "Per Lind"),
    context=(
        Passage(id="q/0", title="Oslo", text="Oslo is a city."),
        Passage(id="q/1", title="Night Lake", text="Night Lake is a film by Per Lind."),
        Passage(id="q/2", title="Per Lind", text="Per Lind is a son of Anna Holm."),
    ),
)  # fmt: skip

PLANNER = (
    "<think>I need to find out:\n1. the director of Night Lake\n2. the mother of that director\nFirst the director."
    '</think><action>Search("Who directed Night Lake?")</action>',
    '<think>Per Lind directed it. Now the mother.</think><action>Search("Who is the mother of Per Lind?")</action>',
    "<think>The mother is Anna Holm.</think><answer>Anna Holm</answer>",
)


def good(role: str, turn: int, prompt: str) -> str:
    """Return the words of a teacher that does everything right."""
    if role == "planner":
        return PLANNER[turn]
    asked = prompt.rpartition("Question : ")[2]
    if role == "thinker":
        return "<think>It is asked for, and the evidence says it.</think>"
    return "The mother of Per Lind is Anna Holm." if "mother" in asked else "Night Lake was directed by Per Lind."


def answer(prompt: str, script: Callable[[str, int, str], str]) -> str:
    """Return what the script says to a prompt."""
    if "You explain how" in prompt:
        return script("thinker", 0, prompt)
    if "You answer a simple question from evidence" in prompt:
        return script("answerer", 0, prompt)
    return script("planner", prompt.rpartition("Question : ")[2].count("[user]Obs:"), prompt)


class ScriptedEngine(Scripted):
    """A sampling engine of the teacher, which counts what it is asked; ``length``: no reply comes to its end."""

    weight_version = "teacher"

    def __init__(
        self,
        script: Callable[[str, int, str], str] = good,
        *,
        finish: Literal["stop", "length"] = "stop",
        max_model_len: int = 50_000,
        seed: int = 0,
    ) -> None:
        def policy(request: Request) -> list[int]:
            self.asked += 1
            ids = said(answer(TOKENIZER.decode(request.token_ids), self.script))
            return ids if finish == "stop" else ids[:-1]

        super().__init__(policy, seed, TOKENIZER, max_model_len)
        self.script, self.asked = script, 0


def said(text: str) -> list[int]:
    return [*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id]


@contextmanager
def server(script: Callable[[str, int, str], str], faults: int = 0) -> Iterator[tuple[str, list[int]]]:
    """Serve the script; the first ``faults`` requests are answered late, by an error of the server.

    Yields:
        The url, and the status of every answer so far.
    """
    statuses: list[int] = []

    def reply(request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            return 200, {"data": [{"id": "teacher", "max_model_len": 50_000}]}
        if len(statuses) < faults:
            statuses.append(503)
            return 503, {"error": "busy"}
        ids = said(answer(TOKENIZER.decode(request.json()["prompt"]), script))
        choice = {"finish_reason": "stop", "token_ids": ids, "logprobs": {"token_logprobs": [-0.5] * len(ids)}}
        statuses.append(200)
        return 200, {"choices": [choice]}

    with HttpServer(reply) as http:
        yield http.url, statuses
