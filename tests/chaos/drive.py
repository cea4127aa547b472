"""A run under attack: the same command, again and again, until it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import trace
from tests.chaos.plan import Attack, Timeline
from tests.chaos.reduced import ReducedRecipe

ROOT = Path(__file__).parents[2]
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
LONGEST = 400.0
"""Seconds that one start of the command may take."""
GONE = 20.0
"""Seconds within which everything of a killed run must be gone."""
STOPPED = 1.5
REFUSED = "another run is using this directory"

LOST_IN_FORK = re.compile(
    r"Exception ignored in: <function _\w+Lock at .*>\n"
    r"Traceback \(most recent call last\):\n(?:.*\n)*?KeyboardInterrupt: ?\n"
)
"""A Ctrl-C that came while ``logging``'s callback around a fork ran, which Python drops. Only processes that are forked
warm have such moments: a command that starts its steps with ``subprocess`` runs no callbacks."""


@dataclass
class Strike:
    """One attack as it happened: when (seconds since the command was given), in which step, after which events."""

    run: int
    number: int
    attack: Attack
    hit: str
    second: float
    step: str
    newest: list[str]
    said: str
    ended: str = ""

    def plain(self) -> dict[str, Any]:
        moment = {**asdict(self.attack.moment), "told": str(self.attack.moment)}
        return {**asdict(self), "attack": {**asdict(self.attack), "moment": moment}}


@dataclass
class Course:
    """Course of a run: its strikes, how often the command was given, and what went wrong."""

    number: int
    folder: Path
    strikes: list[Strike] = field(default_factory=list)
    missed: list[Attack] = field(default_factory=list)
    starts: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    events: list[trace.Event] = field(default_factory=list)

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"


def adopt_orphans() -> None:
    """Become the parent of whatever a killed run leaves behind, so that it can be seen."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Driver:
    """Gives the command, attacks, and gives it again.

    Args:
        cold: Python is started for each process, as it is where a user types the command.
    """

    def __init__(self, reduced: ReducedRecipe, folder: Path, number: int, *, cold: bool) -> None:
        self.course = Course(number, folder)
        self.cold = cold
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "chaos").mkdir(parents=True)
        os.mkfifo(folder / "chaos" / trace.PIPE)
        self._pipe = os.open(folder / "chaos" / trace.PIPE, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""
        from tests.e2e.runs import options

        changes = [part for option in options(reduced.overrides) for part in ("--set", option)]
        self.command = [
            sys.executable, "-m", "platform_sdk.cli", "run", str(ROOT / "pipelines" / reduced.recipe),
            "--workdir", str(folder / "run"), *changes,
        ]  # fmt: skip
        self._seen: Counter[str] = Counter()
        self._ours: dict[int, str] = {}

    def go(self, attacks: Sequence[Attack] = (), timeline: Timeline | None = None) -> Course:
        """Run to the end, whatever happens on the way; the course says what did."""
        course, pending = self.course, deque(attacks)
        began = time.monotonic()
        try:
            while course.starts < len(attacks) + 5:
                course.starts += 1
                code = _Start(self, pending, timeline).go()
                if code == 0:
                    break
            else:
                course.faults.append(f"did not end within {course.starts} starts")
            self.wait_for_end("at the end of the run")
        finally:
            for pid in descendants():
                kill(pid, signal.SIGKILL)
            reap()
            os.close(self._pipe)
        course.missed += pending
        course.seconds = time.monotonic() - began
        return course

    def environment(self, trap: str | None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
        folders = [str(ROOT), *([str(Path(__file__).parent / "site")] if self.cold else [])]
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(folders),
            "OMP_NUM_THREADS": "1",
            trace.FOLDER: str(self.course.folder / "chaos"),
            **({trace.TRAP: trap} if trap else {}),
        }

    def events(self, seconds: float) -> Iterator[trace.Event]:
        """Return the events that come within ``seconds``, as soon as there are any."""
        if not select.select([self._pipe], [], [], max(seconds, 0))[0]:
            return
        *lines, self._rest = (self._rest + os.read(self._pipe, 1 << 16)).split(b"\n")
        for line in lines:
            event = trace.parse(line.decode(errors="replace"))
            self.course.events.append(event)
            self._seen[event.name] += 1
            if event.name.startswith("process "):
                self._ours[event.pid] = event.name.removeprefix("process ")
            yield event

    def seen(self, name: str) -> int:
        """Count such events in this run, over all starts."""
        return self._seen[name]

    def role(self, pid: int) -> str:
        return self._ours.get(pid, "another process")

    def newest(self, role: str) -> int | None:
        """The process of this role that was the last to start, if it lives."""
        found = [pid for pid, name in self._ours.items() if name.split()[0] == role]
        return found[-1] if found and found[-1] in descendants() else None

    def wait_for_end(self, when: str) -> float:
        """Wait until nothing of the run lives; a fault if something stays."""
        began = time.monotonic()
        while left := descendants():
            if time.monotonic() - began > GONE:
                told = ", ".join(f"{self.role(pid)} ({state(pid)})" for pid in left)
                self.course.faults.append(f"{when}, after {GONE:.0f} s there still lived: {told}")
                for pid in left:
                    kill(pid, signal.SIGKILL)
                break
            list(self.events(0.02))
            reap()
        return time.monotonic() - began


class _Start:
    """One start of the command."""

    def __init__(self, driver: Driver, pending: deque[Attack], timeline: Timeline | None) -> None:
        self.driver, self.pending, self.timeline = driver, pending, timeline
        self.course = driver.course
        self.step = "start"
        self.recent: deque[str] = deque(maxlen=3)
        self.second: subprocess.Popen[str] | None = None
        self.woken: tuple[float, int] | None = None
        self.due: float | None = None
        self.struck: Strike | None = None
        self.struck_here: list[Strike] = []
        self.over = False

    def go(self) -> int:
        first = self.pending[0] if self.pending else None
        exact = first.moment.event if first and not first.moment.delay else None
        output = self.course.folder / "chaos" / f"output-{self.course.starts}.txt"
        with output.open("w") as stream:
            self.process = subprocess.Popen(
                self.driver.command, env=self.driver.environment(exact), stdin=subprocess.DEVNULL, stdout=stream,
                stderr=stream, start_new_session=True, cwd=ROOT,
            )  # fmt: skip
            self.began = time.monotonic()
            self._watch()
            code = self.process.wait()
        self._judge(code, output)
        return code if self.second is None else min(code, self._second_end())

    def _watch(self) -> None:
        while self.process.poll() is None:
            soonest = min(self.due or 1e12, self.woken[0] if self.woken else 1e12) - time.monotonic()
            for event in self.driver.events(min(soonest, 0.05)):
                self._heard(event)
            now = time.monotonic()
            if self.woken and now >= self.woken[0]:
                kill(self.woken[1], signal.SIGCONT)
                self.woken = None
            if self.due is not None and now >= self.due:
                self._strike()
            reap(self.process, self.second)
            if now - self.began > LONGEST:
                self.course.faults.append(f"start {self.course.starts}: hung in {self.step}; {self._newest_line()}")
                for pid in descendants():
                    kill(pid, signal.SIGKILL)
        if self.woken:
            kill(self.woken[1], signal.SIGCONT)

    def _heard(self, event: trace.Event) -> None:
        self.recent.append(event.name)
        if event.name.startswith("process step "):
            self.step = event.name.removeprefix("process step ")
        if self.pending and self.due is None and not self.over:
            moment = self.pending[0].moment
            if event.name == moment.event and self.driver.seen(event.name) >= moment.occurrence:
                if moment.delay:
                    self.due = event.time + moment.delay
                else:
                    self._strike(event.pid)
            elif self._overtaken():
                self._strike(event.pid)
        if event.stopped:
            # It stops itself right after it has told; only then can it be let go on.
            while state(event.pid) not in ("T", "Z", None):
                time.sleep(0.0005)
            kill(event.pid, signal.SIGCONT)

    def _overtaken(self) -> bool:
        """Return whether the run is in a later step than the moment's, which an earlier start has passed."""
        assert self.timeline is not None
        place = self.pending[0].moment.place
        meant = self.timeline.step_at(place)
        follows = "mlflow" in self.pending[0].moment.event or "mlartifacts" in self.pending[0].moment.event
        if self.step == "start" or meant is None or self.pending[0].moment.kind == "startup":
            return False
        return self.timeline.steps.index(self.step) > self.timeline.steps.index(meant) + (2 if follows else 0)

    def _strike(self, at: int | None = None) -> None:
        attack, self.due = self.pending.popleft(), None
        pid = self._victim(attack)
        # Everything about the moment is taken down first: it is gone afterwards.
        strike = Strike(
            self.course.number, len(self.course.strikes) + 1, attack, "everything",
            round(time.monotonic() - self.began, 2), self.step, list(self.recent), self._newest_line(),
        )  # fmt: skip
        self.course.strikes.append(strike)
        self.struck = strike
        self.struck_here.append(strike)
        program = attack.victim == "program" and programs()
        self.over = attack.signal not in ("-", "SIGSTOP") and not program
        if attack.victim == "tree":
            kill_tree()
        elif attack.victim == "second start":
            strike.hit = "a second start of the command"
            self.second = subprocess.Popen(
                self.driver.command, env={**self.driver.environment(None), trace.FOLDER: "/nowhere/chaos"}, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                cwd=ROOT,
            )  # fmt: skip
        else:
            strike.hit = "a program" if program else self.driver.role(pid)
            kill(pid, signal.Signals[attack.signal])
            if attack.signal == "SIGSTOP":
                self.woken = time.monotonic() + STOPPED, pid
        if at is not None and self.driver.role(at) not in strike.hit:
            strike.hit += f", while {self.driver.role(at)} was at it"

    def _victim(self, attack: Attack) -> int:
        role = "run" if attack.victim in ("tree", "second start") else attack.victim
        if role == "program":
            return (programs() or [self.driver.newest("step") or self.process.pid])[-1]
        return self.driver.newest(role) or self.process.pid

    def _judge(self, code: int, output: Path) -> None:
        """Return whether the command ended as it should after what was done to it."""
        course, strike = self.course, self.struck
        for event in list(self.driver.events(0)):
            self._heard(event)
        text = output.read_text(errors="replace").strip()
        told = " | ".join(text.splitlines()[-3:])
        how = f"exit {code}" if code >= 0 else signal.Signals(-code).name
        for one in self.struck_here:
            one.ended = "the run goes on"
        if "Traceback (most recent call last)" in LOST_IN_FORK.sub("", text) and not (code < 0):
            course.faults.append(f"start {course.starts}: a traceback: {' | '.join(text.splitlines()[-12:])}")
        if strike is None or strike.attack.victim == "second start" or strike.attack.signal == "SIGSTOP":
            if code != 0:
                course.faults.append(f"start {course.starts}: ended by itself with {how} in {self.step}: {told}")
            if strike is not None:
                strike.ended = how
            return
        strike.ended = how
        # Before it has begun anything the command may end as any other does.
        begun = (course.run_dir / ".lock").exists()
        if strike.attack.signal in ("SIGTERM", "SIGINT") and code not in (0, 130) and begun:
            course.faults.append(f"start {course.starts}: after {strike.attack.signal}: {how}: {told}")
        if strike.attack.at_once:
            strike.ended += ", again at once"
        else:
            strike.ended += f", gone after {self.driver.wait_for_end(f'after {strike.attack.signal}'):.1f} s"

    def _second_end(self) -> int:
        assert self.second is not None
        said, _ = self.second.communicate(timeout=LONGEST)
        code = self.second.returncode
        killed = code < 0 and any(strike.attack.victim == "tree" for strike in self.struck_here)
        if code != 0 and REFUSED not in said and not killed:
            self.course.faults.append(f"a second start ended with {code}: {said.strip()[-400:]}")
        assert self.struck is not None
        self.struck.ended += f"; the second start: {'refused' if REFUSED in said else f'exit {code}'}"
        return code if code >= 0 else 1

    def _newest_line(self) -> str:
        path = self.course.run_dir / "logs" / f"{self.step}.log"
        try:
            lines = path.read_text(errors="replace").replace("\r", "\n").splitlines()
        except OSError:
            return ""
        return next((line.strip()[-120:] for line in reversed(lines) if line.strip()), "")


def kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_tree() -> None:
    """Stop everything first, so that nobody sees another one die."""
    stopped: set[int] = set()
    while new := set(descendants()) - stopped:
        for pid in new:
            kill(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        kill(pid, signal.SIGKILL)


def state(pid: int) -> str | None:
    """A process's state as the kernel has it (``T`` stopped, ``Z`` dead, not reaped); None: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def descendants() -> list[int]:
    """Every process that lives below this one."""
    parents: dict[int, list[int]] = {}
    for folder in os.listdir("/proc"):
        if folder.isdecimal():
            try:
                fields = Path(f"/proc/{folder}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(folder))
            else:
                parents.setdefault(int(fields[1]), [])
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def programs() -> list[int]:
    """Return the processes that run users' programs, without those that guard them."""
    found = []
    for pid in descendants():
        with contextlib.suppress(OSError):
            folder = Path(f"/proc/{pid}")
            words = (folder / "cmdline").read_bytes().split(b"\0")
            guards = words[0].endswith(b"unshare") or any(word.endswith(b"guard.py") for word in words)
            if not guards and b"HOPFORGE_SESSION=" in (folder / "environ").read_bytes():
                found.append(pid)
    return found


def reap(*known: subprocess.Popen[Any] | None) -> None:
    """Bury the dead that were adopted; those of ``known`` are for whoever started them."""
    kept = {process.pid for process in known if process is not None}
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in kept:
            return
        with contextlib.suppress(ChildProcessError):
            os.waitpid(found.si_pid, 0)
