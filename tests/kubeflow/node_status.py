"""Size of a finished run's node status, as Pipelines 2.17's driver and Argo 4.0 write it.

Each step has six nodes: its driver, its group and its executor, each as a retried node and as that node's attempt. Both
driver nodes hold the component, the task, the container and the volumes as JSON text; the driver gives the pod's patch,
which holds the container again with the step's inputs, and which the other four nodes are given. Argo compresses a
Workflow above 1 MiB, and the Pipelines server reads only what is not compressed.

``CALIBRATION`` stands for what the model leaves out: artifacts' addresses, the launcher's other flags, Argo's volumes.
A recorded run had 906 kB, with eight steps finished, two with their drivers and one with half of it (``task_details``
of ``run-get-SUCCEEDED-product.json`` and the README of the recordings); for the pipeline that it was compiled to, by
commit 9f806fb, the model without calibration gives 880 kB.
"""

from __future__ import annotations

import json
from typing import Any

from platform_sdk.kubeflow.compile import PipelineIr

Item = dict[str, Any]
LIMIT = 600_000
"""Bytes that the node status of a shipped recipe's run may have."""
NODE = 900
"""Bytes of a node besides its inputs and outputs: names, templates, times, resources, children."""
OUTER_NODES = 16  # of the workflow, the root and the exit handler
DIGEST, PATH = "0" * 64, "/workspace/runs/a-name-of-a-recipe-0123456789ab-cdef-0123-456789abcdef0123/a-phase/model"
LAUNCHER = 900  # bytes of the launcher's command besides the step's inputs
CALIBRATION = 1.03


def node_status(pipeline: PipelineIr) -> float:
    """Return the bytes of a run's node status once all its steps have ended."""
    spec = pipeline.specification
    platform = pipeline.platform["platforms"]["kubernetes"]["deploymentSpec"]
    executors = spec["deploymentSpec"]["executors"]
    total = OUTER_NODES * NODE
    for tasks in [
        spec["root"]["dag"]["tasks"],
        *(c["dag"]["tasks"] for c in spec["components"].values() if "dag" in c),
    ]:
        for task in tasks.values():
            component = spec["components"][task["componentRef"]["name"]]
            if "dag" in component:
                total += 2 * sum(len(_text(json.dumps(one))) for one in (component, task))
            else:
                label = component["executorLabel"]
                total += _step(task, component, executors[label]["container"], platform["executors"][label])
    return CALIBRATION * (total + 2 * len(_text(json.dumps(spec["root"]))))


def _step(task: Item, component: Item, container: Item, platform: Item) -> int:
    patch = _text(_patch(task, component, container, platform))
    given = [_text(json.dumps(one)) for one in (component, task, container, platform)]
    return 6 * NODE + 2 * sum(map(len, given)) + 6 * len(patch)


def _patch(task: Item, component: Item, container: Item, platform: Item) -> str:
    """Return the patch of a step's pod: the launcher, with what the step is given, around the step's own program."""
    inputs = {name: _value(wire) for name, wire in task.get("inputs", {}).get("parameters", {}).items()}
    outputs = component.get("outputDefinitions", {})
    executor_input = json.dumps({"inputs": {"parameterValues": inputs}, "outputs": outputs})
    command = ["-" * LAUNCHER, "--executor_input", executor_input, "--component_spec", json.dumps(component)]
    return json.dumps({
        "containers": [{
            "name": "main", "command": command, "args": [*container["command"], *container["args"]],
            "env": [*container.get("env", ()), *platform.get("secretAsEnv", ())], "image": container["image"],
            "resources": container["resources"], "volumeMounts": platform["pvcMount"],
        }],
        "volumes": platform["pvcMount"],
    })  # fmt: skip


def _value(wire: Item) -> Any:
    if "runtimeValue" in wire:
        return wire["runtimeValue"]["constant"]
    return PATH if "path" in json.dumps(wire) or "run_dir" in json.dumps(wire) else DIGEST


def _text(text: str) -> str:
    """Return text as it stands inside JSON."""
    return json.dumps(text)
