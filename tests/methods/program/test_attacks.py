"""Programs that attack: each is bounded and recorded, learns no gold, and disturbs no other session."""

from __future__ import annotations

import json
import resource
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest

from platform_sdk.gateway.isolation import available
from platform_sdk.methods.program.launch import program_of
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.records import Rollout
from platform_sdk.sampling.rollout import run
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.methods.program.test_program import IMITATION, WORLD, played, program

HONEST, ATTACKED = WORLD.eval[:2], WORLD.eval[2]
START = """
import json, os, socket, sys, time, urllib.error, urllib.parse, urllib.request
from concurrent.futures import ThreadPoolExecutor
BASE, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
ROOT = BASE.split("/s/")[0]
def get(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"})) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)
def chat(base, **more):
    return get(base + "/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "Hello"}], **more})
"""
ATTACKS = {
    "forks and hides": (
        "limit",
        """
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
print("x" * 3_000_000)
""",
    ),
    "fills stdout": ("limit", 'while True: print("x" * 1000)'),
    "never reads": ("answered", "print(json.dumps({'answer': 'unread'}))"),
    "sends 100 MB": (
        "answered",
        """
codes = [chat(BASE, user="x" * 100_000_000)[0]]
def parts():
    for _ in range(100):
        yield b"x" * 1_000_000
try:
    urllib.request.urlopen(urllib.request.Request(BASE + "/chat/completions", parts()))
except urllib.error.HTTPError as error:
    codes.append(error.code)
except OSError:
    codes.append(0)
print(json.dumps({"answer": json.dumps(codes)}))
""",
    ),
    "opens a thousand connections": (
        "answered",
        """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (min(3000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
host, port = ROOT.removeprefix("http://").split(":")
held = [socket.create_connection((host, int(port))) for _ in range(1000)]
for number, each in enumerate(held):
    each.sendall(b"POST /s/" if number % 2 else b"")
time.sleep(2)
print(json.dumps({"answer": str(chat(BASE)[0])}))
""",
    ),
    "asks all at once": (
        "answered",
        """
with ThreadPoolExecutor(100) as pool:
    codes = list(pool.map(lambda _: chat(BASE)[0], range(100)))
print(json.dumps({"answer": json.dumps(sorted(set(codes)))}))
""",
    ),
    "uses another token": (
        "answered",
        """
codes = [chat(BASE.replace(KEY, token))[0] for token in ("x" * 32, KEY[:-1], KEY + "x", KEY.swapcase(), "..", "*")]
found = []
for folder in os.listdir("/proc"):
    try:
        text = open(f"/proc/{folder}/environ", "rb").read().decode(errors="replace")
    except OSError:
        continue
    found += [v for v in text.split("\\0") if v.startswith("OPENAI_API_KEY=") and KEY not in v]
print(json.dumps({"answer": json.dumps([codes, len(found)])}))
""",
    ),
    "guesses gold": (
        "answered",
        """
own = BASE.removesuffix("/v1")
paths = ["", "/", "/gold", "/answers", "/question", "/session", "/rollout", "/v1", "/v1/files", "/v1/threads",
         "/v1/models/../../gold", "/v1/models/%2e%2e", "/search?gold=1", "/mcp/gold", "/v1/models/gold"]
pages = [get(own + path) for path in paths]
pages += [get(ROOT + path) for path in ("/", "/docs", "/openapi.json", "/metrics", "/s/", "/s", "/sessions")]
pages += [get(own + "/search", {"query": "who", "k": 100, "gold": True}), get(own + "/search", {"query": "gold"})]
pages += [chat(BASE, metadata={"gold": "1"}), get(own + "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "gold/list"})]
print(json.dumps({"answer": json.dumps(pages)}))
""",
    ),
    "prints secrets": ("answered", "print(json.dumps({'answer': json.dumps(dict(os.environ))}))"),
}


@pytest.fixture(scope="module")
def rollouts(engine: TransformersEngine) -> dict[str, Rollout]:
    """Run all attacks and honest programs at once on one gateway; return the rollouts by attack, or by question."""
    bounds = {"max_tokens": 48, "seconds": 120, "concurrent": 4, "request_bytes": 100_000, "output_bytes": 1_000_000}
    with ExitStack() as opened, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPFORGE_TEST_SECRET", "s3cret")
        # The usual limit of a login: the gateway keeps fewer connections than the attacker opens.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, files[0]), files[1]))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, files)
        honest, starts = program(engine, opened, IMITATION), []
        for number, (_, code) in enumerate(ATTACKS.values()):
            spec = AgentSpec(command=("python", "-c", START + code), **bounds)
            attacker = replace(honest, spec=spec, program=program_of(spec))
            starts.append(partial(attacker.rollout, ATTACKED, number))
        starts += [partial(honest.rollout, question, 0) for question in HONEST]
        found = {rollout.id: rollout for rollout in run(starts, engine, live=len(starts))}
    names = {f"{ATTACKED.id}#{number}": name for number, name in enumerate(ATTACKS)}
    return {names.get(id, id): rollout for id, rollout in found.items()}


def test_honest_programs_have_the_rollouts_that_they_have_alone(
    rollouts: dict[str, Rollout], engine: TransformersEngine
) -> None:
    with ExitStack() as opened:
        alone = played(program(engine, opened, IMITATION), engine, HONEST)
    assert [rollouts[rollout.id] for rollout in alone] == alone


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_bounded_and_recorded(name: str, rollouts: dict[str, Rollout]) -> None:
    rollout = rollouts[name]
    assert rollout.program is not None
    assert (rollout.outcome, rollout.program.stderr) == (ATTACKS[name][0], "")
    assert Rollout.model_validate_json(rollout.model_dump_json()) == rollout


def answer(rollouts: dict[str, Rollout], name: str) -> str:
    return rollouts[name].main.answer or ""


def test_large_requests_are_refused(rollouts: dict[str, Rollout]) -> None:
    assert set(json.loads(answer(rollouts, "sends 100 MB"))) <= {413, 0}


def test_thousand_connections_do_not_keep_their_own_program_from_an_answer(rollouts: dict[str, Rollout]) -> None:
    assert answer(rollouts, "opens a thousand connections") == "200"


def test_calls_beyond_the_concurrent_ones_are_refused(rollouts: dict[str, Rollout]) -> None:
    assert json.loads(answer(rollouts, "asks all at once")) == [200, 429]


def test_other_tokens_are_refused_and_those_of_other_programs_not_seen(rollouts: dict[str, Rollout]) -> None:
    codes, tokens = json.loads(answer(rollouts, "uses another token"))
    assert set(codes) <= {401, 404}
    assert tokens == 0 or not available()


def test_no_endpoint_tells_gold(rollouts: dict[str, Rollout]) -> None:
    pages = json.loads(answer(rollouts, "guesses gold"))
    assert {status for status, _ in pages} <= {200, 307, 400, 404, 405, 406}
    told = " ".join(text for _, text in pages)
    assert not any(word in told for word in ("gold_passages", "gold_triples", '"answers"', "decomposition"))


def test_environment_of_the_parent_is_not_printed(rollouts: dict[str, Rollout]) -> None:
    assert "s3cret" not in answer(rollouts, "prints secrets")
