"""A module to launch: processes that sample a phase of MyGO together, one of which may be told to die in the middle."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platform_sdk.config.sampling import EngineSpec
from platform_sdk.config.selection import SelectionSpec
from platform_sdk.methods.mygo.sampling import sample_warmup
from platform_sdk.methods.mygo.settings import WarmupSpec
from platform_sdk.methods.selection import sample_iteration
from platform_sdk.processes.entry import entry
from platform_sdk.processes.shares import process_group
from platform_sdk.record_files import digest_records
from platform_sdk.records import Question, Rollout, Trajectory
from platform_sdk.sampling.engine import SamplingParams
from platform_sdk.sampling.rollout import Agent, Generate
from platform_sdk.sampling.sampler import open_sampler
from platform_sdk.sampling.seeds import seed_of

QUESTIONS = [Question(id=f"q{i:02d}", text="w3 w4", answers=("x",), dataset="world") for i in range(23)]
SELECTION = SelectionSpec(questions=23, accepted=2, attempts=6, initial_threshold=0.3)
WARMUP = WarmupSpec(trajectories=9, attempts=3)
ENGINE = EngineSpec(live=4)


@dataclass
class Talker:
    """Says five words; the reward is how many of them are even."""

    weights: str
    dies_at: int | None
    corpus: str = "c"
    made: list[str] = field(default_factory=list)

    def rollout(self, question: Question, attempt: int) -> Agent[Rollout]:
        params = SamplingParams(max_tokens=5, seed=seed_of(question.id, attempt))
        heard = yield Generate((5, 6), params, f"{question.id}#{attempt}")
        if len(self.made) == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.made.append(f"{question.id}#{attempt}")
        said = heard.token_ids
        planner = Trajectory(
            id="agent", role="agent", token_ids=(5, 6, *said), agent_mask=(0, 0) + (1,) * len(said),
            logprobs=(0.0, 0.0, *heard.logprobs), turns=(),
        )  # fmt: skip
        share = sum(token % 2 == 0 for token in said) / len(said)
        return Rollout(
            question=question, attempt=attempt, seed=0, main=planner, outcome="answered",
            rewards={"f1": share, "em": float(share > 0.7)}, weights=self.weights, corpus=self.corpus,
        )  # fmt: skip


def sample(
    folder: Path, what: str, model: str, dies_at: int | None = None, engine: EngineSpec = ENGINE
) -> dict[str, Any]:
    """Sample a phase; what it came to, which only the first process lives to tell."""
    talkers: list[Talker] = []

    def make_agent(tokenizer: object, weights: str) -> Talker:
        talkers.append(Talker(weights, dies_at))
        return talkers[-1]

    try:
        with open_sampler(folder / "rollouts.jsonl", engine, model, make_agent) as phase:
            if what == "warmup":
                sample_warmup(phase, QUESTIONS, WARMUP)
                threshold = None
            else:
                threshold = sample_iteration(phase, QUESTIONS, 0.3, SELECTION)
            rollouts = phase.ordered(QUESTIONS)
    finally:
        made = [name for talker in talkers for name in talker.made]
        (folder / f"made.{os.environ.get('RANK', '0')}.json").write_text(json.dumps(made))
    return {"threshold": threshold, "count": len(rollouts), "digest": digest_records(rollouts)}


def act(spec_file: Path) -> None:
    spec = json.loads(spec_file.read_text())
    dies_at = spec["dies_at"] if os.environ["RANK"] == spec["dies"] else None
    with process_group():
        engine = EngineSpec.model_validate(spec["engine"]) if "engine" in spec else ENGINE
        outcome = sample(spec_file.parent, spec["what"], spec["model"], dies_at, engine)
    assert os.environ["RANK"] == "0"
    (spec_file.parent / "outcome.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    sys.exit(entry(act, "tests.methods.mygo.shared"))
