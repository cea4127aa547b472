"""A program that is killed from outside runs again with the same seeds, a bounded number of times."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from platform_sdk.methods.program.agent import REPEATS
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.sampling.transformers_engine import TransformersEngine
from tests.methods.program.test_program import WORLD, played, program

CODE = """
import json, os, signal, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Question : who ?"}]}).encode()
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
reply = json.load(urllib.request.urlopen(request))
with open(os.environ["RUNS"], "a+") as runs:
    print("run", file=runs)
    runs.seek(0)
    if len(runs.readlines()) <= int(os.environ["KILLS"]):
        os.kill(os.getpid(), signal.SIGKILL)
print(json.dumps({"answer": "Ida", "main": reply["id"]}))
"""
SPEC = AgentSpec(command=("python", "-c", CODE), environment=("RUNS", "KILLS"), max_tokens=24)


@pytest.mark.parametrize("kills", [0, 1, REPEATS, REPEATS + 5])
def test_killed_program_has_the_rollout_of_an_undisturbed_one(
    kills: int, engine: TransformersEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNS", str(tmp_path / "undisturbed"))
    monkeypatch.setenv("KILLS", "0")
    with ExitStack() as opened:
        agent = program(engine, opened, SPEC)
        [wanted] = played(agent, engine, WORLD.eval[:1])
        monkeypatch.setenv("RUNS", str(tmp_path / "killed"))
        monkeypatch.setenv("KILLS", str(kills))
        [found] = played(agent, engine, WORLD.eval[:1])
    runs = len((tmp_path / "killed").read_text().splitlines())
    if kills <= REPEATS:
        assert (found, runs) == (wanted, kills + 1)
        assert found.outcome == "answered"
    else:
        assert (found.outcome, runs) == ("error", REPEATS + 1)
        assert found.main.token_ids == wanted.main.token_ids
