"""Logs of a run's containers: the present content, or followed to the end.

A stream ends early when the log is rotated, a connection is lost or a server restarts, and some servers do not signal
the difference. So a log ends with its container, and a stream that ends earlier is resumed: lines are requested with
their timestamps, and lines that were already received are skipped.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from itertools import islice
from typing import Any

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.following import ENDING_SECONDS, LOOK_SECONDS, PATIENCE
from platform_sdk.kubeflow.remote.jobs import Item, Jobs, part_of, step_of
from platform_sdk.kubeflow.remote.pods import MAIN
from platform_sdk.kubeflow.remote.runs import Run
from platform_sdk.kubeflow.remote.step_lines import own_lines
from platform_sdk.kubeflow.training_job.api import ApiUnavailable
from platform_sdk.kubeflow.training_job.description import LABEL_TASK

AGAIN_SECONDS = 1.0  # before a log is resumed
OVERLAP = timedelta(seconds=1)
"""Overlap when a log is resumed: lines of a container's two streams may be out of order."""


@dataclass(frozen=True)
class Container:
    """A container with a readable log. ``title`` is short: the step, or the part of the step that a job runs."""

    step: str
    pod: str
    name: str
    title: str = field(compare=False)  # changes as pods of a job come
    of_step: bool = False

    def __str__(self) -> str:
        return self.title


def containers(jobs: Jobs, run: Run, step: str | None) -> tuple[list[Container], list[str]]:
    """Return the containers of a run's steps, or of one step, in the step's pod and in its jobs' pods.

    ``step`` may also be the part of a step that a job runs, e.g. train-iteration-03.

    Returns:
        The containers, and reasons why some cannot be seen.
    """
    found: list[Container] = []
    notes: list[str] = []
    for pod in jobs.step_pods(run.run_id):
        task = pod["metadata"]["labels"][LABEL_TASK]
        if step in (None, task):
            found.append(Container(task, pod["metadata"]["name"], MAIN, task, of_step=True))
    for kind in jobs.kinds:
        try:
            of_kind = kind.of(run.label)
        except ApiUnavailable:
            raise
        except UserError as error:
            notes.append(f"pods of {kind.name}s are not seen: {error}")
            continue
        for job in of_kind:
            if step in (None, step_of(job), part_of(job)):
                found += _of_job(job, kind.api.pods(job["metadata"]["name"]))
    return found, notes


def _of_job(job: Item, pods: list[Item]) -> Iterator[Container]:
    """Return the containers of a job's pods; pods and containers are named if there are several."""
    for pod in pods:
        name = pod["metadata"]["name"]
        specs = _specs(pod)
        for spec in specs:
            parts = [part_of(job) or job["metadata"]["name"]]
            parts += [name.removeprefix(f"{job['metadata']['name']}-")] if len(pods) > 1 else []
            parts += [spec["name"]] if len(specs) > 1 else []
            yield Container(step_of(job), name, spec["name"], " ".join(parts))


def _specs(pod: Item) -> list[Item]:
    spec = pod.get("spec", {})
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def read_log(jobs: Jobs, container: Container, lines: int) -> Iterator[str] | None:
    """Return the last lines of a container's present log; for a step's container, the step's own lines.

    Returns:
        None if the container has not started.

    Raises:
        UserError, ApiUnavailable: see ``Jobs``; the latter at any line.
    """
    if not container.of_step:
        answer = jobs.log(container.pod, container.name, tailLines=lines)
        return None if answer is None else (line for line, _ in _lines(answer))
    complete = _stage(jobs.pod(container.pod), container.name) is Stage.ENDED
    answer = jobs.log(container.pod, container.name)
    if answer is None:
        return None
    return iter(deque(own_lines((line for line, _ in _lines(answer)), complete=complete), maxlen=lines))


