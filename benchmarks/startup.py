"""Start-up: CPU seconds of the commands that only read, relative to ``import pydantic, yaml``.

The base is what a program pays at least that reads YAML into records. Every command runs in a process of its own, in
turns, in two environments: *without* byte code, where Python has compiled nothing but its standard library and may
write nothing (``PYTHONDONTWRITEBYTECODE=1`` after an installation by uv, common in containers and CI), and *with* byte
code of every module. Each ratio is relative to the base in the same environment. ``hopforge runs`` lists ten runs that
are made up here: their journals, manifests and scores are complete, and they are in an MLflow store.

    python benchmarks/startup.py [--rounds 5] [--imports]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from platform_sdk.tracking import finish_run, start_run, step_run

HOME = Path(__file__).parents[1]
RECIPE = "pipelines/mygo/world.yaml"
BASE = "import pydantic, yaml"
GOALS = {"hopforge validate": 2.0, "hopforge runs": 3.0, "hopforge compile": 6.0}
IMPORTS = ("torch", "mlflow", "sentence_transformers")


def make_runs(folder: Path, count: int) -> None:
    """Make up finished runs with two evaluations each."""
    for number in range(count):
        run_dir = folder / f"run-{number}"
        recipe = {"pipeline": "mygo", "name": "world", "parameters": {"seed": number}}
        (run_dir / "iteration-01").mkdir(parents=True)
        (run_dir / "recipe.json").write_text(json.dumps(recipe))
        start_run(run_dir, recipe, follow=False)
        for step, value in (("eval-start", 0.1), ("eval-final", 0.5 + number / 100)):
            path = run_dir / step / "scores.json"
            path.parent.mkdir()
            score = {"value": value, "low": value / 2, "high": min(1.0, value * 2)}
            scores = {"phase": step, "n": 100, "shown": ["em", "f1"], "metrics": {"em": score, "f1": score}}
            path.write_text(json.dumps(scores))
            with step_run(run_dir, step) as running:
                running.log_scores(path, iteration=int(step == "eval-final"))
                running.seal(path.parent)
        finish_run(run_dir, "FINISHED")


def standard_library_only(folder: Path) -> Path:
    """Return a folder for ``PYTHONPYCACHEPREFIX`` that holds the byte code of Python's standard library only."""
    for name in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        for cache in Path(name).rglob("__pycache__"):
            if "site-packages" not in cache.parts:
                shutil.copytree(cache, folder / cache.parent.relative_to("/"), dirs_exist_ok=True)
    return folder


def cpu_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Run a command; return the CPU seconds of its process and those that it waited for."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=HOME, env=environment, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{output.read().decode()}")
    return usage.ru_utime + usage.ru_stime


def commands(folder: Path, imports: bool) -> Iterator[tuple[str, list[str]]]:
    hopforge = [sys.executable, "-m", "platform_sdk.cli"]
    yield BASE, [sys.executable, "-c", BASE]
    yield "hopforge validate", [*hopforge, "validate", RECIPE]
    yield "hopforge runs", [*hopforge, "runs", str(folder / "runs")]
    yield "hopforge compile", [*hopforge, "compile", RECIPE, "-o", str(folder / "pipeline.yaml")]
    yield "hopforge --help", [*hopforge, "--help"]
    for name in IMPORTS if imports else ():
        yield f"import {name}", [sys.executable, "-c", f"import {name}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--imports", action="store_true", help="also import what training and sampling import")
    options = parser.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_runs(folder / "runs", 10)
        rows = dict(commands(folder, options.imports))
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        prefix = {
            "without": standard_library_only(folder / "without"),
            "with": standard_library_only(folder / "with"),
        }
        environments = {name: plain | {"PYTHONPYCACHEPREFIX": str(path)} for name, path in prefix.items()}
        for command in rows.values():
            cpu_seconds(command, environments["with"])  # writes the byte code
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.rounds):
            for name, command in rows.items():
                for kind, environment in environments.items():
                    seconds = cpu_seconds(command, environment | {"PYTHONDONTWRITEBYTECODE": "1"})
                    found.setdefault((name, kind), []).append(seconds)
    seconds = {key: median(values) for key, values in found.items()}
    print(f"{'CPU seconds, medians':28}{'without':>9}{'ratio':>8}{'with':>9}{'ratio':>8}{'goal':>8}")
    for name in rows:
        parts = [f"{name:28}"]
        for kind, width in (("without", 9), ("with", 9)):
            value = seconds[name, kind]
            parts.append(f"{value:{width}.3f}{value / seconds[BASE, kind]:7.1f}x")
        print("".join(parts) + (f"{GOALS[name]:7.0f}x" if name in GOALS else ""))


if __name__ == "__main__":
    main()
