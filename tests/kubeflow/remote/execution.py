"""One run as the driver, Argo and the kubelet carry it out: its pods, and what Pipelines shows of its Workflow."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.kubeflow.remote.recorded import Item, recorded

if TYPE_CHECKING:
    from tests.kubeflow.remote.cluster_server import ClusterServer

BEGIN = datetime(2027, 1, 15, 8, tzinfo=UTC)
NEVER, RUNNING_STILL = "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z"
NODE_BYTES = 906_000 // 70
"""Bytes of a node in the Workflow's status: 70 nodes had 906 kB."""
COMPRESSED_ABOVE = 1 << 20
"""Bytes of node status above which Argo compresses it, and Pipelines, which does not read it then, shows the last."""
ENDED = ("SUCCEEDED", "FAILED", "CANCELED")
PHASES = {"SUCCEEDED": "Succeeded", "FAILED": "Failed", "RUNNING": "Running"}


class Execution:
    """A run's execution, moved by the test. Time passes by ten seconds with every event."""

    def __init__(self, run: Item, cluster: ClusterServer | None) -> None:
        self.run, self.cluster = run, cluster
        self._now = BEGIN
        self._nodes: dict[str, Item] = {}
        self._others: list[Item] = []
        self._attempts = 0
        for name in ("root", "exit-handler-1", "toy-x7w2p"):
            self._node(name, "RUNNING")

    @property
    def frozen(self) -> bool:
        return NODE_BYTES * (len(self._nodes) + len(self._others)) > COMPRESSED_ABOVE

    def _tick(self) -> str:
        self._now += timedelta(seconds=10)
        return f"{self._now:%Y-%m-%dT%H:%M:%SZ}"

    def state(self, state: str) -> None:
        """Give the run this state."""
        now = self._tick()
        history = self.run.setdefault("state_history", [])
        if state == "RUNNING" and len(history) == 1:
            history.append({"update_time": now})  # the server writes one without a state
        history.append({"update_time": now, "state": state})
        self.run["state"] = state
        self.run["finished_at"] = now if state in ENDED else NEVER

    def begin(self, step: str, waits: Item | None = None) -> str:
        """Let a step's pod run, or wait; its name."""
        if self.run["state"] == "PENDING":
            self.state("RUNNING")
        for name in (f"{step}-driver", f"{step}-driver(0)"):
            self._node(name, "SUCCEEDED")
        for name in (step, f"{step}(0)"):
            self._node(name, "RUNNING")
        self._others.append({"display_name": "executor", "state": "RUNNING"})
        self._others.append({"display_name": "executor(0)", "state": "RUNNING"})
        self._attempts += 1
        pod = self._pod(step)
        pod["status"] = {"phase": "Pending", **waits} if waits else self._status({"running": {}}, "RUNNING")
        self._publish()
        return str(pod["metadata"]["name"])

    def end(self, step: str, state: str = "SUCCEEDED", message: str = "", **terminated: Any) -> None:
        """Let a step that has begun end."""
        began = self._nodes[step]["start_time"]
        now = self._tick()
        code = 0 if state == "SUCCEEDED" else 1
        ended = {"exitCode": code, "startedAt": began, "finishedAt": now, "reason": "Error" if code else "Completed"}
        ended |= ({"message": message} if message else {}) | terminated
        for name in (step, f"{step}(0)"):
            self._nodes[name] |= {"state": state, "end_time": now}
        # As the metadata store lists an execution: without a name or a state.
        self._others.append({"start_time": began, "end_time": now, "execution_id": str(len(self._others))})
        if self.cluster is not None:
            self.pod(step)["status"] = self._status({"terminated": ended}, state)
        self._publish()

    def step(self, step: str, state: str = "SUCCEEDED", message: str = "") -> None:
        """Let a step begin and end."""
        self.begin(step)
        self.end(step, state, message)

    def cached(self, step: str) -> None:
        """Let a step's outputs come from the cache: it has no pod, and its executor is skipped."""
        for name in (f"{step}-driver", f"{step}-driver(0)", step, f"{step}(0)"):
            self._node(name, "SUCCEEDED")
            self._nodes[name]["end_time"] = self._nodes[name]["start_time"]
        self._others.append({"display_name": "executor", "state": "SKIPPED"})
        self._publish()

    def omit(self, *steps: str) -> None:
        """List steps that were never reached, as the server does once the run fails: without a state."""
        for step in steps:
            for name in (step, f"{step}-driver"):
                now = self._tick()
                self._nodes[name] = {"display_name": name, "start_time": now, "end_time": now}
        self._publish()

    def cancel(self) -> None:
        """End a run that was told to end, as the server shows it: its steps and itself as FAILED."""
        running = [name for name, node in self._nodes.items() if name in self._steps() and node["state"] == "RUNNING"]
        for step in running:
            self.end(step, "FAILED", exitCode=143)
        self.state("FAILED")

    def retry(self) -> None:
        """Retry a run: failed steps' pods are deleted. What succeeded is kept, the exit task too."""
        self.state("RUNNING")
        for step in self._steps():
            if self._nodes.get(step, {}).get("state") == "FAILED" and self.cluster is not None:
                del self.cluster.pods[self.pod(step)["metadata"]["name"]]

    def pod(self, step: str) -> Item:
        """The newest pod of a step."""
        assert self.cluster is not None
        own = {"pipeline/runid": self.run["run_id"], "hopforge.dev/task": step}
        pods = [one for one in self.cluster.pods.values() if own.items() <= one["metadata"]["labels"].items()]
        return max(pods, key=lambda one: str(one["metadata"]["creationTimestamp"]))

    def _steps(self) -> list[str]:
        return [name.removesuffix("-driver") for name in self._nodes if name.endswith("-driver")]

    def _node(self, name: str, state: str) -> None:
        now = self._tick()
        end = now if state in ENDED else RUNNING_STILL
        self._nodes[name] = {"display_name": name, "start_time": now, "end_time": end, "state": state}

    def _pod(self, step: str) -> Item:
        pod = copy.deepcopy(recorded("pod-kfp-step"))
        labels = {"pipeline/runid": self.run["run_id"], "hopforge.dev/task": step}
        pod["metadata"]["name"] = f"toy-x7w2p-{step}-{self.run['run_id'][:4]}-{self._attempts}"
        pod["metadata"]["labels"] |= labels
        pod["metadata"]["creationTimestamp"] = self._tick()
        if self.cluster is not None:
            self.cluster.pods[pod["metadata"]["name"]] = pod
            driver: Item = {
                "name": f"{pod['metadata']['name']}-driver",
                "labels": {"pipeline/runid": labels["pipeline/runid"]},
            }
            self.cluster.pods[driver["name"]] = {"metadata": driver, "status": {"phase": "Succeeded"}}
        return pod

    def _status(self, main: Item, state: str) -> Item:
        return {
            "phase": PHASES[state],
            "containerStatuses": [{"name": "main", "state": main}, {"name": "wait", "state": main}],
        }

    def _publish(self) -> None:
        """Show the Workflow's nodes in the run, unless they are compressed."""
        if not self.frozen:
            details = [*self._nodes.values(), *self._others]
            self.run["run_details"] = {"task_details": copy.deepcopy(details)}
