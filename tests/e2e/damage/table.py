"""Files of runs, what is done to them, and what the same command does then."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from platform_sdk.sampling.sampler import RolloutSampler
from platform_sdk.tracking import manifest
from platform_sdk.training.trainer import PolicyTrainer
from tests.chaos import outcome
from tests.chaos.drive import descendants, kill_tree, reap
from tests.chaos.reduced import REDUCED
from tests.chaos.warm import forking
from tests.e2e.runs import ROOT, command, environment

LONGEST = 240.0
"""Seconds that a start of the command may take."""
PHASES = re.compile(r"(warmup|online|iteration-\d+|eval-[a-z]+|eval-u\d+)/")
SAMPLED = {"logs/": "a log", "tracking/steps/": "a step's journal"}
"""Folders whose files are interchangeable here."""
SAME_ALWAYS = (
    "logs/", "index/", "report.html", "lineage.html", ".lock", "tracking/lock", "tracking/digests.json",
    "tracking/environment.json", "tracking/follower.log",
)  # fmt: skip
"""Read by every start in the same way, or by none; damaged in the run that has finished only."""


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


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flip": flip, "halve": halve, "empty": empty, "remove": Path.unlink, "append": append, "edit": edit,
}  # fmt: skip
OF_EMPTY = ("remove", "append")


@dataclass(frozen=True)
class Stop:
    """Moment at which everything of a run is killed: before the n-th call of a method in a step.

    ``shown`` begins the names of the files that are damaged then.
    """

    step: str
    kind: type
    method: str
    call: int
    shown: str = ""


@dataclass(frozen=True)
class Subject:
    """A recipe whose runs are damaged, and at which moments they are killed midway."""

    recipe: str
    overrides: Mapping[str, Any]
    stops: Mapping[str, Stop]


SUBJECTS = {
    "arena": Subject(
        REDUCED["arena"].recipe,
        REDUCED["arena"].shorter().overrides,
        {
            "sampling": Stop("online", RolloutSampler, "_tick", 30, shown="online/"),
            "updating": Stop("online", PolicyTrainer, "training_step", 2),
        },
    ),
    "mygo": Subject(
        REDUCED["mygo"].recipe,
        {
            **REDUCED["mygo"].shorter().overrides,
            "dataset.world.eval_questions": 4,
            "selection.questions": 6,
            "training.batch_size": 3,
        },
        {
            "sampling": Stop("sample-01", RolloutSampler, "_tick", 5, shown="iteration-01/"),
            "training": Stop("train-01", PolicyTrainer, "training_step", 3),
        },
    ),
}


@dataclass(frozen=True)
class Damage:
    """Damage to a file (by its name in the run) of a run as it is at a moment."""

    moment: str
    file: str
    how: str

    def __str__(self) -> str:
        return f"{self.moment} {self.file} {self.how}"


@dataclass(frozen=True)
class Row:
    recipe: str
    damaged: Damage
    outcome: str
    seconds: float

    @property
    def good(self) -> bool:
        return self.outcome == "equal" or self.outcome.startswith(("error: ", "skipped: "))

    def __str__(self) -> str:
        return "\t".join((self.recipe, *astuple(self.damaged), f"{self.seconds:.1f} s", self.outcome))


@dataclass(frozen=True)
class CommandEnd:
    """End of the command; no code where it had to be killed."""

    code: int | None
    said: str
    errors: str


class Table:
    """Runs of one recipe, all in the same place: MLflow's store has absolute paths."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.subject = name, folder, SUBJECTS[name]
        self.place = folder / "place"
        self.run_dir = self.place / "run"

    def prepare(self, moments: Iterable[str]) -> None:
        """Make the run that is not disturbed, and those that are killed midway at ``moments``."""
        ended = self.start()
        assert ended.code == 0, ended.said + ended.errors
        self.expected = results(self.run_dir)
        self.place.rename(self.folder / "finished")
        for moment in moments:
            self._kill_at(self.subject.stops[moment])
            self.place.rename(self.folder / moment)
        self.moments = (*moments, "finished")

    def start(self, workdir: Path | None = None) -> CommandEnd:
        """Give the command, as a user does, and wait for its end and that of everything that it started."""
        with self._started(workdir or self.run_dir) as process:
            try:
                said, errors = process.communicate(timeout=LONGEST)
                code = process.returncode
            except subprocess.TimeoutExpired:
                kill_tree()
                said, errors = process.communicate()
                code = None
        kill_tree()
        while descendants():
            reap()
            time.sleep(0.005)
        return CommandEnd(code, said, errors)

    def possible(self) -> list[Damage]:
        """Return what can be done to the files of each kind, of the runs that there are."""
        return [row for moment in self.moments for row in self._possible(moment)]

    def tried(self, chosen: Damage) -> Row:
        """Damage a file of a run as it was, give the command again, and say what came of it."""
        began = time.monotonic()
        self.restore(chosen.moment)
        DAMAGES[chosen.how](self.run_dir / chosen.file)
        came = self._judge(chosen.file, self.start())
        return Row(self.name, chosen, came, time.monotonic() - began)

    def restore(self, moment: str) -> None:
        """Put everything back as it was at a moment."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.folder / moment, self.place, symlinks=True)

    def told(self, ended: CommandEnd) -> str | None:
        """Return the one error that the command ended with, or what was wrong with its end; None if it ended well."""
        everything = ended.said + ended.errors
        if ended.code is None:
            return f"HUNG: {everything[-200:]}"
        if "Traceback" in everything or "its last lines" in everything:
            return f"TRACEBACK: {everything.strip()[-300:]}"
        if ended.code == 0:
            return None
        errors = len(re.findall(r"^error: ", ended.errors, re.MULTILINE))
        if ended.code != 2 or errors != 1:
            return f"EXIT {ended.code}, {errors} ERRORS: {everything[-300:]}"
        return ended.errors[ended.errors.find("error: ") :].strip().replace(f"{self.place}/", "")

    @contextlib.contextmanager
    def _started(self, workdir: Path) -> Iterator[subprocess.Popen[str]]:
        given = command(str(ROOT / "pipelines" / self.subject.recipe), workdir, self.subject.overrides)
        with forking():
            yield subprocess.Popen(
                given, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, errors="replace", start_new_session=True, cwd=ROOT,
            )  # fmt: skip

    def _kill_at(self, stop: Stop) -> None:
        original, calls, reached = getattr(stop.kind, stop.method), iter(range(1, 10_000)), self.folder / "reached"

        def stopping(*args: Any, **kwargs: Any) -> Any:
            # A task's standard output is its log.
            if Path(os.readlink("/proc/self/fd/1")).stem == stop.step and next(calls) == stop.call:
                reached.touch()
                while True:
                    time.sleep(1)
            return original(*args, **kwargs)

        # The processes of the run are forked from this one.
        with mock.patch.object(stop.kind, stop.method, stopping), self._started(self.run_dir) as process:
            while not reached.exists():
                assert process.poll() is None, f"the run ended before {stop}: {process.communicate()}"
                time.sleep(0.02)
            kill_tree()
            process.communicate()
        reap()
        reached.unlink()

    def _possible(self, moment: str) -> Iterator[Damage]:
        run_dir = self.folder / moment / "run"
        sealed = {name for entry in manifest.read(run_dir) for name in entry.files}
        shown = "" if moment == "finished" else self.subject.stops[moment].shown
        files = sorted(
            (path for path in run_dir.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime_ns
        )
        names = [name for path in files if (name := str(path.relative_to(run_dir))).startswith(shown)]
        for those, once in (([name for name in names if name in sealed], moment != "finished"),
                            ([name for name in names if name not in sealed], False)):  # fmt: skip
            # Of files that differ in the phase alone the newest one.
            for name in {kind(name): name for name in those}.values():
                if moment != "finished" and name.startswith(SAME_ALWAYS):
                    continue
                hows = DAMAGES if (run_dir / name).stat().st_size else OF_EMPTY
                yield from (Damage(moment, name, how) for how in (["flip"] if once else hows))

    def _judge(self, file: str, ended: CommandEnd) -> str:
        told = self.told(ended)
        if told is not None:
            named = Path(file).name in told or (file.startswith("index/") and "run/index" in told)
            return told if named or not told.startswith("error: ") else f"FILE NOT NAMED: {told}"
        try:
            differing = list(outcome.differences(self.expected, results(self.run_dir)))
        except ValueError as error:
            return f"DAMAGED STILL: {error}"
        return f"OTHER RESULTS: {differing[:3]}" if differing else "equal"


def kind(name: str) -> str:
    """Return the kind of a file: its name without the phase that it is of, and without numbers."""
    for folder, what in SAMPLED.items():
        if name.startswith(folder):
            return what
    return re.sub(r"\d+", "N", PHASES.sub("PHASE/", name))


def results(run_dir: Path) -> dict[str, Any]:
    """Return every file of a run that must not depend on damages, as ``tests.chaos`` compares them.

    Not what was begun with which inputs, what processes were started with, how long it took, and digests beside a log:
    a finished phase needs none of it. (What ``hopforge ask`` reads of an evaluation, it checks itself.)
    """
    return outcome.files(run_dir, re.compile(r"(^|/)(\.[^/]*|begun\.json|[a-z]+-step\.json|[^/]*\.seconds\.json)$"))
