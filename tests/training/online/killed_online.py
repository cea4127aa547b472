"""Run online trainings that SIGKILL themselves at given moments; print what resumption made of them.

A script of its own, started by test_resume_online.py: it forks a process per attempt from one that has imported
everything and computed nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from platform_sdk.config.online import OnlineSpec
from platform_sdk.config.sampling import EngineSpec
from platform_sdk.config.training import LoraSpec
from platform_sdk.record_files import AppendLog, read_jsonl
from platform_sdk.records import Rollout
from platform_sdk.sampling.sampler import RolloutSampler
from platform_sdk.tracking.updates import TIMES, append_update, read_updates
from platform_sdk.training import output
from platform_sdk.training.credit import Credit
from platform_sdk.training.online import preparation, recorder
from platform_sdk.training.online.loop import train_online
from tests.training.killed_runs import around_publish, attempt, before_step, die, half_written
from tests.training.online import lucky
from tests.training.online.stepwise import StepProgress


def before_rollout(number: int) -> None:
    """Kill when the ``number``-th rollout of this process is about to be written down."""
    original = RolloutSampler.attempt
    calls = iter(range(1, 10_000))

    def start(self: RolloutSampler, *args: Any) -> Any:
        rollout = yield from original(self, *args)
        if next(calls) == number:
            with self.path.open("a") as stream:
                stream.write('{"a record": "cut sh')
            die()
        return rollout

    RolloutSampler.attempt = start  # type: ignore[assignment]


def around_line(number: int, *, after: bool) -> None:
    """Kill just before, or just after, the ``number``-th update is written down; its checkpoint comes later."""
    original = append_update
    calls = iter(range(1, 10_000))

    def write(folder: Path, update: Any) -> None:
        now = next(calls) == number
        if now and not after:
            die()
        original(folder, update)
        if now:
            die()

    recorder.append_update = write  # type: ignore[attr-defined]


def before_prepared(number: int) -> None:
    """Kill while the ``number``-th group that a credit prepared is being written down."""
    calls = iter(range(1, 10_000))

    class DyingLog(AppendLog[preparation.PreparedGroup]):
        def append(self, record: preparation.PreparedGroup) -> None:
            if next(calls) == number:
                self._stream.write(record.model_dump_json().encode()[:40])
                self._stream.flush()
                die()
            super().append(record)

    preparation.AppendLog = DyingLog  # type: ignore[attr-defined,misc]


Sabotages = list[Callable[[], None]]
NEVER: Sabotages = []
# Four updates of six rollouts, with a checkpoint after every second; an update is two steps where iterations is 2.
SCENARIOS: dict[str, Sabotages] = {
    "undisturbed": NEVER,
    "in the sampling after a checkpoint": [lambda: before_rollout(15)],
    "in training, three times": [lambda: before_step(4), lambda: before_step(2), lambda: before_step(2)],
    "before an update is written down": [lambda: around_line(2, after=False)],
    "between an update's line and its checkpoint": [lambda: around_line(4, after=True)],
    "in the second checkpoint": [lambda: half_written("optimizer.pt", 2)],
    "before the result is written": [lambda: around_publish(output, 1, after=True)],
}
FEW = {name: SCENARIOS[name] for name in ("undisturbed", "in training, three times")}
PREPARED: dict[str, Sabotages] = {**FEW, "in preparing": [lambda: before_prepared(3), lambda: before_prepared(4)]}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Sabotages]]] = {
    "on policy, all": ({}, SCENARIOS),
    "iterations": ({"iterations": 2, "mini_batches": 2, "resamples": 1}, FEW),
    "lora": ({"lora": LoraSpec(rank=2, dropout=0.1)}, FEW),
    "prepared off policy": ({"off_policy": True}, PREPARED),
}


def main() -> None:
    model, base, change = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    settings, scenarios = CHANGES[change]
    spec = lucky.SPEC.model_copy(update={"questions": 2, "group": 3, **settings})
    credit = StepProgress() if change.startswith("prepared") else None
    results = {
        name: perform(model, spec, base / name / "online", sabotages, credit) for name, sabotages in scenarios.items()
    }
    print(json.dumps(results))


def perform(model: str, spec: OnlineSpec, folder: Path, sabotages: Sabotages, credit: Credit | None) -> dict[str, Any]:
    def work() -> None:
        task = lucky.task(credit=credit)
        train_online(spec, task, model, folder / "model", engine=EngineSpec(live=6), seed=5, folder=folder)

    killed = [os.WTERMSIG(attempt(sabotage, work)) for sabotage in sabotages]
    status = attempt(None, work)
    status = status or attempt(None, work)  # a finished run returns at once
    return {"killed": killed, "status": status, **(outcome(folder) if status == 0 else {})}


def outcome(folder: Path) -> dict[str, Any]:
    lines = [line.model_dump(exclude=TIMES) for line in read_updates(folder)]
    sha = hashlib.sha256()
    count = 0
    for path in sorted((folder / "rollouts").glob("*.jsonl")):
        for rollout in sorted(read_jsonl(path, Rollout), key=lambda r: (r.question.id, r.attempt)):
            sha.update(rollout.model_dump_json().encode())
            count += 1
    prepared = [
        record.model_dump_json(exclude={"seconds"})
        for path in sorted((folder / "rollouts" / "prepared").glob("*.jsonl"))
        for record in sorted(read_jsonl(path, preparation.PreparedGroup), key=lambda record: record.question)
    ]
    train = json.loads((folder / "train.json").read_text())
    return {
        "weights": train["weights"],
        "updates": lines,
        "rollouts": sha.hexdigest(),
        "count": count,
        "prepared": prepared,
        "credit": [path.read_text() for path in sorted((folder / "rollouts" / "credit").glob("*.jsonl"))],
        "left": sorted(path.name for path in folder.iterdir()),
        "stale": sorted(path.name for path in folder.glob("rollouts/*stale*")),
    }


if __name__ == "__main__":
    main()