def follow_own(
    jobs: Jobs, container: Container, lines: int | None, over: threading.Event,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[str]:  # fmt: skip
    """Return a container's lines as ``follow_log`` does; for a step's container, the step's own lines.

    Raises:
        UserError, ApiUnavailable: see ``follow_log``.
    """
    if not container.of_step:
        yield from follow_log(jobs, container, lines, over, sleep)
        return
    skipped = 0 if lines is None else max(0, _present_own_lines(jobs, container, over, sleep) - lines)
    yield from islice(own_lines(follow_log(jobs, container, None, over, sleep)), skipped, None)


def _present_own_lines(
    jobs: Jobs, container: Container, over: threading.Event, sleep: Callable[[float], object]
) -> int:
    """Return the number of a step's own lines in the present log; wait for the API server as ``follow_log`` does."""
    away = 0.0
    while True:
        try:
            answer = jobs.log(container.pod, container.name)
            lines = () if answer is None else own_lines((line for line, _ in _lines(answer)), complete=False)
            return sum(1 for _ in lines)
        except ApiUnavailable:
            if _is_lost(away, over):
                raise
            sleep(LOOK_SECONDS)
            away += LOOK_SECONDS


def _is_lost(away: float, over: threading.Event) -> bool:
    """Return True if the API server has been ``away`` for too many seconds."""
    return away >= (ENDING_SECONDS if over.is_set() else PATIENCE)


def follow_log(
    jobs: Jobs, container: Container, lines: int | None, over: threading.Event,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[str]:  # fmt: skip
    """Yield a container's log as it is written, from its last ``lines`` or its first line, up to its end.

    Args:
        over: set when a container that has not started will never start.

    Raises:
        UserError: the API server refuses.
        ApiUnavailable: no response for half an hour, or for a minute after ``over`` was set.
    """
    delivered = _Delivered()
    away = 0.0
    while True:
        try:
            hopeless = over.is_set()
            # Read the state before the log: the log of an ended container is complete.
            stage = _stage(jobs.pod(container.pod), container.name)
            last = stage is Stage.ENDED or (stage is Stage.WAITING and hopeless)
            since = delivered.begin()
            answer = jobs.log(
                container.pod, container.name, follow=not last, timestamps=True, sinceTime=since,
                tailLines=None if since else lines,
            )  # fmt: skip
            away = 0.0
            for line, whole in () if answer is None else _lines(answer):
                if (whole or last) and (text := delivered.new(line)) is not None:
                    yield text
            lines = None  # all later lines are new
            if last:
                return
            pause = LOOK_SECONDS if stage is Stage.WAITING else AGAIN_SECONDS
        except ApiUnavailable:
            if _is_lost(away, over):
                raise
            pause = LOOK_SECONDS
            away += pause
        sleep(pause)


class Stage(Enum):
    """Stage of a container: an ``ENDED`` one writes nothing more."""

    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()


def _stage(pod: Item | None, name: str) -> Stage:
    if pod is None:
        return Stage.ENDED
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return Stage.ENDED
    statuses = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    state: Item = next((one.get("state") or {} for one in statuses if one["name"] == name), {})
    ended = state.get("terminated")
    if not ended:
        return Stage.RUNNING if "running" in state else Stage.WAITING
    own = next((one.get("restartPolicy") for one in _specs(pod) if one["name"] == name), None)
    policy = own or pod.get("spec", {}).get("restartPolicy")
    final = policy == "Never" or (policy == "OnFailure" and ended.get("exitCode") == 0)
    return Stage.ENDED if final else Stage.RUNNING  # it may be started again in its place


def _lines(answer: Any) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a response, each with True if its line end was received.

    Raises:
        ApiUnavailable: the connection was lost.
    """
    from urllib3.exceptions import HTTPError

    rest = b""
    try:
        for chunk in answer.stream(1 << 14, decode_content=True):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace"), True
    except (HTTPError, OSError) as error:
        raise ApiUnavailable(f"the connection to the API server was lost: {type(error).__name__}: {error}") from error
    finally:
        answer.close()
    if rest:
        yield rest.decode(errors="replace"), False


class _Delivered:
    """Deduplication of recent log lines by timestamp and text."""

    def __init__(self) -> None:
        self._oldest: datetime | None = None
        self._newest: datetime | None = None
        self._resumed = False
        self._recent: deque[tuple[datetime, str]] = deque()
        self._again: Counter[str] = Counter()
        self._said: set[str] = set()

    def begin(self) -> str | None:
        """Return the RFC 3339 time from which the next request starts, or None for the first line."""
        self._again = Counter(line for _, line in self._recent)
        if self._newest is None:
            return None
        self._resumed = True
        return (self._newest.replace(microsecond=0) - OVERLAP).strftime("%Y-%m-%dT%H:%M:%SZ")

    def new(self, line: str) -> str | None:
        """Return the text of a new line; None for a duplicate."""
        stamp, _, text = line.partition(" ")
        moment = _moment(stamp)
        if moment is None:  # a message of the node, repeated in every response
            fresh = line not in self._said
            self._said.add(line)
            return line if fresh else None
        if self._again[line]:
            self._again[line] -= 1
            return None
        if self._resumed and self._oldest is not None and moment < self._oldest:
            return None  # from before the last ``lines``
        self._oldest = moment if self._oldest is None else min(moment, self._oldest)
        self._newest = moment if self._newest is None else max(moment, self._newest)
        self._recent.append((moment, line))
        while self._recent[0][0] < self._newest - OVERLAP - timedelta(seconds=1):
            self._recent.popleft()
        return text


def _moment(stamp: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else None
