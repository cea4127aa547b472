"""Create or adopt a job, and follow it to its end.

The job is looked at every few seconds rather than watched: one small object, and nothing to go wrong when a watch is
dropped or its history is gone. A queued job is not a failure: queueing and running have time limits of their own. The
launcher may be killed at any moment; the next one finds the job by its name and follows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.api import AlreadyThere, ApiUnavailable, ClusterApi, Forbidden, Item
from platform_sdk.kubeflow.training_job.backend import BACKENDS
from platform_sdk.kubeflow.training_job.description import HEARTBEAT, SPEC_DIGEST, Description
from platform_sdk.kubeflow.training_job.diagnosis import diagnose
from platform_sdk.kubeflow.training_job.kueue import remedy
from platform_sdk.kubeflow.training_job.state import Observation, State, observe

T = TypeVar("T")

LOOK_SECONDS = 10.0
HEARTBEAT_SECONDS = 60.0
API_PATIENCE = 1800.0  # how long the API server may be away, in seconds
UNMANAGED_LOOKS = (
    12  # at a job with a queue label for which Kueue has no Workload: two minutes of an answering API server
)
DELETION_PATIENCE = 600.0  # how long an earlier job may take to go, in seconds; its pods have one minute


class Clock(Protocol):
    """The module ``time``, or what a test lets pass as it likes."""

    def time(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


def run_job(job: Description, api: ClusterApi, tell: Callable[[str], None], clock: Clock | None = None) -> None:
    """Run a job to its end.

    An existing job of that name is adopted if it has the same specification. If it has failed it is created again: this
    is then another attempt, which resumes from the last checkpoint.

    Args:
        tell: called at every change of state, with the reason the cluster gives.

    Raises:
        UserError: the job failed, waited or ran for too long, was deleted, differs from an existing one of
            that name, or its queue does not exist; Kueue does not manage it; an earlier one stays; or the API server
            refused something or stayed away.
    """
    _Follower(job, api, tell, clock or time).run()


class _Follower:
    def __init__(self, job: Description, api: ClusterApi, tell: Callable[[str], None], clock: Clock) -> None:
        self._job, self._api, self._tell, self._clock = job, api, tell, clock
        self._body = BACKENDS[job.backend].render(job)
        self._managed, self._unmanaged_looks = job.spec.queue is None, 0
        self._spent = {True: 0.0, False: 0.0}  # seconds: waiting, and running

    def run(self) -> None:
        self._create()
        last: Observation | None = None
        looked, beaten = self._clock.time(), 0.0
        while True:
            now = self._clock.time()
            if now - beaten >= HEARTBEAT_SECONDS:
                self._reached(lambda: self._api.annotate(self._job.name, {HEARTBEAT: stamp(self._clock.time())}))
                beaten = now
            seen = self._reached(self._look)
            if seen is None:
                raise UserError(f"job {self._job.name} was deleted while it was followed; run the step again")
            if last is not None:
                self._spent[last.state.waiting] += now - looked
            if seen != last:
                self._tell(f"{self._job.name}: {seen.state}" + (f" ({seen.reason})" if seen.reason else ""))
            looked, last = now, seen
            if seen.state is State.SUCCEEDED:
                return
            if seen.state is State.FAILED:
                raise UserError(self._reached(partial(diagnose, self._job.name, seen.reason, self._api)))
            self._check_managed()
            self._check_time(seen)
            self._clock.sleep(LOOK_SECONDS)

    def _create(self) -> None:
        """Create the job, or adopt the one that is there."""
        digest = self._body["metadata"]["annotations"][SPEC_DIGEST]
        while True:
            found = self._reached(lambda: self._api.get(self._job.name))
            if found is None:
                self._check_queue()
                try:
                    self._reached(lambda: self._api.create(self._body))
                except AlreadyThere:
                    continue  # somebody else's, or ours, if the answer was lost
                self._tell(f"{self._job.name}: created")
                return
            metadata = found["metadata"]
            if metadata.get("deletionTimestamp"):
                self._await_end_of(metadata["uid"])
                continue
            if metadata.get("annotations", {}).get(SPEC_DIGEST) != digest:
                raise UserError(
                    f"job {self._job.name} already exists with another specification; wait for it, or delete it "
                    f"({self._kubectl('delete')})"
                )
            if observe(found, None, ()).state is not State.FAILED:
                self._tell(f"{self._job.name}: adopted")
                return
            self._tell(f"{self._job.name}: an earlier attempt had failed; created again")
            self._reached(lambda: self._api.delete(self._job.name))

    def _check_queue(self) -> None:
        """Check queue and Kueue: without either, a job would stay suspended until its time in the queue is over."""
        queue = self._job.spec.queue
        if queue is None:
            return
        try:
            missing = self._reached(lambda: self._api.no_queue(queue))
        except Forbidden as error:
            self._tell(f"{self._job.name}: whether there is a LocalQueue {queue} cannot be seen ({error}); going on")
            return
        if missing:
            raise UserError(
                f"job {self._job.name} cannot be queued: {missing}; name another one in job.queue (--queue), or leave "
                "it out, and the job starts as soon as it fits"
            )

    def _await_end_of(self, uid: str) -> None:
        """Wait for a job that is being deleted to be gone."""
        since = self._clock.time()
        self._tell(f"{self._job.name}: an earlier one is being deleted; waiting for its end")
        while (found := self._reached(lambda: self._api.get(self._job.name))) and found["metadata"]["uid"] == uid:
            if self._clock.time() - since > DELETION_PATIENCE:
                raise UserError(self._held(found))
            self._clock.sleep(LOOK_SECONDS)

    def _held(self, found: Item) -> str:
        finalizers = ", ".join(found["metadata"].get("finalizers") or ("none",))
        return (
            f"job {self._job.name}: an earlier one has been about to go for {DELETION_PATIENCE:g} s; its finalizers: "
            f"{finalizers}. foregroundDeletion waits for its pods, any other for its controller: see what is the "
            f"matter with those ({self._kubectl('describe')}), then run the step again"
        )

    def _kubectl(self, verb: str) -> str:
        return f"kubectl -n {self._job.namespace} {verb} {self._body['kind'].lower()} {self._job.name}"

    def _look(self) -> Observation | None:
        found = self._api.get(self._job.name)
        if found is None:
            return None
        workload = self._api.workload(found["metadata"]["uid"]) if self._job.spec.queue else None
        self._managed = self._managed or workload is not None
        return observe(found, workload, self._api.pods(self._job.name))

    def _check_managed(self) -> None:
        """Delete a job that Kueue ignores: it would never start, or run outside every quota.

        That it is suspended proves nothing, since it was created so. Looks are counted and not seconds: while the API
        server is away, Kueue cannot create a Workload either.
        """
        if self._managed:
            return
        self._unmanaged_looks += 1
        if self._unmanaged_looks <= UNMANAGED_LOOKS:
            return
        self._reached(lambda: self._api.delete(self._job.name))
        raise UserError(
            f"job {self._job.name} has the label of queue {self._job.spec.queue}, but Kueue created no Workload for it "
            f"within {UNMANAGED_LOOKS * LOOK_SECONDS:g} s, so it would run outside every quota or never start; it was "
            f"deleted. Either Kueue's controller does not run, or it does not manage {self._body['kind']}s: "
            f"{remedy(self._job.backend)}"
        )

    def _check_time(self, seen: Observation) -> None:
        spec = self._job.spec
        for waiting, limit, verb in ((True, spec.queue_timeout_seconds, "waited"),
                                     (False, spec.run_timeout_seconds, "ran")):  # fmt: skip
            if self._spent[waiting] > limit:
                self._reached(lambda: self._api.delete(self._job.name))
                name = "queue_timeout_seconds" if waiting else "run_timeout_seconds"
                raise UserError(
                    f"job {self._job.name} {verb} for more than {limit} s and was deleted ({seen.state}: "
                    f"{seen.reason}); raise job.{name}, or find out what it waits for"
                )

    def _reached(self, call: Callable[[], T]) -> T:
        return reached(call, self._tell, f"job {self._job.name} was left as it is", self._clock)


def reached(call: Callable[[], T], tell: Callable[[str], None], left: str, clock: Clock | None = None) -> T:
    """Call until the API server answers.

    Args:
        left: what a message says of how things were left, if it never does.

    Raises:
        UserError: it was away for ``API_PATIENCE``; and what the call raises.
    """
    clock = clock or time
    until = clock.time() + API_PATIENCE
    told = False
    while True:
        try:
            return call()
        except ApiUnavailable as error:
            if clock.time() > until:
                raise UserError(f"{error}, for {API_PATIENCE:g} s; {left}") from error
            if not told:
                tell(f"{error}; waiting for it")
                told = True
            clock.sleep(LOOK_SECONDS)


def stamp(seconds: float) -> str:
    """A moment as an annotation says it (RFC 3339)."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
