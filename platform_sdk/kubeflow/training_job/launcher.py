"""Create or adopt a job, and follow it to its end.

A watch delivers the changes of the job, its pods and Kueue's Workload. A queued job is not a failure: queueing and
running have separate time limits. The launcher may be killed at any moment; the next one finds the job by its name and
follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.api import AlreadyThere, ApiUnavailable, ClusterApi, Forbidden, Item
from platform_sdk.kubeflow.training_job.backend import BACKENDS
from platform_sdk.kubeflow.training_job.description import HEARTBEAT, RAN, SPEC_DIGEST, Description
from platform_sdk.kubeflow.training_job.failure import failure_message
from platform_sdk.kubeflow.training_job.kueue import remedy
from platform_sdk.kubeflow.training_job.restarts import Restarts
from platform_sdk.kubeflow.training_job.state import (
    Observation,
    State,
    ended_at,
    expected_pods,
    image_digests,
    live_pods,
    observe,
)
from platform_sdk.kubeflow.training_job.watch import Clock, JobWatch, SystemClock
from platform_sdk.tracking.manifest import Job as JobUse
from platform_sdk.tracking.usage import DIGITS

T = TypeVar("T")
Record = Callable[[JobUse], None]
"""Record a job's resource use so far."""

RETRY_SECONDS = 10.0  # between attempts to reach the API server
HEARTBEAT_SECONDS = 60.0
API_PATIENCE = 1800.0  # timeout of the API server, in seconds
FORBIDDEN_SECONDS = 60.0  # how long it may refuse an allowed request after its restart
UNMANAGED_SECONDS = 120.0  # how long Kueue may take to create a Workload, while the API server answers
DELETION_PATIENCE = 600.0  # timeout of an earlier job's deletion, in seconds; its pods have one minute
MISSING_SECONDS = 30.0  # how long pods may be missing until the warnings in the job's events are reported
LOG_SECONDS = 60.0  # how long a failed pod's log is asked for while the API server does not give it
WARNING_LENGTH = 400
CLOCK = SystemClock()


def run_job(
    job: Description, api: ClusterApi, tell: Callable[[str], None], clock: Clock | None = None,
    record: Record | None = None,
) -> None:  # fmt: skip
    """Run a job to its end.

    An existing job of that name is adopted if it has the same specification. If it has failed it is created again: this
    is then another attempt, which resumes from the last checkpoint.

    Args:
        tell: called at every change of state, with the reason that the cluster reports.
        record: called once, also on failure, with the pods, images and GPU-hours of the job: the time from admission to
            its end, or until now, times its GPUs. The count includes the time under earlier launchers, even killed
            ones.

    Raises:
        UserError: the job failed, restarted its pods too often, waited or ran for too long, was deleted, differs from
            an existing one of that name, or its queue does not exist; Kueue does not manage it; an earlier job is not
            deleted in time; or the API server refused a request or did not respond. The first line of the message gives
            the cause.
    """
    follower = _Follower(job, api, tell, clock or CLOCK)
    try:
        follower.run()
    finally:
        if record is not None and follower.uid:
            record(follower.used())


