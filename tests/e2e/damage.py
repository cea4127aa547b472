"""What becomes of a run when one of its files is damaged: ``python -m tests.e2e.damage [mygo] [arena] [--only REGEX]``.

Prints a table of kind of file, moment, damage and outcome. There are two good outcomes: *equal* (the same command ends
with equal results) and *error* (one clear error that names the file). Anything else is a fault.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from platform_sdk.errors import UserError
from platform_sdk.kubeflow import runs
from platform_sdk.sampling.phase import Phase
from platform_sdk.tracking import start_run
from platform_sdk.training.trainer import PolicyTrainer
from tests.e2e import test_arena
from tests.e2e.runs import TINY_MYGO, content, rollouts, run_here

Damage = Callable[[Path], None]
SPARED = ("logs/", "kfp/", "report.html", ".lock", "tracking/lock", "tracking/follower.log", "index/milvus.db/LOCK")
"""Written anew by every run or never read; a sample of them is damaged too."""


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def halve(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def append(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b'\x00garbage{"\xff\n')


def edit(path: Path) -> None:
    """Give a value another that is just as plausible."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return flip(path)
    for old, new in (
        ('"value": 0', '"value": 0.99, "was": 0'), ('"threshold": 0.', '"threshold": 0.9'), ('"step": ', '"step": 1'),
        ('"em":0.0', '"em":1.0'), ('"em":1.0', '"em":0.0'), ('"weights": "', '"weights": "0'),
        ('"loss": ', '"loss": 1'), ('"loss":', '"loss":1'), ("Where", "When"), ("Who", "Whom"), ('": 1', '": 2'),
        ('"a', '"b'),
    ):  # fmt: skip
        if old in text:
            path.write_text(text.replace(old, new, 1), encoding="utf-8")
            return None
    return flip(path)


DAMAGES: dict[str, Damage] = {
    "flip": flip, "halve": halve, "empty": empty, "remove": Path.unlink, "append": append, "edit": edit,
}  # fmt: skip


class Stopped(BaseException):
    """Stops a run as a kill does."""


@dataclass(frozen=True)
class Subject:
    """A run that is damaged: how it is made, where it is stopped midway, and what must stay equal."""

    recipe: str
    overrides: dict[str, Any]
    outcome: Callable[[Path], dict[str, Any]]
    stops: dict[str, tuple[type, str, int]]
    """By name of the moment: the class and method whose n-th call stops the run."""

    def run(self, workdir: Path) -> None:
        # Delivered by the steps: a follower for each of some hundred runs would import mlflow as often.
        with mock.patch.object(runs, "start_run", partial(start_run, follow=False)):
            run_here(self.recipe, workdir, self.overrides)

    def stop(self, workdir: Path, moment: str) -> None:
        kind, method, calls = self.stops[moment]
        original, counted = getattr(kind, method), iter(range(1, 10_000))

        def stopping(*args: Any, **kwargs: Any) -> Any:
            if next(counted) == calls:
                raise Stopped
            return original(*args, **kwargs)

        with mock.patch.object(kind, method, stopping):
            try:
                self.run(workdir)
            except Stopped:
                return
        raise AssertionError(f"the run ended before {moment}")


def mygo_outcome(workdir: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for phase in ("warmup", "iteration-01"):
        sampled, trained = content(workdir, phase, "sample"), content(workdir, phase, "train")
        found[phase] = (sampled["digest"], sampled["threshold"], sampled["mean_reward"], trained["weights"])
    for phase in ("warmup", "iteration-01", "eval-start", "eval-final"):
        found[f"{phase} rollouts"] = sorted(r.model_dump_json() for r in rollouts(workdir, phase))
    for phase in ("eval-start", "eval-final"):
        scores = content(workdir, phase, "scores")
        found[f"{phase} scores"] = (scores["metrics"], scores["per_question"])
    return found


SUBJECTS = {
    "mygo": Subject(
        "world-text.yaml",
        {**TINY_MYGO, "training.checkpoint_steps": 1, "warmup.training.checkpoint_steps": 1, "training.batch_size": 2},
        mygo_outcome,
        # The warm-up samples 30 rollouts, and then 6 of the evaluation.
        {"sampling": (Phase, "_tick", 38), "training": (PolicyTrainer, "training_step", 4)},
    ),
    "arena": Subject(
        test_arena.RECIPE, test_arena.SMALL, test_arena.outcome, {"updating": (PolicyTrainer, "training_step", 2)}
    ),
}


def kinds(workdir: Path) -> list[str]:
    """One file of each kind, by its name in the run: of equal files in several phases the last one."""
    found: dict[str, str] = {}
    for path in sorted(path for path in workdir.rglob("*") if path.is_file() and not path.is_symlink()):
        name = str(path.relative_to(workdir))
        if name.startswith(SPARED) and not name.endswith(("report.html", "executor_output.json")):
            continue
        phase, _, rest = name.partition("/")
        kind = rest if phase in ("warmup", "iteration-01", "eval-start", "eval-final") else name
        kind = "kfp" if name.startswith("kfp/") else kind
        kind = "tracking/steps" if name.startswith("tracking/steps/") else kind
        found[kind] = name
    return sorted(found.values())


def tried(subject: Subject, before: Path, expected: dict[str, Any], name: str, damage: Damage) -> str:
    """Damage a file of a copy of ``before``, start the run again, and say what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder) / "place" / before.name
        shutil.copytree(before.parent, workdir.parent, symlinks=True)  # with the MLflow store beside the run
        damage(workdir / name)
        try:
            subject.run(workdir)
        except UserError as error:
            text = str(error)
            if "Traceback" in text or "its last lines" in text:
                return "TRACEBACK " + text.strip().splitlines()[-1][:200]
            named = Path(name).name in text or str(workdir / "index") in text
            return ("error " if named else "error, FILE NOT NAMED ") + text.replace(f"{folder}/place/", "")[:160]
        except Exception as error:
            return f"TRACEBACK {type(error).__name__}: {error}"[:200]
        found = subject.outcome(workdir)
        differing = [key for key in expected if found[key] != expected[key]]
        return f"OTHER RESULTS in {', '.join(differing)}" if differing else "equal"


def table(subject: Subject, folder: Path, only: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield moment, file, damage and outcome.

    Args:
        only: A regular expression that ``MOMENT FILE DAMAGE`` must contain.
    """
    finished = folder / "finished" / "run"
    subject.run(finished)
    expected = subject.outcome(finished)
    for moment in ("finished", *subject.stops):
        if moment != "finished":
            subject.stop(folder / moment / "run", moment)
        for name in kinds(folder / moment / "run"):
            for how, damage in DAMAGES.items():
                if re.search(only, f"{moment} {name} {how}"):
                    yield moment, name, how, tried(subject, folder / moment / "run", expected, name, damage)


def main() -> int:
    arguments = sys.argv[1:]
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else ""
    faults = 0
    for name, subject in SUBJECTS.items():
        if name in arguments or not any(known in arguments for known in SUBJECTS):
            with tempfile.TemporaryDirectory() as folder:
                for row in table(subject, Path(folder), only):
                    faults += not row[-1].startswith(("equal", "error "))
                    print(name, *row, sep="\t", flush=True)
    print(json.dumps({"faults": faults}))
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
