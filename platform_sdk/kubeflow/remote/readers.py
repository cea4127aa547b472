"""Concurrent logs of a whole run: of its present containers and of later ones."""

from __future__ import annotations

import threading
from collections.abc import Callable

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.remote.connection import Server, ServerUnavailable
from platform_sdk.kubeflow.remote.following import LOOK_SECONDS, PATIENCE
from platform_sdk.kubeflow.remote.jobs import Jobs
from platform_sdk.kubeflow.remote.logs import Container, containers, follow_own
from platform_sdk.kubeflow.remote.runs import Run
from platform_sdk.kubeflow.remote.state import ENDED, look
from platform_sdk.kubeflow.training_job.api import ApiUnavailable
from platform_sdk.kubeflow.training_job.state import State


def follow_logs(
    server: Server, run: Run, jobs: Jobs, step: str | None, lines: int,
    say: Callable[[Container, str], None], tell: Callable[[str], None],
) -> None:  # fmt: skip
    """Follow the logs of present and later containers until the run, the step, or the named part of a step has ended.

    Args:
        lines: maximum number of existing lines that are shown first.
        say: called with every line, by one thread at a time.
        tell: called with each log that cannot be read, and the reason.

    Raises:
        UserError: a server refuses or did not respond for half an hour, or a log could not be read to its end.
    """
    readers = _Readers(jobs, say, tell)
    told: set[str] = set()
    away = 0.0
    first: int | None = lines
    while not readers.over.is_set():
        try:
            ended = _step_ended(server, run, jobs, step)  # read before the containers, or the last ones would be missed
            found, notes = containers(jobs, run, step)
        except (ServerUnavailable, ApiUnavailable) as error:
            if away >= PATIENCE:
                raise
            if not away:
                tell(f"{error}; waiting for it")
            away += LOOK_SECONDS
        else:
            for note in [one for one in notes if one not in told]:
                tell(note)
            told.update(notes)
            for container in found:
                readers.read(container, first)
            away, first = 0.0, None
            if ended:
                readers.over.set()
        readers.wait(0 if readers.over.is_set() else LOOK_SECONDS)
    readers.finish()


class _Readers:
    """One thread per followed container."""

    def __init__(self, jobs: Jobs, say: Callable[[Container, str], None], tell: Callable[[str], None]) -> None:
        self.over = threading.Event()
        self._jobs, self._say, self._tell = jobs, say, tell
        self._turn, self._wake = threading.Lock(), threading.Event()
        self._threads: dict[Container, threading.Thread] = {}
        self._unread: list[str] = []
        self._crash: Exception | None = None

    def read(self, container: Container, lines: int | None) -> None:
        """Follow a container's log, unless it is already followed."""
        if container not in self._threads:
            thread = threading.Thread(target=self._work, args=(container, lines), daemon=True)
            self._threads[container] = thread
            thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for some time. Raise the exception of a failed thread, e.g. of a closed pipe."""
        self._wake.wait(seconds)
        if self._crash is not None:
            raise self._crash

    def finish(self) -> None:
        """Wait until all logs are read.

        Raises:
            UserError: a log was not read to its end.
        """
        while any(thread.is_alive() for thread in self._threads.values()):
            self.wait(0.1)
        self.wait(0)
        if self._unread:
            raise UserError(f"not read to the end: {', '.join(self._unread)}")

    def _work(self, container: Container, lines: int | None) -> None:
        try:
            for line in follow_own(self._jobs, container, lines, self.over):
                with self._turn:
                    self._say(container, line)
        except UserError as error:
            self._unread.append(str(container))
            self._tell(f"the log of {container} was not read to its end: {error}")
        except Exception as error:
            self._crash = error
            self._wake.set()


def _step_ended(server: Server, run: Run, jobs: Jobs, step: str | None) -> bool:
    """Return True if the run has ended, or the step, or the job of the part of a step that ``step`` names."""
    state = look(server, run, None if step is None else jobs)
    if state.ended or step is None:
        return state.ended
    if step in run.step_names:
        return any(one.name == step and one.state in ENDED for one in state.steps)
    return any(job.part == step and job.state == State.SUCCEEDED for job in state.jobs)  # a failed job is made again
