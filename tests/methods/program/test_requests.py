"""Invalid requests of a program: they are refused, and the run continues."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.sampling.sampler import RolloutSampler
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.methods.program.playing import WORLD, program

PROGRAM = """
import json, os, urllib.error, urllib.request

def post(url, body):
    try:
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()))
    except urllib.error.HTTPError as error:
        print(error.code)

post(os.environ["HOPFORGE_SEARCH_URL"], {"query": %s, "k": 1})
post(os.environ["OPENAI_BASE_URL"] + "/completions", {"prompt": %s})
"""


@pytest.mark.parametrize(
    ("query", "prompt"),
    [('"Who \\ud83d"', '"Who ?"'), ('"a" * 40_000', '"Who ?"'), ('"Who"', '"  "')],
    ids=["half of a character", "a query too long", "a prompt without tokens"],
)
def test_refused_request_does_not_end_the_run(
    query: str, prompt: str, engine: TransformersEngine, tmp_path: Path
) -> None:
    script = tmp_path / "agent.py"
    script.write_text(PROGRAM % (query, prompt))
    with ExitStack() as opened:
        agent = program(engine, opened, AgentSpec(command=("python", str(script))))
        with RolloutSampler(tmp_path / "rollouts.jsonl", agent, engine, 4) as phase:
            phase.once(WORLD.eval[:1], 0, "x")
            [rollout] = phase.ordered(WORLD.eval[:1])
    assert rollout.main.answer == "400"
