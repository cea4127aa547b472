"""A training as a cluster's job: two processes on a CPU, under the command and environment that the job sets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubeflow.training", reason="the extra [cluster] is not installed")

from kubeflow.training import TrainingClient
from kubernetes.client import Configuration

from platform_sdk.config.cluster import JobSpec, Resources, Workspace
from platform_sdk.config.training import TrainSpec
from platform_sdk.kubeflow.training_job.backend import api_for
from platform_sdk.kubeflow.training_job.description import Description
from platform_sdk.kubeflow.training_job.launcher import run_job
from platform_sdk.processes.launch import StepProcesses
from platform_sdk.record_files import write_jsonl
from platform_sdk.records import Rollout
from platform_sdk.training.examples import Example
from platform_sdk.training.launch import TrainStep, launch_training
from tests.kubeflow.training_job.api_server import ApiServer
from tests.kubeflow.training_job.virtual_clock import VirtualClock
from tests.process_watch import free_port
from tests.training.test_steps import as_rollout

ROOT = Path(__file__).parents[2]
SPEC = TrainSpec(
    learning_rate=1e-2, minimum_learning_rate=1e-3, batch_size=6, micro_batch_tokens=40, epochs=2, device="cpu",
    checkpoint_steps=1,
)  # fmt: skip
ONE_THREAD = (("OMP_NUM_THREADS", "1"),)


def started(pod: dict[str, Any], processes: int) -> subprocess.Popen[bytes]:
    """The container of a pod, with the variables that the operator would add, as the only node."""
    [container] = pod["containers"]
    port = free_port()
    operator = {
        "PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": str(processes),
        "PET_MASTER_ADDR": "localhost", "PET_MASTER_PORT": str(port),
    }  # fmt: skip
    own = {one["name"]: one["value"] for one in container["env"]}
    command = [sys.executable]
    for part in container["command"][1:]:
        # As Kubernetes puts a container's variables into its command.
        for name, value in (own | operator).items():
            part = part.replace(f"$({name})", value)
        command.append(part)
    return subprocess.Popen(command, env={**os.environ, **own, **operator, "PYTHONPATH": str(ROOT)})


class Kubelet:
    """Runs the container of a PyTorchJob's master as the operator would have it run: one node, two processes."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.killed = 0

    def run(self, kill_when: Path) -> None:
        job = self.server.job()
        pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
        process = started(pod, int(job["spec"]["nprocPerNode"]))
        self._kill_a_worker(process, kill_when)
        ended = process.wait(300)
        self.server.condition(job, "Succeeded" if ended == 0 else "Failed")

    def _kill_a_worker(self, launcher: subprocess.Popen[bytes], moment: Path) -> None:
        deadline = time.monotonic() + 200
        while not list(moment.glob("**/checkpoint-*")):
            assert launcher.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)
        self.killed += 1


@pytest.fixture
def step(tiny_model: Path, dialogues: list[Example], tmp_path: Path) -> TrainStep:
    selected = tmp_path / "selected.jsonl"
    pairs = zip(dialogues[::2], dialogues[1::2], strict=True)
    write_jsonl(selected, Rollout, [as_rollout(number, *pair) for number, pair in enumerate(pairs)])
    return TrainStep(
        run_dir=tmp_path / "here", phase="iteration-01", model=str(tiny_model), selected=selected, seed=3, spec=SPEC
    )


def test_processes_that_are_started_again_find_each_other_though_one_is_late() -> None:
    described = Description(
        run="r", step="late", namespace="team", module="tests.training.late", spec_file="", environment=ONE_THREAD,
        workspace=Workspace(claim="w"), spec=JobSpec(image="i", resources=Resources(gpus=0), restarts=1), processes=2,
    )  # fmt: skip
    assert started(described.pod("pytorch"), described.processes_per_node).wait(120) == 0


@pytest.mark.slow  # tests/kubeflow/training_job renders such jobs, test_steps.py trains with two processes
def test_a_job_trains_as_this_machine_would_and_outlives_a_killed_worker(step: TrainStep, tmp_path: Path) -> None:
    here = launch_training(step.model_copy(update={"spec": SPEC.model_copy(update={"processes": 2})}))
    told: list[str] = []
    with ApiServer() as server:
        kubelet, clock = Kubelet(server), VirtualClock(server)
        connection = TrainingClient(client_configuration=Configuration(host=server.url))
        description = Description(
            run="r", step="train", namespace="team", module="", spec_file="", workspace=Workspace(claim="w"),
            spec=JobSpec(image="i", resources=Resources(gpus=0), restarts=2), processes=2,
            environment=ONE_THREAD,
        )  # fmt: skip
        there = tmp_path / "there"
        clock.at(5, lambda: kubelet.run(there))

        def runner(processes: StepProcesses) -> None:
            described = replace(description, module=processes.module, spec_file=str(processes.spec_file))
            run_job(described, api_for(described, connection), told.append, clock)

        result: Any = launch_training(step.model_copy(update={"run_dir": there}), runner)
    assert told[-1].endswith("Succeeded")
    assert kubelet.killed
    assert result.weights == here.weights
    assert [point.loss for point in result.curve] == [point.loss for point in here.curve]
