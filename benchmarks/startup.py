"""Start-up: CPU seconds of the commands that only read, relative to ``import pydantic, yaml``.

The base is the minimum for a program that reads YAML into records. Every command runs in a separate process, in turns,
with ``PYTHONDONTWRITEBYTECODE=1`` (common in containers and CI), on two copies of hopforge: *installed*, with
hopforge's byte code, as ``install.py`` leaves it, and *source*, without any ``__pycache__`` of hopforge. Both use the
dependencies of this environment with the byte code that they have there, so run it in an environment made by
``PYTHONDONTWRITEBYTECODE=1 make install``. ``hopforge runs`` lists ten generated runs with complete journals, manifests
and scores, which are also in an MLflow store.

    python benchmarks/startup.py [--rounds 5] [--imports]
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from platform_sdk.tracking import finish_run, start_run, step_run

HOME = Path(__file__).parents[1]
RECIPE = "pipelines/mygo/world.yaml"
BASE = "import pydantic, yaml"
GOALS = {"hopforge validate": 2.0, "hopforge runs": 3.0, "hopforge compile": 6.0}
COPIED = ("platform_sdk", "components", "manifests", "pipelines", "studies")
KINDS = ("installed", "source")
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


def copy_hopforge(folder: Path) -> Path:
    """Copy hopforge without byte code; Python imports a copy when it is started in its folder."""
    for name in COPIED:
        shutil.copytree(HOME / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def cpu_seconds(command: Sequence[str], folder: Path) -> float:
    """Run a command; return the CPU seconds of its process and those that it waited for."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
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
        homes = {kind: copy_hopforge(folder / kind) for kind in KINDS}
        compileall.compile_dir(homes["installed"] / "platform_sdk", quiet=1)
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.rounds):
            for name, command in rows.items():
                for kind, home in homes.items():
                    found.setdefault((name, kind), []).append(cpu_seconds(command, home))
    seconds = {key: median(values) for key, values in found.items()}
    print(f"{'CPU seconds, medians':28}" + "".join(f"{kind:>10}{'ratio':>8}" for kind in KINDS) + f"{'goal':>8}")
    for name in rows:
        parts = [f"{name:28}"]
        for kind in KINDS:
            value = seconds[name, kind]
            parts.append(f"{value:10.3f}{value / seconds[BASE, kind]:7.1f}x")
        print("".join(parts) + (f"{GOALS[name]:7.0f}x" if name in GOALS else ""))


if __name__ == "__main__":
    main()
