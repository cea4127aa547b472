"""Run trainings that SIGKILL themselves at given moments; print the digests of what resumption made of them.

A script of its own, started by test_resume.py: it forks a process per attempt from one that has imported
everything and computed nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from platform_sdk.config.training import LoraSpec, TrainSpec
from platform_sdk.training import output, run, trainer
from platform_sdk.training.examples import Example


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before_step(number: int) -> None:
    """Kill when the process comes to its ``number``-th step."""
    original = trainer.PolicyTrainer.training_step
    calls = iter(range(1, 10_000))

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            die()
        return original(self, *args, **kwargs)

    trainer.PolicyTrainer.training_step = step  # type: ignore[method-assign]


def half_written(suffix: str, occurrence: int) -> None:
    """Kill when half of the bytes of the n-th file with this name are written."""
    original = torch.save
    calls = iter(range(1, 10_000))

    def save(content: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        original(content, file, *args, **kwargs)
        if str(file).endswith(suffix) and next(calls) == occurrence:
            os.truncate(file, os.path.getsize(file) // 2)
            die()

    torch.save = save


def around_publish(module: Any, occurrence: int, *, after: bool) -> None:
    """Kill just before, or just after, the n-th directory gets its name."""
    original = module.publish
    calls = iter(range(1, 10_000))

    def publish(written: Path, final: Path) -> None:
        now = next(calls) == occurrence
        if now and not after:
            die()
        original(written, final)
        if now:
            die()

    module.publish = publish


def damaged(*names: str, damage: Callable[[Path], None], count: int = 1) -> None:
    """Kill once there are two checkpoints, with ``names`` damaged in the newest ``count`` of them."""
    original = trainer.PolicyTrainer.training_step

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        folder = Path(self.args.output_dir)
        found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
        if len(found) == 2:
            for checkpoint in found[-count:]:
                for name in names:
                    damage(checkpoint / name)
            die()
        return original(self, *args, **kwargs)

    trainer.PolicyTrainer.training_step = step  # type: ignore[method-assign]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def edit_step(path: Path) -> None:
    path.write_text(path.read_text().replace('"global_step": 6', '"global_step": 4'))


NEVER: list[Callable[[], None]] = []
SCENARIOS: dict[str, list[Callable[[], None]]] = {
    "undisturbed": NEVER,
    "before the first checkpoint": [lambda: before_step(2)],
    "between checkpoints": [lambda: before_step(6)],
    "three times": [lambda: before_step(5), lambda: before_step(3), lambda: before_step(2)],
    "in the first checkpoint": [lambda: half_written("optimizer.pt", 1)],
    "in the second checkpoint": [lambda: half_written("optimizer.pt", 2)],
    "in the last file of a checkpoint": [lambda: half_written("rng_state.pth", 2)],
    "before a checkpoint has its name": [lambda: around_publish(trainer, 2, after=False)],
    "before the older checkpoint is gone": [lambda: around_publish(trainer, 2, after=True)],
    "before the model has its name": [lambda: around_publish(output, 1, after=False)],
    "before the checkpoints are gone": [lambda: around_publish(output, 1, after=True)],
    "weights flipped": [lambda: damaged("model.safetensors", damage=flip)],
    "optimiser flipped": [lambda: damaged("optimizer.pt", damage=flip)],
    "optimiser removed": [lambda: damaged("optimizer.pt", damage=Path.unlink)],
    "step edited": [lambda: damaged("trainer_state.json", damage=edit_step)],
    "digests halved": [lambda: damaged("digests.json", damage=halve)],
    "digests removed": [lambda: damaged("digests.json", damage=Path.unlink)],
    "both checkpoints halved": [lambda: damaged("model.safetensors", "rng_state.pth", damage=halve, count=2)],
}
SELECTIONS = {
    "full, all": tuple(SCENARIOS),
    "lora": ("undisturbed", "between checkpoints", "in the second checkpoint"),
}  # fmt: skip


def attempt(sabotage: Callable[[], None] | None, work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if sabotage is not None:
                sabotage()
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def main() -> None:
    model, base, selection = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    examples = [
        Example(*(tuple(v) if isinstance(v, list) else v for v in fields)) for fields in json.loads(sys.stdin.read())
    ]
    spec = TrainSpec(
        learning_rate=1e-2, minimum_learning_rate=1e-3, warmup_ratio=0.2, epochs=2, batch_size=6,
        micro_batch_tokens=40, checkpoint_steps=3, device="cpu",
        lora=LoraSpec(rank=2, dropout=0.1) if selection == "lora" else None,
    )  # fmt: skip
    results = {}
    for number, name in enumerate(SELECTIONS[selection]):
        sabotages = SCENARIOS[name]
        folder = base / str(number)

        def work(folder: Path = folder) -> None:
            run.train(spec, examples, model, folder / "model", seed=5, checkpoints=folder / "checkpoints")

        killed = [os.WTERMSIG(attempt(sabotage, work)) for sabotage in sabotages]
        status = attempt(None, work)
        status = status or attempt(None, work)  # a finished run returns at once
        result = json.loads((folder / "model" / output.RESULT).read_text()) if status == 0 else {}
        results[name] = {
            "killed": killed,
            "status": status,
            "weights": result.get("weights"),
            "losses": [entry["loss"] for entry in result.get("curve", [])],
            "left": sorted(path.name for path in folder.iterdir()),
        }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
