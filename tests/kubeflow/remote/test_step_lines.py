"""A step's own lines in its container's log, among those of Kubeflow's launcher and Argo."""

from __future__ import annotations

import threading

from platform_sdk.kubeflow.remote.logs import containers, follow_own, read_log
from tests.kubeflow.remote.cluster import Cluster
from tests.kubeflow.remote.cluster_server import CLEAN

LAUNCHER = """\
time=2026-11-23T04:01:31.002Z level=INFO msg="Starting Workflow Executor" argo=true version=v4.0.5
I1123 04:01:31.778922      16 launcher_v2.go:151] input ComponentSpec:{
  "inputDefinitions": {}
}
[KFP Executor 2026-11-23 04:01:35,127 INFO]: Looking for component `make` in --component_module_path `/tmp/x.py`
[KFP Executor 2026-11-23 04:01:35,128 INFO]: Loading KFP component "make" from /tmp/x.py (directory "/tmp")
"""
INPUT = """\
[KFP Executor 2026-11-23 04:01:35,130 INFO]: Got executor_input:
{
    "inputs": {
        "parameterValues": {}
    }
}
"""
OWN = [f"iteration {number} of 20" for number in range(1, 21)]
PUBLISHED = """\
[KFP Executor 2026-11-23 04:01:39,130 INFO]: Wrote executor output file to /minio/output_metadata.json.
I1123 04:01:39.779135      16 launcher_v2.go:867] Executing uploadOutputArtifacts
time=2026-11-23T04:01:41.285Z level=INFO msg="sub-process exited" argo=true error="<nil>"
"""
CRASHED = """\
Traceback (most recent call last):
platform_sdk.errors.UserError: the API server refuses: HTTP 422
E1123 04:01:39.778922      16 launcher_v2.go:449] Component failed to execute successfully
I1123 04:01:39.779135      16 launcher_v2.go:867] Executing uploadOutputArtifacts
F1123 04:01:40.615986      16 main.go:59] failed to execute component: exit status 1
time=2026-11-23T04:01:41.285Z level=INFO msg="sub-process exited" argo=true error="exit status 1"
Error: exit status 1
"""


def test_logs_of_a_step_are_its_own_lines(cluster: Cluster) -> None:
    execution, written = cluster.execution, cluster.kubernetes.logs
    name = execution.begin("make")
    [container] = containers(cluster.jobs, cluster.run, "make")[0]

    def read(lines: int) -> list[str]:
        return list(read_log(cluster.jobs, container, lines) or ())

    written[name] = LAUNCHER
    assert read(100) == []  # the step has not begun
    written[name] += INPUT + "\n".join(OWN) + "\n"
    assert read(100) == OWN
    assert read(6) == OWN[-6:]
    whole = written[name]
    written[name] += PUBLISHED
    execution.end("make")
    assert read(6) == OWN[-6:]
    execution.end("make", "FAILED")
    written[name] = whole + CRASHED
    assert read(100)[20:] == CRASHED.splitlines()[:2]
    written[name] = LAUNCHER + CRASHED  # it failed before it began
    assert read(100)[-2:] == CRASHED.splitlines()[:2]
    written[name] = "\n".join(OWN) + PUBLISHED  # the beginning was rotated away
    assert read(100)[:19] == OWN[:19]


def test_followed_logs_of_a_step_begin_with_its_last_own_lines(cluster: Cluster) -> None:
    name = cluster.execution.begin("make")
    [container] = containers(cluster.jobs, cluster.run, "make")[0]
    cluster.kubernetes.logs[name] = LAUNCHER + INPUT + "\n".join(OWN) + "\n"
    cluster.kubernetes.cuts = [(len(LAUNCHER + INPUT) + 31 * 40, CLEAN)]

    def ends(seconds: float) -> None:
        cluster.kubernetes.logs[name] += "iterations finished\n" + PUBLISHED
        cluster.execution.end("make")

    read = list(follow_own(cluster.jobs, container, 2, threading.Event(), ends))
    assert read == [*OWN[-2:], "iterations finished"]
