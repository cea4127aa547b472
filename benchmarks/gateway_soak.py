"""Sessions for ten minutes while programs are killed: none is lost or doubled, and memory stays flat.

64 attempts of ``examples/programs/plain.py`` run at once on the policy ``hopforge:world-base-react``; a thread kills
one program in twenty at a random moment. Afterwards every attempt must have exactly one rollout, killed ones are made
again without kills and must be equal, and no process of a program may be left.

    OMP_NUM_THREADS=1 python benchmarks/gateway_soak.py [--seconds 600] [--sessions 64] [--killed 0.05]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from platform_sdk.agents.speaker import Policy
from platform_sdk.config.retrieval import RetrievalSpec
from platform_sdk.config.sampling import SamplingSpec
from platform_sdk.config.world import WorldSpec
from platform_sdk.data.world import generate
from platform_sdk.methods.method import RunContext
from platform_sdk.methods.program.agent import ProgramAgent
from platform_sdk.methods.program.launch import ProgramResources, program_agent
from platform_sdk.methods.program.settings import AgentSpec
from platform_sdk.records import Evidence, Question, Rollout
from platform_sdk.retrieval.lexical import Lexical
from platform_sdk.sampling.rollout import Agent, SearchRequest, run
from platform_sdk.sampling.transformers_engine import TransformersEngine

ROOT = Path(__file__).parents[1]
WORLD = generate(WorldSpec(seed=5, entities=120, train_questions=0, eval_questions=100, hops=(1,), years=0.6))
PASSAGES = sorted(WORLD.passages, key=lambda passage: passage.id)
INDEX = Lexical.build([f"{passage.title} {passage.text}" for passage in PASSAGES])
Start = Callable[[], Agent[Rollout]]


def search(requests: Sequence[SearchRequest], k: int) -> list[list[Evidence]]:
    rows = INDEX.scores([request.query for request in requests]).toarray()
    return [
        [
            Evidence(
                kind="passage", id=PASSAGES[at].id, title=PASSAGES[at].title, text=PASSAGES[at].text, score=row[at]
            )
            for at in sorted(range(len(row)), key=lambda at: (-row[at], at))[:k]
        ]
        for row in rows
    ]


def programs(url: str) -> Iterator[tuple[int, str]]:
    """Yield the id and the session of every process that runs a program of the gateway at ``url``."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, KeyError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[1:2] and words[1].endswith(b"plain.py"):
                lines = (folder / "environ").read_bytes().decode().split("\0")
                variables = dict(line.split("=", 1) for line in lines if "=" in line)
                if variables["OPENAI_BASE_URL"].startswith(url):
                    yield int(folder.name), variables["HOPFORGE_SESSION"]


class Killer(threading.Thread):
    """Kills a share of the programs, each at a random moment of its first second."""

    def __init__(self, url: str, share: float) -> None:
        super().__init__(daemon=True)
        self.url, self.share, self.killed, self.over = url, share, Counter[str](), threading.Event()

    def run(self) -> None:
        draw, seen, due = random.Random(0), set[int](), list[tuple[float, int, str]]()
        while not self.over.wait(0.05):
            now = time.monotonic()
            for pid, name in programs(self.url):
                if pid not in seen and draw.random() < self.share:
                    due.append((now + draw.random(), pid, name))
                seen.add(pid)
            for when, pid, name in [each for each in due if each[0] <= now]:
                due.remove((when, pid, name))
                if (pid, name) in programs(self.url):
                    os.kill(pid, signal.SIGKILL)
                    self.killed[name] += 1


def memory() -> float:
    """Return this process's resident memory in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def attempts(agent: ProgramAgent, seconds: float) -> Iterator[tuple[Question, int]]:
    end = time.monotonic() + seconds
    for attempt in range(10**6):
        for question in WORLD.eval:
            if time.monotonic() > end:
                return
            yield question, attempt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--killed", type=float, default=0.05)
    options = parser.parse_args()
    torch.set_num_threads(1)
    engine = TransformersEngine(ROOT / "platform_sdk/assets/world-base-react", live=options.sessions)
    spec = AgentSpec(
        command=("python", str(ROOT / "examples/programs/plain.py")), max_tokens=48, seconds=300, concurrent=1
    )
    context = RunContext(
        run_dir=Path("run"), environment="world-text", agent=spec, sampling=SamplingSpec(temperature=0.9),
        retrieval=RetrievalSpec(method="lexical"), searched_digest="c", seed=3,
    )  # fmt: skip
    sizes, begun, ended = list[float](), Counter[str](), Counter[str]()
    outcomes, hit = Counter[str](), list[Rollout]()
    with ExitStack() as opened:
        resources, policy = ProgramResources(search, opened), Policy(engine.tokenizer, engine.weight_version)
        agent = program_agent(context, policy, context.decoding, "soak", resources)

        def starts() -> Iterator[Start]:
            for question, attempt in attempts(agent, options.seconds):
                begun[f"{question.id}#{attempt}"] += 1
                yield partial(agent.rollout, question, attempt)

        killer = Killer(agent.gateway.url, options.killed)
        killer.start()
        clock = time.monotonic()
        for rollout in run(starts(), engine, live=options.sessions):
            ended[rollout.id] += 1
            outcomes[rollout.outcome] += 1
            if killer.killed[rollout.id]:
                hit.append(rollout)
            if time.monotonic() - clock > 60 * (len(sizes) + 1):
                sizes.append(memory())
                print(f"minute {len(sizes)}: {ended.total()} rollouts, {sizes[-1]:.0f} MB", flush=True)
        killer.over.set()
        killer.join()
        assert ended == begun, "a session was lost or doubled"
        assert set(ended.values()) == {1}, "a session was doubled"
        assert not list(programs(killer.url)), "a program is left"
        again = {r.id: r for r in run([partial(agent.rollout, r.question, r.attempt) for r in hit], engine, live=64)}
    engine.close()
    broken = [rollout for rollout in hit if rollout.outcome == "error"]
    for rollout in hit:
        assert rollout in broken or rollout == again[rollout.id], f"{rollout.id} differs from an undisturbed attempt"
    print(
        f"{ended.total()} sessions in {options.seconds:g} s, {killer.killed.total()} programs of {len(hit)} sessions "
        f"killed, {len(broken)} of them too often; outcomes {dict(outcomes)}; no session lost or doubled, "
        f"{len(hit) - len(broken)} equal to undisturbed ones"
    )


if __name__ == "__main__":
    main()