class _Follower:
    def __init__(self, job: Description, api: ClusterApi, tell: Callable[[str], None], clock: Clock) -> None:
        self._job, self._api, self._tell, self._clock = job, api, tell, clock
        self._kind = BACKENDS[job.backend]
        self._body = self._kind.render(job)
        self._managed, self._unmanaged = job.spec.queue is None, 0.0
        self._spent = {True: 0.0, False: 0.0}  # seconds: waiting, and running
        self._restarts = Restarts()
        self._complete_at = 0.0  # when all pods were last there, or the job waited
        self._beaten = 0.0
        self._warning = ""
        self._last: Observation | None = None
        self._looked = 0.0
        self._created = 0.0
        self._ended: float | None = None
        self._gpus, self._gpu_seconds = job.gpus, 0.0
        self._images: dict[str, dict[str, str]] = {}  # of each pod
        self.uid = ""

    def run(self) -> None:
        self._create()
        queued = self._job.spec.queue is not None
        with closing(JobWatch(self._api, self._job.name, queued, self._see_pod, self._clock)) as watch:
            self._follow(watch)

    def _follow(self, watch: JobWatch) -> None:
        self._complete_at = self._clock.time()
        while True:
            self._reached(watch.refresh)
            now, last = self._count(ended_at(watch.job or {})), self._last
            if watch.job is None:
                raise UserError(f"job {self._job.name} was deleted while it was followed; run the step again")
            pods = list(watch.pods.values())
            seen = self._explained(observe(watch.job, watch.workload, pods), watch.job, pods)
            if last is None:
                self.uid = watch.job["metadata"]["uid"]
                self._created = datetime.fromisoformat(watch.job["metadata"]["creationTimestamp"]).timestamp()
                self._spent[False] = _admitted_before(watch.job, seen.state, now)
            if seen != last:
                self._tell(f"{self._job.name}: {seen.state}" + (f" ({seen.reason})" if seen.reason else ""))
            self._last = seen
            if not seen.state.waiting:  # of an Indexed Job, Kueue may admit fewer pods
                nodes = self._job.spec.nodes
                self._gpus = self._job.gpus // nodes * watch.job["spec"].get("parallelism", nodes)
                if last is None:
                    self._gpu_seconds = self._spent[False] * self._gpus
            self._ended = ended_at(watch.job) if seen.state.ended else None
            if seen.state is State.SUCCEEDED:
                return
            if seen.state is State.FAILED:
                raise UserError(self._failure(watch.job, seen.reason, pods))
            self._check_restarts(watch.job, pods)
            self._check_managed(watch)
            self._check_time(seen)
            # After the checks: the heartbeat of a job that has just ended is not needed.
            self._beat(now)
            before = self._clock.time()
            watch.wait(self._next_moment(seen, before) - before)
            self._unmanaged += 0.0 if self._managed else self._clock.time() - before

    def _count(self, end: float | None = None) -> float:
        """Add the time since the last observation to the time spent in its state; return the present time.

        Args:
            end: the job's end, which may have been observed late.
        """
        now = self._clock.time()
        if self._last is not None:
            until = now if end is None else min(end, now)
            seconds, waiting = max(until - self._looked, 0.0), self._last.state.waiting
            self._spent[waiting] += seconds
            self._gpu_seconds += 0.0 if waiting else seconds * self._gpus
        self._looked = now
        return now

    def used(self) -> JobUse:
        """Return the job's resource use so far."""
        now = self._count() if self._ended is None else self._ended
        seconds = self._spent[False]
        return JobUse(
            name=self._job.name,
            uid=self.uid,
            pods=tuple(sorted(self._images)),
            images={name: digest for images in self._images.values() for name, digest in images.items()},
            gpus=self._gpus,
            queued_seconds=round(max(now - self._created - seconds, 0.0), 3),
            seconds=round(seconds, 3),
            gpu_hours=round(self._gpu_seconds / 3600, DIGITS),
        )

    def _see_pod(self, pod: Item) -> None:
        self._images.setdefault(pod["metadata"]["name"], {}).update(image_digests(pod))
        failure = self._restarts.see(pod)
        if failure is not None:
            self._tell(f"{self._job.name}: pod {failure.pod}: {failure.text}")

    def _beat(self, now: float) -> None:
        """Write the heartbeat, without which the reaper deletes the job."""
        if now - self._beaten >= HEARTBEAT_SECONDS:
            beat = {HEARTBEAT: stamp(now), RAN: f"{self._spent[False]:.0f}"}
            self._reached(lambda: self._api.annotate(self._job.name, beat))
            self._beaten = now

    def _next_moment(self, seen: Observation, now: float) -> float:
        """Return the time of the next action that needs no change of the job."""
        waiting = seen.state.waiting
        limit = self._job.spec.queue_timeout_seconds if waiting else self._job.spec.run_timeout_seconds
        moments = [self._beaten + HEARTBEAT_SECONDS, now + limit - self._spent[waiting] + 1]
        if not self._managed:
            moments.append(now + UNMANAGED_SECONDS - self._unmanaged)
        if self._complete_at + MISSING_SECONDS > now:
            moments.append(self._complete_at + MISSING_SECONDS)
        return min(moments)

    def _explained(self, seen: Observation, job: Item, pods: list[Item]) -> Observation:
        """Add the latest warning in the cluster's events to the state of a job with missing pods."""
        now = self._clock.time()
        if seen.state.waiting or seen.state.ended or live_pods(pods) >= expected_pods(job):
            self._complete_at, self._warning = now, ""
            return seen
        if now - self._complete_at >= MISSING_SECONDS:
            names = self._kind.makers(self._job.name)
            warnings = self._reached(lambda: self._api.warnings(names, job))
            self._warning = warnings[-1] if warnings else ""
        if not self._warning:
            return seen
        count = f"{live_pods(pods)} of {expected_pods(job)} pods were created"
        return replace(seen, reason=f"{seen.reason}; {count}: {_shortened(self._warning)}")

    def _failure(self, job: Item, reason: str, pods: list[Item]) -> str:
        names = self._kind.makers(self._job.name)
        patient_until = self._clock.time() + LOG_SECONDS

        def message() -> str:
            skip = self._clock.time() >= patient_until
            return failure_message(job, reason, self._api, pods, names, skip_logs=skip)

        return self._reached(message)

    def _check_restarts(self, job: Item, pods: list[Item]) -> None:
        """Delete a job whose controller restarts a failing pod without end."""
        failure, limit = self._restarts.latest, self._job.spec.restarts
        if self._kind.RESTARTS_ARE_BOUNDED or failure is None or failure.number <= limit:
            return
        _, *details = self._failure(job, "", pods).splitlines()
        self._reached(lambda: self._api.delete(self._job.name))
        first = (
            f"job {self._job.name} failed: pod {failure.pod}: {failure.text}; the pod ended so {failure.number} times, "
            f"job.restarts allows {limit} restarts, and the job was deleted"
        )
        raise UserError("\n".join([first, *details]))

    def _create(self) -> None:
        """Create the job, or adopt the existing one."""
        digest = self._body["metadata"]["annotations"][SPEC_DIGEST]
        while True:
            found = self._reached(lambda: self._api.get(self._job.name))
            if found is None:
                self._check_queue()
                try:
                    self._reached(lambda: self._api.create(self._body))
                except AlreadyThere:
                    continue  # another launcher's, or ours if the response was lost
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
            self._tell(
                f"{self._job.name}: no right to see whether LocalQueue {queue} exists ({error}); creating the job"
            )
            return
        if missing:
            raise UserError(
                f"job {self._job.name} cannot be queued: {missing}; name another one in job.queue (--queue), or leave "
                "it out, and the job starts as soon as it fits",
                code="cluster.no-queue",
            )

    def _await_end_of(self, uid: str) -> None:
        """Wait until the deletion of a job is complete."""
        since = self._clock.time()
        self._tell(f"{self._job.name}: an earlier one is being deleted; waiting for its end")
        while (found := self._reached(lambda: self._api.get(self._job.name))) and found["metadata"]["uid"] == uid:
            if self._clock.time() - since > DELETION_PATIENCE:
                raise UserError(self._held(found))
            self._clock.sleep(RETRY_SECONDS)

    def _held(self, found: Item) -> str:
        finalizers = ", ".join(found["metadata"].get("finalizers") or ("none",))
        return (
            f"job {self._job.name}: the deletion of an earlier job of this name has not ended in "
            f"{DELETION_PATIENCE:g} s; its finalizers: {finalizers}. foregroundDeletion waits for its pods, any other "
            f"for its controller: find out why ({self._kubectl('describe')}), then run the step again"
        )

    def _kubectl(self, verb: str) -> str:
        return f"kubectl -n {self._job.namespace} {verb} {self._body['kind'].lower()} {self._job.name}"

    def _check_managed(self, watch: JobWatch) -> None:
        """Delete a job that Kueue ignores: it would never start, or run outside every quota.

        The job was created suspended, so its suspension does not show that Kueue manages it. Only the time in which the
        API server answers counts: while it is away, Kueue cannot create a Workload either.
        """
        self._managed = self._managed or watch.workload is not None
        if self._managed or self._unmanaged < UNMANAGED_SECONDS:
            return
        self._reached(lambda: self._api.delete(self._job.name))
        raise UserError(
            f"job {self._job.name} has the label of queue {self._job.spec.queue}, but Kueue created no Workload for it "
            f"within {UNMANAGED_SECONDS:g} s, so it would run outside every quota or never start; it was deleted. "
            f"Either Kueue's controller does not run, or it does not manage {self._body['kind']}s: "
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
        left: the state of the job, for the error message.

    Raises:
        UserError: no response for ``API_PATIENCE``, or refused for ``FORBIDDEN_SECONDS``; and the call's own errors.
    """
    clock = clock or CLOCK
    began = clock.time()
    reported = False
    while True:
        try:
            return call()
        except ApiUnavailable as error:
            if clock.time() > began + API_PATIENCE:
                raise UserError(f"{error}, for {API_PATIENCE:g} s; {left}") from error
            problem = str(error)
        except Forbidden as error:
            if clock.time() >= began + FORBIDDEN_SECONDS:
                raise
            problem = str(error)
        if not reported:
            tell(f"{problem}; waiting for it")
            reported = True
        clock.sleep(RETRY_SECONDS)


def _admitted_before(job: Item, state: State, now: float) -> float:
    """Return the seconds of an adopted job's admission so far: those noted at its last heartbeat, and those since.

    Time in the queue since that heartbeat is counted too.
    """
    annotations = job["metadata"].get("annotations") or {}
    noted = float(annotations.get(RAN, 0))
    if HEARTBEAT not in annotations or state.waiting:
        return noted
    end = ended_at(job) if state.ended else None
    return noted + max((now if end is None else end) - datetime.fromisoformat(annotations[HEARTBEAT]).timestamp(), 0.0)


def stamp(seconds: float) -> str:
    """Return a time in RFC 3339, as in annotations."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _shortened(text: str) -> str:
    return text if len(text) <= WARNING_LENGTH else f"{text[:WARNING_LENGTH]} …"
