"""Cost of a run's records (manifest, seals, journals and log) with many rollouts, and the time of ``hopforge verify``.

    python -m benchmarks.audit RUN [--rollouts 100000] [--iterations 10] [--workdir DIR]

RUN is a finished run of a recipe on this machine. Its rollouts are repeated until there are as many as wanted, in a run
directory of this benchmark; its time per rollout is what the time of the records is compared with. Each iteration has a
step that samples and seals its rollouts, and a step that trains and seals a model. Writing these files is not counted,
since a run without records writes them too. The delivery to MLflow, which a process of its own does during a run, is
timed separately.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from unittest import mock

from platform_sdk.run_dir import PhaseDir
from platform_sdk.tracking import delivery, finish_run, manifest, start_run, step_run
from platform_sdk.tracking.log.chain import FILE_NAME as LOG
from platform_sdk.tracking.verify import verify_run
from platform_sdk.tracking.verify_files import FileCheck

MODEL_BYTES = 100_000_000
UPDATES = 100
"""Points of a training's curve."""


class Watch:
    """Seconds by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, kind: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + time.perf_counter() - began


def seconds_per_rollout(run: Path) -> tuple[float, int]:
    """Return the time of a finished run for each of its rollouts, evaluations included, and their number."""
    entries = manifest.read(run)
    began, ended = (datetime.fromisoformat(entries[place].time) for place in (0, -1))
    count = len(lines_of(run))
    return (ended - began).total_seconds() / count, count


def lines_of(run: Path) -> list[bytes]:
    """Return the records of all rollouts, without the header that each file begins with."""
    paths = [*run.glob("**/rollouts.jsonl"), *run.glob(f"*/{PhaseDir.update_rollouts}/*.jsonl")]
    return [line for path in sorted(paths) for line in path.read_bytes().splitlines(keepends=True)[1:]]


def record(run_dir: Path, lines: list[bytes], rollouts: int, iterations: int) -> dict[str, float]:
    """Write a run with its records; return the seconds of its parts: all, files, delivery."""
    watch, source = Watch(), itertools.cycle(lines)
    recipe = {"pipeline": "mygo", "name": "cost", "parameters": {"seed": 0}}
    deliver = delivery.deliver

    def timed(directory: Path) -> None:
        with watch("delivery"):
            deliver(directory)

    with mock.patch.object(delivery, "deliver", timed), watch("all"):
        (run_dir / "recipe.json").write_text(json.dumps(recipe))
        start_run(run_dir, recipe, follow=False)
        for number in range(1, iterations + 1):
            folder = run_dir / f"iteration-{number:02d}"
            with step_run(run_dir, f"sample-iteration-{number:02d}") as step:
                with watch("files"):
                    folder.mkdir()
                    with (folder / "rollouts.jsonl").open("wb") as stream:
                        stream.writelines(itertools.islice(source, rollouts // iterations))
                step.seal(folder / "rollouts.jsonl")
                step.log_metrics({"accepted": 0.5, "reward": 0.5}, iteration=number)
            with step_run(run_dir, f"train-iteration-{number:02d}") as step:
                with watch("files"):
                    (folder / "model").mkdir()
                    with (folder / "model/model.safetensors").open("wb") as stream:
                        stream.truncate(MODEL_BYTES)
                step.seal(folder / "model")
                step.log_curve(
                    ({"step": n, "loss": 1 / (n + 1)} for n in range(UPDATES)), axis="step", phase=folder.name
                )
        finish_run(run_dir, "FINISHED")
    return watch.seconds


def size(paths: Iterator[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__)
    parser.add_argument("run", type=Path, help="a finished run")
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--workdir", type=Path, help="folder for the benchmark's files (default: temporary)")
    arguments = parser.parse_args()
    per_rollout, count = seconds_per_rollout(arguments.run)
    whole = per_rollout * arguments.rollouts
    with tempfile.TemporaryDirectory(dir=arguments.workdir) as folder:
        run_dir = Path(folder) / "run"
        run_dir.mkdir()
        seconds = record(run_dir, lines_of(arguments.run), arguments.rollouts, arguments.iterations)
        records = seconds["all"] - seconds["files"] - seconds["delivery"]
        bytes_of = {
            "rollouts": size(run_dir.glob("*/rollouts.jsonl")),
            "manifest": size(run_dir.glob("manifest.jsonl")),
            "journals": size(run_dir.glob("tracking/**/*.jsonl")),
            "log": size(Path(folder).glob(LOG)),
        }
        print(
            f"{arguments.run}: {count:,} rollouts, {per_rollout * 1000:.1f} ms each; "
            f"{arguments.rollouts:,} rollouts: {whole:,.0f} s"
        )
        print(f"bytes: {', '.join(f'{name} {number:,}' for name, number in bytes_of.items())}")
        print(f"manifest, seals, journals and log: {records:.1f} s, {100 * records / whole:.3f} % of the run")
        print(f"delivery to MLflow: {seconds['delivery']:.1f} s, {100 * seconds['delivery'] / whole:.3f} %")
        watch = Watch()
        with watch("files"):
            assert not FileCheck(run_dir).findings
        with watch("verify"):
            assert not verify_run(run_dir).findings
        print(f"verify: {watch.seconds['verify']:.1f} s, of which the files {watch.seconds['files']:.1f} s")


if __name__ == "__main__":
    main()
