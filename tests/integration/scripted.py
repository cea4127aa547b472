"""Stand-ins for hopforge, kubectl and the launcher, which print what they print on a working cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from platform_sdk.config.errors import UserError
from platform_sdk.kubeflow.training_job.description import Description
from tests.integration.first_run.commands import Cluster
from tests.integration.first_run.jobs import Launcher

SHIPPED = Path(__file__).parents[2] / "pipelines/cluster.yaml"
HERE = Cluster("http://localhost:8080", namespace="team", queue="q", file=SHIPPED)

PROGRAM = (
    f"#!{sys.executable}"
    + '''
"""hopforge and kubectl: state in this file's folder."""
import json, sys
from pathlib import Path

here, words = Path(__file__).parent, sys.argv[1:]
log = here / "log"
before = log.read_text() if log.is_file() else ""
with log.open("a") as stream:
    stream.write(" ".join(words) + "\\n")
broken = (here / "broken").read_text() if (here / "broken").is_file() else "nothing"
if words[0] == broken:
    print("Error: " + broken + " is broken", file=sys.stderr)
    sys.exit(2)


def job(run, state="Running"):
    return {"step": "train", "part": "train", "job": f"job-{run}", "state": state, "reason": ""}


def ended(run, state, reason=""):
    return [{"step": "train", "state": state, "reason": reason}, {"run": run, "name": run, "state": state, "error": ""}]


if words[0] == "upload":
    old = before.count("upload")
    print(json.dumps([{"version": "world-0123", "new": not old}, {"version": "grpo-4567", "new": False}]))
elif words[0] == "submit":
    number = before.count("submit ") + 1
    print(json.dumps({"run_id": f"run-{number}", "run": f"mygo-world-{number}"}))
elif words[0] == "watch":
    run = words[1]
    watched = before.count(f"watch {run} ")
    records = [job(run)]
    if run == "run-1" or watched >= 5:
        records += ended(run, "SUCCEEDED")
    elif run == "run-2" and watched in (1, 2):
        # Failed, and still so at the first look after the retry was requested, with a job that goes on.
        records += ended(run, "FAILED", "pod deleted")
    elif run == "run-2" and watched == 3:
        records.append({"run": run, "name": run, "state": "RUNNING", "error": ""})
    elif run == "run-3" and watched == 1:
        records = ended(run, "FAILED")
    for record in records:
        print(json.dumps(record), flush=True)
    sys.exit({"SUCCEEDED": 0, "FAILED": 1}.get(records[-1]["state"], 0))
elif words[0] == "logs":
    print("train | loss 0.5")
elif words[0] == "cancel":
    again = f"cancel {words[1]} " in before
    print(json.dumps({"run": words[1], "said": [], "deleted": [] if again else [f"PyTorchJob job-{words[1]}"]}))
elif words[0] == "gc":
    print((here / "silent").read_text())
elif words[0] == "api-resources":
    print({"kubeflow.org": "pytorchjobs.kubeflow.org", "trainer.kubeflow.org": "trainjobs.trainer.kubeflow.org",
           "kueue.x-k8s.io": "localqueues.kueue.x-k8s.io"}[words[1].partition("=")[2]])
elif "pods" in words:
    name = words[words.index("-l") + 1].rpartition("=")[2]
    print(json.dumps({"items": [{"metadata": {"name": f"pod-of-{name}"}, "status": {"phase": "Running"}}]}))
'''
)


class Scripted:
    """Programs and a launcher that behave as on a working cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.retried, self.deleted = folder, list[str](), list[str]()
        program = folder / "program"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        (folder / "silent").write_text("[]")
        self.cluster = replace(HERE, hopforge=(str(program),), kubectl=(str(program),), run_minutes=1)

    def launch(self, job: Description, tell: Callable[[str], None]) -> None:
        """Follow a job, with the lines and errors of the recorded launchers."""
        if job.step == "abandoned":
            (self.folder / "silent").write_text(json.dumps([{"name": job.name, "kind": "PyTorchJob"}]))
        tell(f"{job.name}: created")
        if job.spec.queue is not None:
            tell(f"{job.name}: Queued (QuotaReserved: Quota reserved in ClusterQueue hopforge)")
        tell(f"{job.name}: Admitted (pod {job.name}-master-0: ContainerCreating)")
        tell(f"{job.name}: Running (1 of 1 pods run)")
        if job.step.endswith("-memory"):
            raise UserError(
                f"job {job.name} failed: PyTorchJobFailed\npod {job.name}-master-0: exit code 137, out of memory "
                "(OOMKilled): raise job.resources.memory, or lower batches"
            )
        tell(f"{job.name}: Succeeded (PyTorchJobSucceeded: successfully completed.)")

    def launcher(self) -> Launcher:
        return Launcher(self.launch, lambda job: self.deleted.append(job.name))

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()
